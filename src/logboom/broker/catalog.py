"""The metadata as the front ends see them: the image in force, and the commands that change it.

A command goes to the controller, which may be this broker or another one (`control`); it returns once this broker has
applied the change, so that whoever asked sees it. Knows no partition, no disk and no protocol.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from structlog.typing import FilteringBoundLogger

from logboom.base.dynamic import Current
from logboom.base.errors import InvalidRequestError, LogboomError, StorageError
from logboom.base.ids import BrokerId, ProducerId, StreamId, StreamName
from logboom.base.ports import Ids
from logboom.broker.config import BrokerConfig
from logboom.broker.control import commands
from logboom.broker.control.channel import ControlChannel, ControllerView
from logboom.broker.control.commands import Refusal
from logboom.broker.metadata_state import MetadataState
from logboom.broker.stream_creation import NewStream, StreamCreation, stream_after
from logboom.metadata import Image, ImageDelta, QuotaEntity, Quotas, Stream

_NO_CONFIG: Final[Mapping[str, str | None]] = MappingProxyType({})


class Catalog:
    """See the module. Life: that of the broker, on its loop."""

    def __init__(
        self,
        state: MetadataState,
        channel: ControlChannel,
        view: ControllerView,
        *,
        broker_id: BrokerId,
        ids: Ids,
        log: FilteringBoundLogger,
    ) -> None:
        self._state = state
        self._channel = channel
        self._view = view
        self._broker_id = broker_id
        self._ids = ids
        self._log = log
        self._creation = StreamCreation(channel, state, ids)

    # --- the image ----------------------------------------------------------------------------------------------

    @property
    def image(self) -> Image:
        """The image in force. It never changes; ask again for a later one."""
        return self._state.image

    @property
    def controller(self) -> BrokerId | None:
        """The broker that decides, as far as this one knows; None while no controller is known."""
        return self._view.controller

    def streams(self) -> Mapping[StreamName, Stream]:
        """All streams by name, internal ones too. The mapping never changes; ask again for a later one."""
        return self._state.image.by_name

    def stream(self, name: str) -> Stream | None:
        """The stream of a name."""
        return self._state.image.by_name.get(StreamName(name))

    def stream_by_id(self, stream_id: StreamId) -> Stream | None:
        """The stream of an id."""
        return self._state.image.by_id.get(stream_id)

    @property
    def quotas(self) -> Mapping[QuotaEntity, Quotas]:
        """The quotas of every entity that has some. The mapping never changes; ask again for a later one."""
        return self._state.image.quotas

    def watch(self, callback: Callable[[ImageDelta], None]) -> None:
        """Call `callback` on the loop with every change of the image, once this broker has followed it."""
        self._state.watch(callback)

    def watch_quotas(self, callback: Callable[[], None]) -> None:
        """Call `callback` on the loop whenever quotas changed."""

        def changed(delta: ImageDelta) -> None:
            if delta.quotas_changed:
                callback()

        self._state.watch(changed)

    def check_broker_name(self, broker: str) -> None:
        """Raises InvalidRequestError for a broker other than this one; an empty name stands for all."""
        if broker not in ("", str(self._broker_id)):
            raise InvalidRequestError(f"this is broker {self._broker_id}, not {broker!r}")

    # --- streams ------------------------------------------------------------------------------------------------

    async def create_stream(
        self,
        name: str,
        *,
        partitions: int | None = None,
        replication_factor: int | None = None,
        config: Mapping[str, str | None] = _NO_CONFIG,
        assignments: Sequence[Sequence[int]] | None = None,
        validate_only: bool = False,
    ) -> Stream:
        """A new stream, usable once this returns. None is the broker's default; `assignments`: the replicas of each
        partition, the preferred leader first.

        Raises the errors of `logboom.metadata.create_stream`, StorageError where its directories cannot be made.
        """
        wanted = NewStream(name, partitions, replication_factor, config, assignments)
        return await self._creation.create(wanted, validate_only=validate_only)

    async def create_streams(self, wanted: Sequence[NewStream]) -> list[Stream | LogboomError]:
        """New streams, created independently: the outcome of each. Like `create_stream` for each of them, in fewer
        commits."""
        return await self._creation.create_all(wanted)

    async def ensure_internal_stream(
        self, name: str, *, partitions: int, config: Mapping[str, str], replication_factor: int = 1
    ) -> Stream:
        """The cluster's own stream of a name, created where there is none; with fewer replicas where there are fewer
        brokers. The number of partitions stays. Settings are changed by the controller's broker alone, which stands for
        all, and stay where they cannot be written now: the next start tries again."""
        if self.stream(name) is None:
            command = commands.EnsureStream(
                name=name,
                id=self._ids.uuid(),
                partitions=partitions,
                config=dict(config),
                replication_factor=replication_factor,
            )
            await self._channel.submit(command)
            return self._stream(name, None)
        if self._view.serving:
            try:
                return await self.change_stream_config(name, config, internal=True)
            except StorageError as error:
                self._log.warning("settings of an internal stream not changed", stream=name, reason=str(error))
        return self._stream(name, None)

    async def create_partitions(
        self,
        name: str,
        total: int,
        *,
        assignments: Sequence[Sequence[int]] | None = None,
        validate_only: bool = False,
    ) -> Stream:
        """Let a stream grow to `total` partitions; `assignments`: the replicas of the new ones."""
        command = commands.AddPartitions(
            name=name,
            total=total,
            assignments=None if assignments is None else tuple(map(tuple, assignments)),
            validate_only=validate_only,
        )
        return self._stream(name, await self._channel.submit(command, bytes | None))

    async def change_stream_config(
        self,
        name: str,
        changes: Mapping[str, str | None] | Callable[[], Mapping[str, str | None]],
        *,
        replace_all: bool = False,
        validate_only: bool = False,
        internal: bool = False,
    ) -> Stream:
        """Set some settings of a stream, in force once this returns; None gives one back to its default. Changes that
        depend on the settings there are, such as one entry more of a list, are a function: others may change the same.

        With `replace_all` the settings that are not named go back too. `internal` is for the broker itself.
        """

        def command() -> commands.ChangeStreamConfig:
            return commands.ChangeStreamConfig(
                name=name,
                changes=dict(changes() if callable(changes) else changes),
                replace_all=replace_all,
                validate_only=validate_only,
                internal=internal,
            )

        await self._channel.submit(command)
        return self._stream(name, None)

    async def delete_stream(self, name: str) -> None:
        """Delete a stream and all its records; once this returns its name is free and its files are out of the way.

        Raises UnknownStreamError, also where the stream that this broker knows by the name is gone and another one,
        which it has not heard of yet, is there.
        """
        there = self._state.image.by_name.get(StreamName(name))
        await self._channel.submit(commands.DeleteStream(name=name, id=None if there is None else there.id))

    def _stream(self, name: str, planned: bytes | None) -> Stream:
        return stream_after(self._state.image, name, planned)

    # --- brokers, clients, producers ----------------------------------------------------------------------------

    async def change_broker_config(
        self,
        broker: str,
        changes: Mapping[str, str | None],
        *,
        replace_all: bool = False,
        validate_only: bool = False,
    ) -> None:
        """Set some settings of this broker, or under an empty name the default of all, in force once this returns.

        None takes one back; with `replace_all` those that are not named are taken back too.
        """
        self.check_broker_name(broker)
        command = commands.ChangeBrokerConfig(
            broker=broker, changes=dict(changes), replace_all=replace_all, validate_only=validate_only
        )
        await self._channel.submit(command)

    async def change_quotas(
        self, wanted: Sequence[tuple[QuotaEntity, Mapping[str, float | None]]], *, validate_only: bool = False
    ) -> list[LogboomError | None]:
        """Set (or, with None, remove) quotas of each entity by itself; the outcome of each, in force on return."""
        command = commands.ChangeQuotas(
            wanted=tuple(commands.EntityQuotas(entity, dict(changes)) for entity, changes in wanted),
            validate_only=validate_only,
        )
        refusals = await self._channel.submit(command, list[Refusal | None])
        return [None if one is None else one.error for one in refusals]

    async def allocate_producer_ids(self, count: int) -> range:
        """Set aside `count` producer ids that were never given before; those not used by a restart are lost."""
        first = await self._channel.submit(commands.AllocateProducerIds(count=count), int)
        return range(first, first + count)


class ProducerIds:
    """Ids for idempotent producers (KIP-98), given out one by one from blocks that the catalog reserves."""

    def __init__(self, catalog: Catalog, config: Current[BrokerConfig]) -> None:
        self._catalog = catalog
        self._config = config
        self._next = self._end = 0
        self._refill = asyncio.Lock()

    async def allocate(self) -> ProducerId:
        """An id that was never given before, by this broker or another one."""
        while self._next == self._end:
            async with self._refill:
                if self._next == self._end:  # else another caller's block came while this one waited
                    block = await self._catalog.allocate_producer_ids(self._config.now.producer_id_block)
                    self._next, self._end = block.start, block.stop
        given = self._next
        self._next += 1
        return ProducerId(given)
