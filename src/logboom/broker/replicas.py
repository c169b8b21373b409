"""The partitions that this broker holds: opened at the start, then kept as the committed metadata says.

`prepare` makes the directories of new partitions durable, `apply` gives the partitions their role and takes them into
service, reconfigures those whose stream changed and drops those whose stream is deleted. The log manager opens a log
without a role; which partitions this broker holds (`_assigned`) and which role it has in each (`_lead`) is decided
here, from the image. With one broker that is every partition, as its leader. Knows no command and no protocol.
"""

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from logboom.base.errors import LogboomError, NotLeaderError, StorageError, UnknownStreamError, UnknownStreamIdError
from logboom.base.ids import BrokerId, Epoch, PartitionIndex, StreamId, StreamName
from logboom.broker.disk.log_manager import Assigned, LogManager, PartitionKey, deleted_stream_error
from logboom.broker.partition.leader import Leading
from logboom.broker.partition.replica import Partition
from logboom.metadata import Image, ImageDelta, Stream

_PARTITIONS_PER_TURN: Final = 500
_FIRST_EPOCH: Final = Epoch(0)


class Replicas:
    """See the module. Life: `open`ed once, then deltas one at a time, then `close`d. Everything on the loop."""

    def __init__(self, logs: LogManager, broker_id: BrokerId) -> None:
        self._logs = logs
        self._broker_id = broker_id
        self._image = Image()
        self._partitions: dict[PartitionKey, Partition] = {}
        self._failed: dict[PartitionKey, StorageError] = {}
        self._prepared: list[Partition] = []

    async def open(self, image: Image) -> None:
        """Recover every partition of the image; where that fails, `find` gives the reason."""
        self._image = image
        self._partitions, self._failed = await self._logs.open_all(image, _assigned(image), self._lead_at_start)

    def _lead_at_start(self, partition: Partition) -> None:
        """Each start is a leadership, also one that writes nothing: a client that has read records which a power
        failure then took can tell by the epoch (KIP-320). On a thread; syncs.

        On a full disk the epoch is saved with the first write there is room for: a leadership that wrote nothing leaves
        no trace that could be mistaken for another's.
        """
        # The log counts the leaderships of a partition that has one replica.
        self._lead(partition, Epoch(partition.log.epochs.latest + 1))
        partition.log.epochs.try_save()

    def _lead(self, partition: Partition, epoch: Epoch) -> None:
        """Become the leader; this broker is the only replica, and so the ISR."""
        partition.role.lead(Leading(epoch, frozenset({self._broker_id})))

    # --- questions ----------------------------------------------------------------------------------------------

    def find(self, name: str, index: int) -> Partition:
        """A partition that this broker holds.

        Raises UnknownStreamError where there is no such partition, NotLeaderError where others hold it, StorageError
        where its files could not be opened at the start.
        """
        key = (StreamName(name), PartitionIndex(index))
        try:
            return self._partitions[key]
        except KeyError:
            failure = self._failed.get(key)
            if failure is not None:
                raise failure.with_traceback(None) from None
            stream = self._image.by_name.get(key[0])
            if stream is not None and 0 <= index < stream.partitions:
                raise NotLeaderError(f"this broker holds no replica of {name}-{index}") from None
            raise UnknownStreamError(f"there is no partition {index} of a stream {name!r}") from None

    def find_by_id(self, stream_id: StreamId, index: int) -> Partition:
        """A partition by its stream's id. Raises UnknownStreamIdError, else as `find`."""
        stream = self._image.by_id.get(stream_id)
        if stream is None:
            raise UnknownStreamIdError(f"no stream has the id {stream_id}")
        return self.find(stream.name, index)

    def __len__(self) -> int:
        return len(self._partitions)

    def __iter__(self) -> Iterator[Partition]:
        """All partitions that are open; safe against changes while it runs."""
        return iter(tuple(self._partitions.values()))

    @property
    def failed(self) -> Mapping[PartitionKey, StorageError]:
        """Partitions whose files could not be opened at the start."""
        return self._failed

    def offline(self) -> Mapping[PartitionKey, LogboomError]:
        """Partitions that take no appends, those whose files could not be opened included, each with its reason."""
        refusing = {key: partition.refusal for key, partition in self._partitions.items()}
        return {**self._failed, **{key: reason for key, reason in refusing.items() if reason is not None}}

    # --- following the metadata ---------------------------------------------------------------------------------

    async def prepare(self, delta: ImageDelta) -> None:
        """Make the new partitions of a delta, durable and empty, before it is committed. On an error none is left.

        Their first leader epoch is noted with them, so that `apply` waits for no disk.
        """
        assert not self._prepared
        try:
            for stream, indexes in delta.grown:
                self._prepared += await self._logs.create(stream, indexes, _FIRST_EPOCH, delta.before.tombstones)
        except BaseException:  # a cancelled caller too: directories without metadata are left by no failure
            await self.abandon(delta)
            raise

    async def abandon(self, delta: ImageDelta) -> None:
        """The delta was not committed: remove what was prepared for it."""
        prepared, self._prepared = self._prepared, []
        for partition in prepared:
            await self._logs.delete((partition,), deleted_stream_error(partition.stream.name))

    async def apply(self, delta: ImageDelta) -> None:
        """Follow a committed delta. `find` answers by it before the first wait; files of dropped ones go after."""
        self._image = delta.after
        dropped = [(stream, self._forget(stream)) for stream in delta.deleted]
        for partition in self._prepared:
            self._lead(partition, _FIRST_EPOCH)
            self._partitions[partition.stream.name, partition.index] = partition
        self._prepared = []
        for stream, partitions in dropped:
            await self._logs.delete(partitions, deleted_stream_error(stream.name))
        await self._configure(key for stream in delta.reconfigured for key in _keys(stream))

    def _forget(self, stream: Stream) -> list[Partition]:
        keys = _keys(stream)
        for key in keys:
            self._failed.pop(key, None)
        return [self._partitions.pop(key) for key in keys if key in self._partitions]

    async def reconfigure(self) -> None:
        """The broker's own settings changed, those under every stream's settings among them."""
        await self._configure(tuple(self._partitions))

    async def _configure(self, keys: Iterable[PartitionKey]) -> None:
        """Partitions take the settings in force; with very many of them the loop gets its turn in between."""
        for number, key in enumerate(keys, 1):
            partition = self._partitions.get(key)
            if partition is not None:
                partition.configure(self._image.by_name[key[0]])
            if number % _PARTITIONS_PER_TURN == 0:
                await asyncio.sleep(0)

    # --- the end ------------------------------------------------------------------------------------------------

    def go_offline(self, error: StorageError) -> None:
        """The log dir failed: take no appends any more, in any partition; reads go on."""
        for partition in self._partitions.values():
            partition.go_offline(error)

    def refuse_appends(self, reason: LogboomError) -> None:
        """The broker stops: answer appends with `reason` from now on; those under way are still completed."""
        for partition in self._partitions.values():
            partition.refuse_appends(reason)

    async def close(self, reason: LogboomError) -> None:
        """Close every log cleanly once no thread reads it; appends and reads that wait are answered with `reason`."""
        await self._logs.close_all(self._partitions.values(), reason)


def _assigned(image: Image) -> list[Assigned]:
    """The partitions of the image that this broker holds: all of them, since it is the only one."""
    return [(stream, PartitionIndex(index)) for stream in image for index in range(stream.partitions)]


def _keys(stream: Stream) -> list[PartitionKey]:
    return [(stream.name, PartitionIndex(index)) for index in range(stream.partitions)]
