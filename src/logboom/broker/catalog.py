"""The metadata of this broker: the image in force, and the one way in which it changes.

A change is a command of `logboom.metadata` (pure: image in, records out), and then:

    prepare(delta) -> commit(records) -> the image is replaced -> apply(delta)

`commit` is a port (`CommitPort`): a local log today, the metadata Raft group once there are several brokers. `prepare`
and `apply` are the broker's (`MetadataFollower`): directories of new partitions are made durable before the commit, so
that a stream that exists always has them; everything else follows after it. Nothing is visible before it is committed.

Changes run one at a time and to their end, also when the caller is cancelled in the middle. Knows no partition, no disk
and no protocol.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, Protocol, TypeVar

from structlog.typing import FilteringBoundLogger

from logboom.base.dynamic import Current, DynamicSettings
from logboom.base.errors import InvalidRequestError, LogboomError, StorageError, StreamExistsError
from logboom.base.ids import BrokerId, ProducerId, StreamId, StreamName
from logboom.base.ports import Ids
from logboom.broker.config import BrokerConfig
from logboom.broker.metrics import Counters
from logboom.metadata import (
    CreateStream,
    Image,
    ImageDelta,
    Limits,
    MetadataRecord,
    QuotaEntity,
    Quotas,
    Stream,
    add_partitions,
    allocate_producer_ids,
    apply,
    apply_quotas,
    change_broker_config,
    change_config,
    change_quotas,
    create_stream,
    delete_stream,
    delta_of,
    replication_factor_max,
)

Result = TypeVar("Result")
_QUOTAS_PER_TURN: Final = 500
_QUOTAS_PER_COMMIT: Final = 500
_NO_CONFIG: Final[Mapping[str, str | None]] = MappingProxyType({})
_NO_SETTINGS: Final[Mapping[str, str]] = MappingProxyType({})


class CommitPort(Protocol):
    """Where records become durable. Called one at a time."""

    async def commit(self, records: Sequence[MetadataRecord]) -> None:
        """Return once the records survive a power failure. Raises StorageError: then none of them is committed."""

    def is_long(self, image: Image, records_min: int) -> bool:
        """Whether a snapshot of `image` would shorten the next start by much."""

    async def take_snapshot(self, image: Image) -> int:
        """Replace the records of all commits so far by those of `image`, which they make; how many those are.

        Raises StorageError: then the old records are still there.
        """


class MetadataFollower(Protocol):
    """The state of a broker that follows the image. Called one at a time."""

    async def prepare(self, delta: ImageDelta) -> None:
        """Make durable what must be there before the records are. On an error nothing of it is left."""

    async def abandon(self, delta: ImageDelta) -> None:
        """The commit failed: undo `prepare`."""

    async def apply(self, delta: ImageDelta) -> None:
        """The records are committed and the image is replaced: follow. What the doors see changes before it waits."""


class Catalog:
    """See the module. Life: made, `attach`ed, used on the loop; `drain`ed before the commit port closes."""

    def __init__(
        self,
        image: Image,
        commit_port: CommitPort,
        *,
        broker_id: BrokerId,
        config: Current[BrokerConfig],
        dynamic_settings: DynamicSettings,
        ids: Ids,
        counters: Counters,
        log: FilteringBoundLogger,
    ) -> None:
        self._image = image
        self._commit_port = commit_port
        self._broker_id = broker_id
        self._config = config
        self._dynamic_settings = dynamic_settings
        self._ids = ids
        self._counters = counters
        self._log = log
        self._follower: MetadataFollower | None = None
        self._lock = asyncio.Lock()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._snapshot: asyncio.Task[None] | None = None
        self._quota_watchers: list[Callable[[], None]] = []

    def attach(self, follower: MetadataFollower) -> None:
        """Set the follower of all changes, before the first one."""
        self._follower = follower

    async def drain(self) -> None:
        """Return once all changes that were begun have ended, and the snapshots that the last of them started."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    # --- the image ----------------------------------------------------------------------------------------------

    @property
    def image(self) -> Image:
        """The image in force. It never changes; ask again for a later one."""
        return self._image

    def streams(self) -> Mapping[StreamName, Stream]:
        """All streams by name, internal ones too. The mapping never changes; ask again for a later one."""
        return self._image.by_name

    def stream(self, name: str) -> Stream | None:
        """The stream of a name."""
        return self._image.by_name.get(StreamName(name))

    def stream_by_id(self, stream_id: StreamId) -> Stream | None:
        """The stream of an id."""
        return self._image.by_id.get(stream_id)

    @property
    def quotas(self) -> Mapping[QuotaEntity, Quotas]:
        """The quotas of every entity that has some. The mapping never changes; ask again for a later one."""
        return self._image.quotas

    def watch_quotas(self, callback: Callable[[], None]) -> None:
        """Call `callback` on the loop whenever quotas changed."""
        self._quota_watchers.append(callback)

    def check_broker_name(self, broker: str) -> None:
        """Raises InvalidRequestError for a broker other than this one; an empty name stands for all."""
        if broker not in ("", str(self._broker_id)):
            raise InvalidRequestError(f"this is broker {self._broker_id}, not {broker!r}")

    @property
    def _limits(self) -> Limits:
        config = self._config.now
        return Limits(
            partitions_max=config.max_partitions, streams_max=config.max_streams, quotas_max=config.max_quotas
        )

    # --- streams ------------------------------------------------------------------------------------------------

    async def create_stream(
        self,
        name: str,
        *,
        partitions: int | None = None,
        replication_factor: int | None = None,
        config: Mapping[str, str | None] = _NO_CONFIG,
        validate_only: bool = False,
        internal: bool = False,
    ) -> Stream:
        """A new stream, usable once this returns. None is the broker's default; `internal` is for the broker itself.

        Raises the errors of `logboom.metadata.create_stream`, StorageError where its directories cannot be made.
        """
        command = CreateStream(
            name=name,
            partitions=self._config.now.default_partitions if partitions is None else partitions,
            replication_factor=1 if replication_factor is None else replication_factor,
            config=config,
            internal=internal,
        )

        async def change() -> Stream:
            records = create_stream(self._image, command, StreamId(self._ids.uuid()), self._limits)
            stream = apply(self._image, records[0]).by_name[StreamName(name)]
            if not validate_only:
                await self._commit(records)
                self._log.info("stream created", stream=stream.name, id=str(stream.id), partitions=stream.partitions)
            return stream

        return await self._in_order(change)

    async def ensure_internal_stream(
        self, name: str, *, partitions: int, replication_factor: int, config: Mapping[str, str]
    ) -> Stream:
        """The broker's own stream of a name with these settings; created where there is none, with so many replicas or
        as many as there can be. The number of partitions stays, and the settings where they cannot be written now: the
        next start tries again."""
        if self.stream(name) is None:
            factor = min(replication_factor, replication_factor_max(self._image.brokers))
            try:
                return await self.create_stream(
                    name, partitions=partitions, replication_factor=factor, config=dict(config), internal=True
                )
            except StreamExistsError:  # another caller created it while this one waited for its turn
                pass
        try:
            return await self.change_stream_config(name, config, internal=True)
        except StorageError as error:
            self._log.warning("settings of an internal stream not changed", stream=name, reason=str(error))
            return self._image.by_name[StreamName(name)]

    async def create_partitions(self, name: str, total: int, *, validate_only: bool = False) -> Stream:
        """Let a stream grow to `total` partitions."""

        async def change() -> Stream:
            records = add_partitions(self._image, name, total, self._limits)
            stream = apply(self._image, records[0]).by_name[StreamName(name)]
            if not validate_only:
                await self._commit(records)
                self._log.info("partitions added", stream=stream.name, partitions=total)
            return stream

        return await self._in_order(change)

    async def change_stream_config(
        self,
        name: str,
        changes: Mapping[str, str | None],
        *,
        replace_all: bool = False,
        validate_only: bool = False,
        internal: bool = False,
    ) -> Stream:
        """Set some settings of a stream, in force once this returns; None gives one back to its default.

        With `replace_all` the settings that are not named go back too. `internal` is for the broker itself.
        """

        async def change() -> Stream:
            records = change_config(self._image, name, changes, replace_all=replace_all, internal=internal)
            if not records or validate_only:
                return self._image.by_name[StreamName(name)]
            await self._commit(records)
            stream = self._image.by_name[StreamName(name)]
            self._log.info("stream settings changed", stream=name, settings=dict(stream.overrides))
            return stream

        return await self._in_order(change)

    async def delete_stream(self, name: str) -> None:
        """Delete a stream and all its records; once this returns its name is free and its files are out of the way."""

        async def change() -> None:
            records = delete_stream(self._image, name)
            await self._commit(records)
            self._log.info("stream deleted", stream=name, id=str(records[0].id))

        await self._in_order(change)

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

        async def change() -> None:
            there = self._image.broker_configs.get(broker, _NO_SETTINGS)
            normal = self._dynamic_settings.normal(changes, there)
            records = change_broker_config(self._image, broker, normal, replace_all=replace_all)
            if not records:
                return
            self._dynamic_settings.check(*settings_layers(apply(self._image, records[0]), self._broker_id))
            if validate_only:
                return
            await self._commit(records)
            self._log.info("broker settings changed", broker=broker or "all", settings=records[0].config)

        await self._in_order(change)

    async def change_quotas(
        self, wanted: Sequence[tuple[QuotaEntity, Mapping[str, float | None]]], *, validate_only: bool = False
    ) -> list[LogboomError | None]:
        """Set (or, with None, remove) quotas of each entity by itself; the outcome of each, in force on return."""

        async def change() -> list[LogboomError | None]:
            quotas, records = dict(self._image.quotas), list[MetadataRecord]()
            results: list[LogboomError | None] = []
            for number, (entity, changes) in enumerate(wanted):
                if number % _QUOTAS_PER_TURN == 0:
                    await asyncio.sleep(0)  # a request may name a hundred thousand; connections get their turn
                try:
                    made = change_quotas(quotas, entity, changes, self._limits)
                except LogboomError as error:
                    results.append(error)
                    continue
                for record in made:
                    apply_quotas(quotas, record)
                    records.append(record)
                results.append(None)
            if not validate_only:
                for start in range(0, len(records), _QUOTAS_PER_COMMIT):
                    await self._commit(records[start : start + _QUOTAS_PER_COMMIT])
            return results

        return await self._in_order(change)

    async def allocate_producer_ids(self, count: int) -> range:
        """Set aside `count` producer ids that were never given before; those not used by a restart are lost."""

        async def change() -> range:
            first = self._image.next_producer_id
            await self._commit(allocate_producer_ids(self._image, count))
            return range(first, self._image.next_producer_id)

        return await self._in_order(change)

    # --- the way of a change ------------------------------------------------------------------------------------

    async def _commit(self, records: Sequence[MetadataRecord]) -> None:
        assert self._follower is not None
        delta = delta_of(self._image, records)
        # Directories first: at the next start a missing one can then only mean lost data, and a full disk is an error
        # of this command with nothing created. What a crash from here on leaves is removed by the next start.
        await self._follower.prepare(delta)
        try:
            await self._commit_port.commit(records)
        except BaseException:  # a cancelled caller too: what was prepared would be in the way of the next change
            await self._follower.abandon(delta)
            raise
        self._counters.metadata_commits += 1
        # Committed: there is no way back. The image is replaced before anything waits, so that no reader sees a state
        # between two images.
        self._image = delta.after
        await self._follower.apply(delta)
        for callback in self._quota_watchers if delta.quotas_changed else ():
            callback()
        self.snapshot_soon()

    async def _in_order(self, change: Callable[[], Awaitable[Result]]) -> Result:
        """Run one change after the other, each to its end even if its caller is cancelled in the middle."""

        async def alone() -> Result:
            async with self._lock:
                return await change()

        # A client that disconnects cancels its request. The change must not stop between its commit and `apply`.
        return await asyncio.shield(self._start(alone()))

    def _start(self, work: Coroutine[Any, Any, Result]) -> asyncio.Task[Result]:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._task_done)
        return task

    def _task_done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # retrieved, so that asyncio does not warn where the caller is gone

    def snapshot_soon(self) -> None:
        """Take a snapshot in the background where the log has grown long."""
        running = self._snapshot is not None and not self._snapshot.done()
        if not running and self._commit_port.is_long(self._image, self._config.now.metadata_snapshot_records):
            self._snapshot = self._start(self._take_snapshot())

    async def _take_snapshot(self) -> None:
        async with self._lock:
            try:
                records = await self._commit_port.take_snapshot(self._image)
            except (LogboomError, OSError) as error:
                # Nothing is lost: the records before are still there, and a later commit tries again.
                self._log.warning("metadata snapshot failed", reason=str(error))
                return
            self._log.info("metadata snapshot taken", records=records)


class ProducerIds:
    """Ids for idempotent producers (KIP-98), given one by one from blocks that the catalog has set aside."""

    def __init__(self, catalog: Catalog, config: Current[BrokerConfig]) -> None:
        self._catalog = catalog
        self._config = config
        self._next = self._end = 0
        self._refill = asyncio.Lock()

    async def allocate(self) -> ProducerId:
        """An id that was never given before, by this broker or an earlier one on this data directory."""
        while self._next == self._end:
            async with self._refill:
                if self._next == self._end:  # else another caller's block came while this one waited
                    block = await self._catalog.allocate_producer_ids(self._config.now.producer_id_block)
                    self._next, self._end = block.start, block.stop
        given = self._next
        self._next += 1
        return ProducerId(given)


def settings_layers(image: Image, broker_id: BrokerId) -> tuple[Mapping[str, str], Mapping[str, str]]:
    """What was set at run time for one broker, and for all brokers."""
    configs = image.broker_configs
    return configs.get(str(broker_id), _NO_SETTINGS), configs.get("", _NO_SETTINGS)
