"""The shell of one process: it owns the cores and the threads, and the doors call it.

It composes what the other files of this package do: data directory, metadata log, flusher, partitions, groups, and the
background work between them. Every change of metadata is on the disk before anybody can see it. Knows no protocol.

Life: `start` (recovers and leads everything), then any number of calls on the loop, then `stop`, once.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, Final, TypeVar

from structlog.typing import FilteringBoundLogger

from logboom.base.dynamic import DynamicSettings
from logboom.base.errors import (
    InvalidRequestError,
    LogboomError,
    NotLeaderError,
    StorageError,
    UnknownStreamError,
    UnknownStreamIdError,
)
from logboom.base.ids import BrokerId, PartitionIndex, ProducerId, StreamId, StreamName
from logboom.base.ports import Disk
from logboom.broker.config import BrokerConfig
from logboom.broker.disk import maintenance
from logboom.broker.disk.data_dir import METADATA_DIR, DataDir, Identity
from logboom.broker.disk.flusher import Flusher
from logboom.broker.disk.log_dir import LogDirState, log_dir_state
from logboom.broker.disk.ownership import stream_ids_on_disk
from logboom.broker.disk.rejections import WriteRejections
from logboom.broker.disk.store import Key, PartitionStore, deleted_stream_error
from logboom.broker.groups.service import GroupService
from logboom.broker.metadata_log import MetadataLog
from logboom.broker.metrics import Counters
from logboom.broker.partition.read_cache import ReadCache
from logboom.broker.partition.replica import Partition
from logboom.broker.partition.services import PartitionServices
from logboom.broker.runtime import Runtime
from logboom.host import OsDisk
from logboom.metadata import (
    CreateStream,
    Image,
    Limits,
    MetadataRecord,
    QuotaEntity,
    Quotas,
    Stream,
    add_partitions,
    allocate_producer_ids,
    apply,
    apply_all,
    change_broker_config,
    change_config,
    change_quotas,
    create_stream,
    delete_stream,
    take_quotas,
)
from logboom.storage import Damage, Notice, OpenFiles

Result = TypeVar("Result")
_QUOTAS_PER_TURN: Final = 500
_PARTITIONS_PER_TURN: Final = 500
_QUOTAS_PER_COMMIT: Final = 500
_NAMED_MAX: Final = 10
_NO_CONFIG: Final[Mapping[str, str | None]] = MappingProxyType({})
_NO_SETTINGS: Final[Mapping[str, str]] = MappingProxyType({})
_BACKGROUND: Final[tuple[tuple[maintenance.Work, Callable[[BrokerConfig], float]], ...]] = (
    (maintenance.checkpoints, lambda config: config.checkpoint_interval_s),
    (maintenance.background_syncs, lambda config: config.background_sync_interval_s),
    (maintenance.retention, lambda config: config.retention_check_interval_s),
    (maintenance.watch_disk_stall, lambda config: config.disk_hang_s / maintenance.LOOKS_PER_HANG),
)


class Broker:
    """See the module. Everything is called on the loop it was started on."""

    def __init__(
        self,
        config: BrokerConfig,
        data_dir: DataDir,
        disk: Disk,
        image: Image,
        metadata_log: MetadataLog,
        *,
        runtime: Runtime,
        log: FilteringBoundLogger,
    ) -> None:
        self.runtime = runtime
        self.clock = clock = runtime.clock
        self.identity: Identity = data_dir.identity
        self.counters = Counters()
        self.log = log
        self._data_dir = data_dir
        self._disk = disk
        own, shared = _layers(image, self.identity)
        self.dynamic = DynamicSettings(log.error, own, shared)
        self._config = self.dynamic.add("broker", config)
        config = self._config.now
        self._image = image.with_defaults(config.stream_defaults.as_stream_config())
        self._metadata_log = metadata_log
        self._metadata_lock = asyncio.Lock()
        self._readers = runtime.workers.pool("read", config.read_threads)
        self._read_cache = ReadCache(config.shared_read_bytes)
        self._flusher = Flusher(
            runtime=runtime,
            threads=config.flush_threads,
            counters=self.counters,
            log=log,
            on_failure=self._log_dir_failed,
            staged_bytes_max=config.max_staged_bytes,
        )
        metadata_log.attach(self._flusher)
        self.open_files = OpenFiles(config.max_open_log_files)
        services = PartitionServices(
            broker_id=self.identity.broker_id,
            clock=clock,
            flusher=self._flusher,
            readers=self._readers,
            counters=self.counters,
            rejections=WriteRejections(self.counters, clock, log),
            config=self._config,
            read_cache=self._read_cache,
            open_files=self.open_files,
        )
        self._store = PartitionStore(
            disk, runtime, self._flusher, services, log, deleted=metadata_log.deleted, open_threads=config.open_threads
        )
        self._quota_watchers: list[Callable[[], None]] = []
        self._partitions: dict[Key, Partition] = {}
        self._failed: dict[Key, StorageError] = {}
        self._next_producer_id = self._producer_ids_end = image.next_producer_id
        self._tasks: set[asyncio.Task[Any]] = set()
        self._background: list[asyncio.Task[None]] = []
        self._snapshot: asyncio.Task[None] | None = None
        self.groups = GroupService(self)
        self._config.subscribe(self._settings_changed)

    # --- life ---------------------------------------------------------------------------------------------------

    @classmethod
    async def start(
        cls,
        config: BrokerConfig,
        *,
        runtime: Runtime,
        log: FilteringBoundLogger,
        open_disk: Callable[[str], Disk] = OsDisk,
    ) -> "Broker":
        """Take the data directory, recover what is in it, lead every partition.

        Raises DataDirError (in use, another's, no data directory), FormatVersionError, StorageError, OSError.
        """
        disk = open_disk(str(config.data_dir))
        data_dir = await asyncio.to_thread(
            DataDir.open,
            config.data_dir,
            disk,
            broker_id=BrokerId(config.broker_id),
            cluster_id=config.cluster_id,
            ids=runtime.ids,
        )
        if data_dir.unknown_entries:
            log.warning(
                "entries of the data directory that Logboom did not make are left alone", names=data_dir.unknown_entries
            )
        try:
            defaults = config.stream_defaults.as_stream_config()
            report = partial(_report_metadata, log)
            metadata_log, image = await asyncio.to_thread(
                MetadataLog.open, disk, METADATA_DIR, defaults, runtime.clock, report
            )
            broker = cls(config, data_dir, disk, image, metadata_log, runtime=runtime, log=log)
            await broker._begin()
        except BaseException:
            data_dir.close()
            raise
        return broker

    async def _begin(self) -> None:
        try:
            self._partitions, self._failed = await self._store.open_all(self._image)
            self._background = [
                asyncio.create_task(
                    work(self.partitions, self._flusher, maintenance.Pause(self._config, interval_s), self.log)
                )
                for work, interval_s in _BACKGROUND
            ]
            for task in self._background:
                task.add_done_callback(self._background_ended)
            await self.groups.start()
            self._shorten_metadata_soon()
        except BaseException:
            await self._close(StorageError("the broker did not start"))
            raise
        self.log.info(
            "broker started",
            broker_id=self.identity.broker_id,
            cluster_id=self.identity.cluster_id,
            streams=len(self._image.by_name),
            partitions=len(self._partitions),
            data_dir=str(self._data_dir.path),
        )

    async def stop(self) -> None:
        """Take nothing new, flush and answer what was taken, close every log cleanly, give the directory back."""
        await self.groups.stop()
        if self._tasks:
            await asyncio.wait(self._tasks)
        await self._close(NotLeaderError("the broker is shutting down"))
        self.log.info("broker stopped")

    async def _close(self, reason: LogboomError) -> None:
        for task in self._background:
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)
        for partition in self._partitions.values():
            partition.refuse_appends(reason)
        await self._flusher.stop()
        await self._store.close_all(self._partitions.values(), reason)
        if self._flusher.failure is None:
            try:
                await asyncio.to_thread(self._metadata_log.log.close)
            except StorageError as error:  # a full disk: the next start recovers it
                self.log.error("the metadata log is not closed cleanly", reason=str(error))
        self._readers.shutdown(wait=False)
        self._read_cache.close()
        self._data_dir.close()

    def _background_ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (fault := task.exception()) is not None:
            self.log.error("background work ended by a fault in Logboom", exc_info=fault)

    def _log_dir_failed(self, error: StorageError) -> None:
        self.log.critical("the log dir takes no more writes", path=str(self._data_dir.path), reason=str(error))
        for partition in self._partitions.values():
            partition.go_offline(error)

    def _settings_changed(self, config: BrokerConfig) -> None:
        defaults = config.stream_defaults.as_stream_config()
        if defaults != self._image.defaults:
            self._image = self._image.with_defaults(defaults)
        self.groups.configure(config.groups)
        self._flusher.limit_staged(config.max_staged_bytes)
        self.open_files.limit = config.max_open_log_files

    # --- what there is ------------------------------------------------------------------------------------------

    @property
    def config(self) -> BrokerConfig:
        """The settings in force now."""
        return self._config.now

    @property
    def _limits(self) -> Limits:
        config = self.config
        return Limits(
            partitions_max=config.max_partitions, streams_max=config.max_streams, quotas_max=config.max_quotas
        )

    @property
    def staging(self) -> Flusher:
        """What waits for the disk: how much that is, and whether it is too much."""
        return self._flusher

    def streams(self) -> Mapping[StreamName, Stream]:
        """All streams by name, internal ones too. The mapping never changes; ask again for news."""
        return self._image.by_name

    def stream(self, name: str) -> Stream | None:
        """The stream of a name."""
        return self._image.by_name.get(StreamName(name))

    @property
    def quotas(self) -> Mapping[QuotaEntity, Quotas]:
        """All quotas by whom they are for. The mapping never changes; ask again for news."""
        return self._image.quotas

    def watch_quotas(self, callback: Callable[[], None]) -> None:
        """Call `callback` on the loop whenever quotas changed."""
        self._quota_watchers.append(callback)

    def stream_by_id(self, stream_id: StreamId) -> Stream | None:
        """The stream of an id."""
        return self._image.by_id.get(stream_id)

    def partition(self, name: str, index: int) -> Partition:
        """A partition. Raises UnknownStreamError; StorageError where its files could not be opened at the start."""
        key = (StreamName(name), PartitionIndex(index))
        try:
            return self._partitions[key]
        except KeyError:
            failure = self._failed.get(key)
            if failure is not None:
                raise failure.with_traceback(None) from None
            raise UnknownStreamError(f"there is no partition {index} of a stream {name!r}") from None

    def partition_by_id(self, stream_id: StreamId, index: int) -> Partition:
        """A partition by its stream's id. Raises UnknownStreamIdError, else as `partition`."""
        stream = self._image.by_id.get(stream_id)
        if stream is None:
            raise UnknownStreamIdError(f"no stream has the id {stream_id}")
        return self.partition(stream.name, index)

    def partitions(self) -> Iterator[Partition]:
        """All partitions that are open."""
        return iter(tuple(self._partitions.values()))

    def failed(self) -> Mapping[Key, StorageError]:
        """Partitions whose files could not be opened at the start."""
        return self._failed

    def offline(self) -> Mapping[Key, LogboomError]:
        """Partitions that take no appends, those whose files could not be opened among them, each with its reason."""
        refusing = {key: partition.refusal for key, partition in self._partitions.items()}
        return {**self._failed, **{key: reason for key, reason in refusing.items() if reason is not None}}

    def trouble(self) -> str | None:
        """One sentence on what this broker does not serve of what it should; None where there is nothing to say."""
        if self.log_dir_failure is not None:
            return str(self.log_dir_failure)
        if (hanging_s := self._flusher.busy_s) >= self.config.disk_hang_s:
            return f"the disk hangs: what it was told to write {hanging_s:.0f} s ago is not written; reads go on"
        offline = self.offline()
        if not offline:
            return None
        named = ", ".join(f"{name}-{index}" for name, index in sorted(offline)[:_NAMED_MAX])
        more = f" and {len(offline) - _NAMED_MAX} more" if len(offline) > _NAMED_MAX else ""
        return f"offline: {named}{more}; all others are served. {offline[min(offline)]}"

    @property
    def log_dir_failure(self) -> StorageError | None:
        """Why the log dir takes no more writes, if so. Does not ask the disk, which may hang."""
        return self._flusher.failure

    def log_dir(self) -> LogDirState:
        """The state of the one log dir. Asks the disk: off the loop."""
        return log_dir_state(self._disk, self._data_dir.path, self._flusher.failure)

    # --- changing what there is ---------------------------------------------------------------------------------

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
        """A new stream, usable once this returns. None is the broker's default; `internal` is for the node itself."""
        command = CreateStream(
            name=name,
            partitions=self.config.default_partitions if partitions is None else partitions,
            replication_factor=1 if replication_factor is None else replication_factor,
            config=config,
            internal=internal,
        )
        return await self._uninterrupted(self._create_stream(command, validate_only))

    async def _create_stream(self, command: CreateStream, validate_only: bool) -> Stream:
        async with self._metadata_lock:
            records = create_stream(self._image, command, StreamId(self.runtime.ids.uuid()), self._limits)
            stream = apply(self._image, records[0]).by_name[StreamName(command.name)]
            if not validate_only:
                await self._commit_with(records, stream, range(stream.partitions))
                self.log.info("stream created", stream=stream.name, id=str(stream.id), partitions=stream.partitions)
            return stream

    async def create_partitions(self, name: str, total: int, *, validate_only: bool = False) -> Stream:
        """Let a stream grow to `total` partitions."""
        return await self._uninterrupted(self._create_partitions(name, total, validate_only))

    async def _create_partitions(self, name: str, total: int, validate_only: bool) -> Stream:
        async with self._metadata_lock:
            records = add_partitions(self._image, name, total, self._limits)
            before = self._image.by_name[StreamName(name)]
            stream = apply(self._image, records[0]).by_name[before.name]
            if not validate_only:
                await self._commit_with(records, stream, range(before.partitions, total))
                await self._reconfigure(_keys(stream))
                self.log.info("partitions added", stream=stream.name, partitions=total)
            return stream

    async def _commit_with(self, records: Sequence[MetadataRecord], stream: Stream, indexes: Sequence[int]) -> None:
        """Commit records that new partitions belong to; without the commit there are no such partitions."""
        made = await self._store.create(stream, indexes)
        try:
            await self._commit(records)
        except BaseException:
            await self._store.discard(made, deleted_stream_error(stream.name))
            raise
        self._partitions.update({(stream.name, partition.index): partition for partition in made})

    async def change_stream_config(
        self,
        name: str,
        changes: Mapping[str, str | None],
        *,
        replace_all: bool = False,
        validate_only: bool = False,
    ) -> Stream:
        """Set some settings of a stream, in force once this returns; None gives one back to its default.

        With `replace_all` the settings that are not named go back too.
        """
        return await self._uninterrupted(self._change_stream_config(name, changes, replace_all, validate_only))

    async def _change_stream_config(
        self, name: str, changes: Mapping[str, str | None], replace_all: bool, validate_only: bool
    ) -> Stream:
        async with self._metadata_lock:
            records = change_config(self._image, name, changes, replace_all=replace_all)
            if validate_only or not records:
                return self._image.by_name[StreamName(name)]
            await self._commit(records)
            stream = self._image.by_name[StreamName(name)]
            await self._reconfigure(_keys(stream))
            self.log.info("stream settings changed", stream=name, settings=dict(stream.overrides))
            return stream

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
        await self._uninterrupted(self._change_broker_config(broker, changes, replace_all, validate_only))

    async def _change_broker_config(
        self, broker: str, changes: Mapping[str, str | None], replace_all: bool, validate_only: bool
    ) -> None:
        self.check_broker_name(broker)
        async with self._metadata_lock:
            changes = self.dynamic.normal(changes, self._image.broker_configs.get(broker, _NO_SETTINGS))
            records = change_broker_config(self._image, broker, changes, replace_all=replace_all)
            if not records:
                return
            own, shared = _layers(apply(self._image, records[0]), self.identity)
            self.dynamic.check(own, shared)
            if validate_only:
                return
            await self._commit(records)
            before = _of_partitions(self.config)
            self.dynamic.take(own, shared)
            if before != _of_partitions(self.config):
                await self._reconfigure(tuple(self._partitions))
            self.log.info("broker settings changed", broker=broker or "all", settings=records[0].config)

    def check_broker_name(self, broker: str) -> None:
        """Raises InvalidRequestError for a broker other than this one; an empty name stands for all."""
        if broker not in ("", str(self.identity.broker_id)):
            raise InvalidRequestError(f"this is broker {self.identity.broker_id}, not {broker!r}")

    async def _reconfigure(self, keys: Iterable[Key]) -> None:
        """Partitions take the settings in force; many of them in several turns of the loop, so that nobody waits."""
        for number, key in enumerate(keys, 1):
            partition = self._partitions.get(key)
            if partition is not None:
                partition.configure(self._image.by_name[key[0]])
            if number % _PARTITIONS_PER_TURN == 0:
                await asyncio.sleep(0)

    async def delete_stream(self, name: str) -> None:
        """Delete a stream and all its records; once this returns its name is free and its files are out of the way."""
        await self._uninterrupted(self._delete_stream(name))

    async def _delete_stream(self, name: str) -> None:
        async with self._metadata_lock:
            records = delete_stream(self._image, name)
            stream = self._image.by_name[StreamName(name)]
            await self._commit(records)
            keys = _keys(stream)
            partitions = [self._partitions.pop(key) for key in keys if key in self._partitions]
            for key in keys:
                self._failed.pop(key, None)
            await self._store.discard(partitions, deleted_stream_error(name))
            self.groups.streams_deleted(frozenset({name}))
            self.log.info("stream deleted", stream=stream.name, id=str(stream.id))

    async def change_quotas(
        self, wanted: Sequence[tuple[QuotaEntity, Mapping[str, float | None]]], *, validate_only: bool = False
    ) -> list[LogboomError | None]:
        """Set (or, with None, remove) quotas of each entity by itself; what came of each, in force on return."""
        return await self._uninterrupted(self._change_quotas(wanted, validate_only))

    async def _change_quotas(
        self, wanted: Sequence[tuple[QuotaEntity, Mapping[str, float | None]]], validate_only: bool
    ) -> list[LogboomError | None]:
        async with self._metadata_lock:
            quotas, records = dict(self._image.quotas), list[MetadataRecord]()
            results: list[LogboomError | None] = []
            for number, (entity, changes) in enumerate(wanted):
                if number % _QUOTAS_PER_TURN == 0:
                    await asyncio.sleep(0)  # others get their turn
                try:
                    made = change_quotas(quotas, entity, changes, self._limits)
                except LogboomError as error:
                    results.append(error)
                    continue
                for record in made:
                    take_quotas(quotas, record)
                    records.append(record)
                results.append(None)
            if not validate_only:
                for start in range(0, len(records), _QUOTAS_PER_COMMIT):
                    await self._commit(records[start : start + _QUOTAS_PER_COMMIT])
                for told in self._quota_watchers if records else ():
                    told()
            return results

    async def new_producer_id(self) -> ProducerId:
        """A producer id that was never given before, by this broker or any before it on this data directory."""
        while self._next_producer_id >= self._producer_ids_end:
            await self._uninterrupted(self._more_producer_ids())
        given = self._next_producer_id
        self._next_producer_id = ProducerId(given + 1)
        return given

    async def _more_producer_ids(self) -> None:
        async with self._metadata_lock:
            if self._next_producer_id < self._producer_ids_end:
                return
            first = self._image.next_producer_id
            await self._commit(allocate_producer_ids(self._image, self.config.producer_id_block))
            self._next_producer_id, self._producer_ids_end = first, self._image.next_producer_id

    async def _commit(self, records: Sequence[MetadataRecord]) -> None:
        await self._metadata_log.commit(records)
        self.counters.metadata_commits += 1
        self._image = apply_all(self._image, records)
        self._shorten_metadata_soon()

    def _shorten_metadata_soon(self) -> None:
        running = self._snapshot is not None and not self._snapshot.done()
        if not running and self._metadata_log.is_long(self._image, self.config.metadata_snapshot_records):
            self._snapshot = asyncio.ensure_future(self._take_snapshot())
            self._tasks.add(self._snapshot)
            self._snapshot.add_done_callback(self._task_done)

    async def _take_snapshot(self) -> None:
        async with self._metadata_lock:
            try:
                about = await asyncio.to_thread(stream_ids_on_disk, self._disk, self._image)
                records = await self._metadata_log.take_snapshot(self._image, about)
            except (LogboomError, OSError) as error:
                # Nothing is lost: the records before are still there, and a later commit tries again.
                self.log.warning("the metadata log could not be shortened", reason=str(error))
                return
            self.log.info("metadata log shortened", records=records)

    async def _uninterrupted(self, work: Awaitable[Result]) -> Result:
        """Carry a change through even if whoever asked for it goes away in the middle."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._task_done)
        return await asyncio.shield(task)

    def _task_done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # seen, also when whoever asked is gone


def _keys(stream: Stream) -> list[Key]:
    return [(stream.name, PartitionIndex(index)) for index in range(stream.partitions)]


def _of_partitions(config: BrokerConfig) -> tuple[object, ...]:
    """The settings that every partition goes by."""
    return config.stream_defaults, config.max_decompressed_bytes, config.max_batch_records


def _layers(image: Image, identity: Identity) -> tuple[Mapping[str, str], Mapping[str, str]]:
    """What was set at run time for this broker, and for all."""
    configs = image.broker_configs
    return configs.get(str(identity.broker_id), _NO_SETTINGS), configs.get("", _NO_SETTINGS)


def _report_metadata(log: FilteringBoundLogger, found: Damage | Notice) -> None:
    log.warning("metadata log recovery", notice=str(found))
