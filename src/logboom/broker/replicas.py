"""The partitions that this broker holds, by name and by id.

`replica_manager` alone changes what is here. It stands apart since the manager's partitions need parts of the broker
that look partitions up.
"""

from collections.abc import Iterator, Mapping

from logboom.base.errors import LogboomError, NotLeaderError, StorageError, UnknownStreamError, UnknownStreamIdError
from logboom.base.ids import Offset, PartitionIndex, StreamId, StreamName
from logboom.broker.disk.log_manager import PartitionKey
from logboom.broker.partition.replica import Partition
from logboom.broker.partition.replication_port import ReplicaKey, StreamIdPartition
from logboom.metadata import Image


class Replicas:
    """See the module. Life: that of the broker, on its loop."""

    def __init__(self) -> None:
        self.image = Image()
        """The metadata by which `opened` is kept."""
        self.opened: dict[PartitionKey, Partition] = {}
        self._by_id: dict[StreamIdPartition, Partition] = {}
        """The same, for those who know their streams by id and look for them with each frame of another broker."""
        self.failed: dict[PartitionKey, StorageError] = {}
        """Partitions whose files could not be opened at the start."""
        self.marks_of_failed: dict[ReplicaKey, Offset] = {}
        """Up to where these were known to be committed. Kept when they are opened later, which does no harm."""

    def find(self, name: str, index: int) -> Partition:
        """A partition that this broker holds.

        Raises UnknownStreamError where there is no such partition, NotLeaderError where others hold it, StorageError
        where its files could not be opened at the start.
        """
        key = (StreamName(name), PartitionIndex(index))
        try:
            return self.opened[key]
        except KeyError:
            failure = self.failed.get(key)
            if failure is not None:
                raise failure.with_traceback(None) from None
            stream = self.image.by_name.get(key[0])
            if stream is not None and 0 <= index < stream.partitions:
                raise NotLeaderError(f"this broker holds no replica of {name}-{index}") from None
            raise UnknownStreamError(f"there is no partition {index} of a stream {name!r}") from None

    def find_by_id(self, stream_id: StreamId, index: int) -> Partition:
        """A partition by its stream's id. Raises UnknownStreamIdError, else as `find`."""
        stream = self.image.by_id.get(stream_id)
        if stream is None:
            raise UnknownStreamIdError(f"no stream has the id {stream_id}")
        return self.find(stream.name, index)

    def find_replica(self, key: StreamIdPartition) -> Partition:
        """As `find_by_id`, by both in one."""
        partition = self._by_id.get(key)
        return self.find_by_id(key.stream, key.index) if partition is None else partition

    def add(self, partition: Partition) -> None:
        """It is open, and here from now on."""
        self.opened[partition.stream.name, partition.index] = partition
        self._by_id[StreamIdPartition(partition.stream.id, partition.index)] = partition

    def remove(self, key: PartitionKey) -> Partition | None:
        """It is here no more."""
        partition = self.opened.pop(key, None)
        if partition is not None:
            del self._by_id[StreamIdPartition(partition.stream.id, partition.index)]
        return partition

    def __len__(self) -> int:
        return len(self.opened)

    def __iter__(self) -> Iterator[Partition]:
        """All partitions that are open; safe against changes while it runs."""
        return iter(tuple(self.opened.values()))

    def offline(self) -> Mapping[PartitionKey, LogboomError]:
        """Partitions that take no writes here, those whose files could not be opened included, each with its reason."""
        refusing = {key: partition.refusal for key, partition in self.opened.items()}
        return {**self.failed, **{key: reason for key, reason in refusing.items() if reason is not None}}
