"""One broker: composes the parts of this package, starts them in order and stops them in order.

The front ends call the parts, not the broker: `catalog` (streams, quotas, settings and their changes), `cluster_admin`,
`replicas` (the partitions), `publishing`, `groups`, `advisories`, `producer_ids`, `quotas`, `health`. This file wires
them, and fixes the order in which a committed change of metadata reaches them. Knows no protocol.

Life: `start` (recovers and leads everything), then any number of calls on the loop, then `stop`, once.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, Final

from structlog.typing import FilteringBoundLogger

from logboom.base.dynamic import DynamicSettings
from logboom.base.errors import LogboomError, NotLeaderError, StorageError
from logboom.base.ids import NO_BROKER, BrokerId, Epoch, PartitionIndex, StreamName
from logboom.base.ports import Disk
from logboom.base.units import SECOND_MS
from logboom.broker.advisories.service import Advisories
from logboom.broker.catalog import Catalog, ProducerIds
from logboom.broker.cluster import ClusterMember, ClusterParts
from logboom.broker.cluster_admin import ClusterAdmin
from logboom.broker.cluster_identity import check_cluster, discover_cluster, open_group
from logboom.broker.config import BrokerConfig
from logboom.broker.control.incarnations import KnownProcesses, noted_processes
from logboom.broker.control.registration import BrokerHooks
from logboom.broker.control.stream_commands import settings_layers
from logboom.broker.disk import clock_note, high_watermarks, maintenance
from logboom.broker.disk.data_dir import DataDir, Identity
from logboom.broker.disk.flusher import Flusher
from logboom.broker.disk.log_cleaner import LogCleaner
from logboom.broker.disk.log_manager import LogManager
from logboom.broker.disk.made_replicas import MadeReplicas
from logboom.broker.disk.rejections import WriteRejections
from logboom.broker.disk.scrubber import Scrubber
from logboom.broker.groups.service import GroupService
from logboom.broker.health import Health
from logboom.broker.internal_streams import InternalStreams
from logboom.broker.isolation import Isolation, send_clients_on
from logboom.broker.log_ends import LogEnds
from logboom.broker.metrics import Counters
from logboom.broker.partition.condition_check import WindowMemory
from logboom.broker.partition.id_memory import IdMemory
from logboom.broker.partition.read_cache import ReadCache
from logboom.broker.partition.reader_threads import ReaderThreads
from logboom.broker.partition.refused_producers import RefusedMemory
from logboom.broker.partition.services import LeadershipChanges, PartitionServices
from logboom.broker.peers import NoPeers, Peers
from logboom.broker.publishing import Publishing
from logboom.broker.quotas.clients import ClientQuotaManager
from logboom.broker.raft.group import OpenedGroup
from logboom.broker.rate_limited_log import RateLimitedLog
from logboom.broker.replica_manager import ReplicaManager
from logboom.broker.replicas import Replicas
from logboom.broker.replication.context import ReplicationContext
from logboom.broker.replication.ports import ClusterPorts
from logboom.broker.replication.service import ReplicationService
from logboom.broker.runtime import Runtime
from logboom.host import OsDisk
from logboom.metadata import Image, ImageDelta
from logboom.storage import OpenFiles

_NO_PEERS: Final = NoPeers()
_BACKGROUND: Final[tuple[tuple[maintenance.Work, Callable[[BrokerConfig], float]], ...]] = (
    (maintenance.checkpoints, lambda config: config.checkpoint_interval_s),
    (maintenance.background_syncs, lambda config: config.background_sync_interval_s),
    (maintenance.retention, lambda config: config.retention_check_interval_s),
)
_NO_LISTENERS: Final[Mapping[str, tuple[str, int]]] = MappingProxyType({})
LEAVE_S: Final = 5.0
"""How long a broker that stops waits for others to lead in its place."""


class Broker:
    """See the module. Everything is called on the loop it was started on."""

    def __init__(
        self,
        config: BrokerConfig,
        data_dir: DataDir,
        disk: Disk,
        opened: OpenedGroup,
        *,
        processes: KnownProcesses,
        peers: Peers,
        listeners: Mapping[str, tuple[str, int]],
        runtime: Runtime,
        log: FilteringBoundLogger,
    ) -> None:
        self.runtime = runtime
        self.peers = peers
        self.clock = clock = runtime.clock
        self.identity: Identity = data_dir.identity
        self.counters = Counters()
        self.log = log
        self._data_dir = data_dir
        self._disk = disk
        self.dynamic_settings = DynamicSettings(log.error)
        self._config = self.dynamic_settings.add("broker", config)
        config = self._config.now
        self._readers = ReaderThreads(runtime.workers.pool("read", config.read_threads), clock)
        self._read_cache = ReadCache(config.shared_read_bytes)
        self.window_memory = WindowMemory(self._config)
        self.id_memory = IdMemory(self._config, clock, self.counters)
        self.flusher = self._new_flusher(config)
        self.leadership_changes = LeadershipChanges()
        self.isolation = Isolation()
        self.open_files = OpenFiles(config.max_open_log_files)
        self.replicas = Replicas()
        self._log_ends = LogEnds(
            self.identity.broker_id, peers, self.replicas.find_by_id, lambda key: self.replica_manager.is_damaged(key)
        )
        self.cluster = self._cluster_member(opened, processes, peers, listeners)
        processes.follow(self.cluster.state, self._expelled)
        partitions, registration = self.cluster.partitions, self.cluster.registration
        ports = ClusterPorts(peers, isr=partitions, losses=partitions, own_epoch=lambda: registration.own_epoch)
        self.replication = self._replication_service(ports)
        self.replica_manager = self._new_replica_manager(ports)
        self.cleaner = LogCleaner(
            self.replicas.__iter__, self.flusher, self._config, runtime=runtime, counters=self.counters, log=log
        )
        self.scrubber = self._new_scrubber(opened)
        self.health = Health(self.replicas, self.flusher, self._readers, disk, data_dir.path, self._config)
        self.catalog = Catalog(
            self.cluster.state,
            self.cluster.channel,
            self.cluster.view,
            broker_id=self.identity.broker_id,
            ids=runtime.ids,
            log=log,
        )
        self.cluster_admin = ClusterAdmin(self.cluster.channel)
        self.producer_ids = ProducerIds(self.catalog, self._config)
        self.quotas = self._quota_manager(config)
        self.catalog.watch_quotas(self.quotas.update)  # before any front end does: front ends then ask for meters again
        self.publishing = Publishing(self.quotas, self.flusher)
        internal_streams = _internal_streams_of(self)
        self.groups = GroupService(self._config, internal_streams, self.cluster.registration, runtime=runtime, log=log)
        self.advisories = _advisories_of(self, internal_streams)
        self.expelled: asyncio.Future[LogboomError] = asyncio.get_running_loop().create_future()
        """Done with the reason once the cluster has expelled this process, which has to end then."""
        self._background: list[asyncio.Task[None]] = []
        self._config.subscribe(self._settings_changed)

    def _new_flusher(self, config: BrokerConfig) -> Flusher:
        return Flusher(
            runtime=self.runtime,
            threads=config.flush_threads,
            counters=self.counters,
            log=self.log,
            on_failure=self._log_dir_failed,
            staged_bytes_max=config.max_staged_bytes,
            inline=config.inline_flush and self._disk.start_async_syncs(),
        )

    def _cluster_member(
        self,
        opened: OpenedGroup,
        processes: KnownProcesses,
        peers: Peers,
        listeners: Mapping[str, tuple[str, int]],
    ) -> ClusterMember:
        return ClusterMember(
            ClusterParts(
                identity=self.identity,
                processes=processes,
                disk=self._disk,
                config=self._config,
                dynamic_settings=self.dynamic_settings,
                flusher=self.flusher,
                peers=peers,
                listeners=listeners,
                counters=self.counters,
                ask_ends=self._log_ends.ask,
                runtime=self.runtime,
                log=self.log,
            ),
            opened,
            BrokerHooks(
                lease_changed=self._lease_changed,
                expelled=self._expelled,
                disk_hangs=lambda: self.flusher.busy_s >= self._config.now.disk_hang_s,
            ),
        )

    def _replication_service(self, cluster: ClusterPorts) -> ReplicationService:
        context = ReplicationContext(
            cluster,
            self.identity.broker_id,
            find=self.replicas.find_replica,
            metadata=self.cluster.state,
            config=self._config,
            runtime=self.runtime,
            counters=self.counters,
            log=self.log,
            limited_log=RateLimitedLog(self.log, self.clock, Counter()),
        )
        service = ReplicationService(context, has_room=lambda: not self.flusher.backpressured)
        self.flusher.on_capacity(service.room_came)
        return service

    def _new_replica_manager(self, cluster: ClusterPorts) -> ReplicaManager:
        services = PartitionServices(
            broker_id=self.identity.broker_id,
            clock=self.clock,
            settled_clock=self.runtime.settled_clock,
            flusher=self.flusher,
            readers=self._readers,
            counters=self.counters,
            rejections=WriteRejections(self.counters, self.clock, self.log),
            config=self._config,
            read_cache=self._read_cache,
            window_memory=self.window_memory,
            id_memory=self.id_memory,
            refused_memory=RefusedMemory(),
            open_files=self.open_files,
            log=self.log,
            leadership_changes=self.leadership_changes,
            replication=self.replication,
            standing=self.cluster.registration,
        )
        threads = self._config.now.open_threads
        return ReplicaManager(
            self.replicas,
            LogManager(
                self._disk,
                self.runtime,
                self.flusher,
                services,
                self.log,
                open_threads=threads,
                keeps_moved=self.identity.generation > 0,
            ),
            self.identity.broker_id,
            made=MadeReplicas(self._disk, self.flusher, self.log),
            flusher=self.flusher,
            log=self.log,
            own_epoch=cluster.own_epoch,
            losses=cluster.losses,
        )

    def _new_scrubber(self, opened: OpenedGroup) -> Scrubber:
        return Scrubber(
            self.replicas,
            self._disk,
            self.flusher,
            self._config,
            check_metadata=opened.files.check,
            runtime=self.runtime,
            counters=self.counters,
            log=self.log,
        )

    def _quota_manager(self, config: BrokerConfig) -> ClientQuotaManager:
        return ClientQuotaManager(
            lambda: self.catalog.quotas,
            self.clock,
            sample_ms=round(config.quota_window_size_s * 1_000),
            sample_count=config.quota_window_num,
        )

    @property
    def config(self) -> BrokerConfig:
        """The settings in force now."""
        return self._config.now

    @property
    def controller(self) -> BrokerId:
        """The broker that decides about the metadata; NO_BROKER where none is known."""
        controller = self.cluster.view.controller
        return NO_BROKER if controller is None else controller

    # --- start --------------------------------------------------------------------------------------------------

    @classmethod
    async def start(
        cls,
        config: BrokerConfig,
        *,
        runtime: Runtime,
        log: FilteringBoundLogger,
        open_disk: Callable[[str], Disk] = OsDisk,
        peers: Peers = _NO_PEERS,
        listeners: Mapping[str, tuple[str, int]] = _NO_LISTENERS,
        founds: bool = True,
    ) -> "Broker":
        """Take the data directory, find the controller, recover what is in the directory, lead and follow.

        `peers`: the way to other brokers. `listeners`: where clients reach this one, by name. `founds`: whether an
        empty directory becomes that of a new cluster, where no broker to join is named. Waits for a controller as long
        as it takes.

        Raises DataDirError (in use, another's, no data directory), FormatVersionError, StorageError, OSError, and what
        others say to a broker that cannot be part of their cluster: PeerRefusedError, DuplicateBrokerError,
        UnknownBrokerError where it was removed.
        """
        disk = open_disk(str(config.data_dir))
        data_dir = await asyncio.to_thread(
            DataDir.open,
            config.data_dir,
            disk,
            broker_id=BrokerId(config.broker_id),
            cluster_id=config.cluster_id,
            joins=bool(config.join),
            founds=founds,
            ids=runtime.ids,
        )
        if data_dir.unknown_entries:
            log.warning("unknown entries in the data directory left in place", names=data_dir.unknown_entries)
        try:
            noted = await asyncio.to_thread(noted_processes, disk)
            processes = KnownProcesses(data_dir.identity.broker_id, noted)
            peers.know_processes(processes.registered, processes.check_noted)
            peers.identify(data_dir.identity.as_peer)
            if not data_dir.identity.cluster_id:
                cluster_name = await discover_cluster(peers, config, log)
                await asyncio.to_thread(data_dir.join_cluster, cluster_name)
                peers.identify(data_dir.identity.as_peer)
            opened = await asyncio.to_thread(open_group, disk, data_dir.identity, log, joins=bool(config.join))
            await asyncio.to_thread(data_dir.note_metadata)
            if config.join and opened.is_alone:
                await check_cluster(peers, data_dir.identity, config)
            broker = cls(
                config,
                data_dir,
                disk,
                opened,
                processes=processes,
                peers=peers,
                listeners=listeners,
                runtime=runtime,
                log=log,
            )
            await broker._begin()
        except BaseException:  # a cancelled start too: the next one must not find the directory locked
            data_dir.close()
            raise
        return broker

    async def _begin(self) -> None:
        try:
            settled_clock = self.runtime.settled_clock
            await clock_note.resume(self._disk, settled_clock, self.log)
            await self.cluster.start()
            await self.cluster.register()
            image, index = self.cluster.state.begin(), self.cluster.state.applied_index
            self.dynamic_settings.take(*settings_layers(image, str(self.identity.broker_id)))
            self.replication.start()
            marks = await asyncio.to_thread(high_watermarks.load, self._disk, self.log)
            await self.replica_manager.open(image, marks, index, self.cluster.state.grown_after)
            self._log_ends.serve()
            self.advisories.start()
            await self.cluster.adopt_streams(self._led_here)
            await self.cluster.state.begin_following(self)
            for work, interval_s in _BACKGROUND:
                pause = maintenance.Pause(self._config, interval_s)
                self._start_background(work(self.replicas.__iter__, self.flusher, pause, self.log))
            self._start_background(self.cleaner.run())
            self._start_background(self.scrubber.run())
            pause = maintenance.Pause(self._config, lambda config: config.high_watermark_checkpoint_ms / SECOND_MS)
            marks_now = partial(high_watermarks.marks_of, self.replicas, self.replicas.marks_of_failed)
            self._start_background(high_watermarks.keep_saved(self._disk, marks_now, pause, self.log))
            pause = maintenance.Pause(self._config, lambda config: config.lease_ms / SECOND_MS)
            registration = self.cluster.registration
            holds_lease = lambda: registration.holds_lease  # noqa: E731
            self._start_background(send_clients_on(self.replicas.__iter__, holds_lease, pause, self.isolation))
            pause = maintenance.Pause(self._config, lambda config: config.disk_hang_s / maintenance.LOOKS_PER_HANG)
            self._start_background(maintenance.watch_disk_stall(lambda: self.health.disk_busy_s, pause, self.log))
            pause = maintenance.Pause(self._config, lambda config: config.retention_check_interval_s)
            self._start_background(maintenance.watch_wall_clock(settled_clock.held_back_ms, pause, self.log))
            self._start_background(clock_note.keep_noted(self._disk, settled_clock, self.log))
            await self.cluster.serve()
            await self.groups.start()  # may create the stream of offsets, so it comes after the replicas
        except BaseException:  # a cancelled start too: its threads end and its files are closed
            await self._close(StorageError("the broker did not start"))
            raise
        self.log.info(
            "broker started",
            broker_id=self.identity.broker_id,
            cluster_id=self.identity.cluster_id,
            streams=len(self.catalog.streams()),
            partitions=len(self.replicas),
            data_dir=str(self._data_dir.path),
        )

    def _start_background(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        task.add_done_callback(self._background_ended)
        self._background.append(task)

    def _background_ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (fault := task.exception()) is not None:
            self.log.error("background task failed on an internal error", exc_info=fault)

    # --- following the metadata (metadata_state.MetadataFollower) ------------------------------------------------

    async def prepare(self, delta: ImageDelta) -> None:
        """Before the commit: directories of new partitions."""
        await self.replica_manager.prepare(delta)

    async def abandon(self, delta: ImageDelta) -> None:
        """The commit failed."""
        await self.replica_manager.abandon(delta)

    async def apply(self, delta: ImageDelta, index: int) -> None:
        """After the commit. Settings come first, because partitions read them; groups follow the partitions' roles."""
        if delta.broker_configs_changed:
            await self._apply_settings(delta.after)
        self.groups.let_go(delta)
        await self.replica_manager.apply(delta, index)
        if delta.before.brokers != delta.after.brokers:
            self.replication.brokers_changed()
        self.groups.follow(delta)

    async def _apply_settings(self, image: Image) -> None:
        before = _partition_settings(self.config)
        self.dynamic_settings.take(*settings_layers(image, str(self.identity.broker_id)))
        if _partition_settings(self.config) != before:
            await self.replica_manager.reconfigure()

    def _settings_changed(self, config: BrokerConfig) -> None:
        self.groups.configure(config.groups)
        self.flusher.limit_staged(config.max_staged_bytes)
        self.open_files.limit = config.max_open_log_files

    def _log_dir_failed(self, error: StorageError) -> None:
        self.log.critical("log dir offline", path=str(self._data_dir.path), reason=str(error))
        self.replica_manager.go_offline(error)
        self.cluster.log_dir_failed(error)

    def _lease_changed(self, held: bool) -> None:
        self.replica_manager.lease_changed(held)
        self.groups.lease_changed(held=held)
        if held:
            self.isolation.missed(0)

    def _expelled(self, error: LogboomError) -> None:
        self.log.critical("the cluster does not know this process any more", reason=str(error))
        self.replica_manager.refuse_appends(NotLeaderError(str(error)))
        if not self.expelled.done():
            self.expelled.set_result(error)

    def _led_here(self, name: StreamName, index: PartitionIndex) -> Epoch:
        """The epoch in which this broker leads a partition; that of no leadership where it cannot be opened."""
        try:
            return self.replicas.find(name, index).leader_epoch
        except LogboomError:
            return Epoch(0)

    # --- stop ---------------------------------------------------------------------------------------------------

    async def leave(self) -> None:
        """Before the front ends close: have others lead what this broker leads, as far as there are others."""
        await self.cluster.leave(LEAVE_S)

    async def stop(self) -> None:
        """Take nothing new, flush and answer what was taken, close every log cleanly, give the directory back."""
        await self.groups.stop()
        await self.advisories.stop()
        await self.cluster.drain()
        await self._close(NotLeaderError("the broker is shutting down"))
        self.log.info("broker stopped")

    async def _close(self, reason: LogboomError) -> None:
        for task in self._background:
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)
        await self.scrubber.stop()
        await self.replication.stop()
        self.replica_manager.refuse_appends(reason)
        await self.cluster.registration.end_lease()
        await self.cluster.stop()
        await self.flusher.stop()
        marks = high_watermarks.marks_of(self.replicas, self.replicas.marks_of_failed)
        await high_watermarks.save_if_moved(self._disk, marks, {}, self.log)
        await clock_note.try_save(self._disk, self.runtime.settled_clock, self.log)
        await self.replica_manager.close(reason)
        if self.flusher.failure is None:
            await asyncio.to_thread(self.cluster.closed_cleanly)
        self._readers.shutdown()
        self._read_cache.close()
        self._disk.stop_async_syncs()
        self._data_dir.close()


def _internal_streams_of(broker: Broker) -> InternalStreams:
    return InternalStreams(
        broker.identity.broker_id,
        metadata=broker.cluster.state,
        ensure=broker.catalog.ensure_internal_stream,
        find_partition=broker.replicas.find,
        found_damage=broker.replica_manager.found_damage,
    )


def _advisories_of(broker: Broker, streams: InternalStreams) -> Advisories:
    return Advisories(
        streams,
        lambda: broker.config.groups.offsets_replication_factor,
        peers=broker.peers,
        runtime=broker.runtime,
        counters=broker.counters,
        log=broker.log,
    )


def _partition_settings(config: BrokerConfig) -> tuple[object, ...]:
    """The settings that every partition goes by."""
    return config.stream_defaults, config.max_decompressed_bytes, config.max_batch_records
