"""Replication of one broker: the port of its partitions, and its handlers at the port to other brokers."""

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias

from structlog.typing import FilteringBoundLogger

from logboom.base.dynamic import Current
from logboom.base.errors import LogboomError
from logboom.base.ids import BrokerEpoch, BrokerId
from logboom.broker.config import BrokerConfig
from logboom.broker.metrics import Counters
from logboom.broker.partition.replica import Partition
from logboom.broker.partition.replication_port import ReplicaKey
from logboom.broker.peers import FrameKind
from logboom.broker.rate_limited_log import RateLimitedLog
from logboom.broker.replication.fetcher import Fetcher
from logboom.broker.replication.isr import IsrKeeper
from logboom.broker.replication.ports import ClusterPorts
from logboom.broker.replication.serving import FetchServing
from logboom.broker.replication.throttle import ReplicationThrottle
from logboom.broker.runtime import Runtime
from logboom.metadata import Image
from logboom.replication.following import Fetch, ReportDurableEnd

_UNKNOWN = BrokerEpoch(-1)
_Source: TypeAlias = tuple[BrokerId, bool]
"""A leader, and whether it is observed."""


class ReplicationService:
    """`partition.replication_port.Replication`. Life: made before the partitions, `start`ed with them, `stop`ped before
    their logs close. On the loop."""

    def __init__(
        self,
        cluster: ClusterPorts,
        *,
        find: Callable[[ReplicaKey], Partition],
        has_room: Callable[[], bool],
        image: Callable[[], Image],
        broker_id: BrokerId,
        config: Current[BrokerConfig],
        runtime: Runtime,
        counters: Counters,
        log: FilteringBoundLogger,
    ) -> None:
        """`find` raises LogboomError for a partition that is not here. `has_room`: whether more may wait to be written
        to the disk; `room_came` follows where it has not. `image`: the metadata in force."""
        self._cluster = cluster
        self._find = find
        self._has_room = has_room
        self._image = image
        self._config = config
        self._runtime = runtime
        self._log = log
        self._limited_log = RateLimitedLog(log, runtime.clock, Counter())
        self._fetchers: dict[_Source, Fetcher] = {}
        self._source_of: dict[ReplicaKey, _Source] = {}
        self._broker_id = broker_id
        self._counters = counters
        self._held: dict[ReplicaKey, Fetch] = {}
        """Fetches that wait for the throttle."""
        self._held_timer: asyncio.TimerHandle | None = None
        sending = ReplicationThrottle(
            "leader.replication.throttled.replicas",
            lambda: config.now.leader_throttled_bytes_per_s,
            broker_id,
            image,
            runtime.clock,
        )
        self._fetching = ReplicationThrottle(
            "follower.replication.throttled.replicas",
            lambda: config.now.follower_throttled_bytes_per_s,
            broker_id,
            image,
            runtime.clock,
        )
        self._serving = FetchServing(
            find, self._registered, runtime.clock, counters, config.now.replica_disk_reads, sending, log
        )
        self._isr = IsrKeeper(
            cluster.isr,
            find,
            self._serving.confirm,
            self._serving.heard_of,
            own_epoch=cluster.own_epoch,
            registered=self._registered,
            config=config,
            clock=runtime.clock,
            ids=runtime.ids,
            log=log,
            limited_log=self._limited_log,
        )

    def start(self) -> None:
        """Serve followers from now on."""
        self._cluster.peers.serve_in_parts(FrameKind.FETCH, self._serving.fetch)
        self._cluster.peers.serve_posts(FrameKind.DURABLE_END, self._serving.durable_ends)

    def _registered(self, broker: BrokerId) -> BrokerEpoch:
        found = self._image().brokers.get(broker)
        return _UNKNOWN if found is None else found.epoch

    # --- partitions that follow ---------------------------------------------------------------------------------

    def fetch(self, key: ReplicaKey, request: Fetch) -> None:
        """Ask the leader for a partition."""
        assignment = self._image().assignment(*key)
        observes = assignment is not None and self._broker_id in assignment.observers
        source, before = (request.leader, observes), self._source_of.get(key)
        if before is not None and before != source:
            self._fetcher(before).drop(key)
        self._source_of[key] = source
        self._held.pop(key, None)
        if self._fetching.holds(key, self._broker_id):
            self._fetch_throttled(key, source, request)
        else:
            self._fetcher(source).fetch(key, request)

    def _fetch_throttled(self, key: ReplicaKey, source: _Source, request: Fetch) -> None:
        """Ask for it when it is its turn; those that came first go first."""
        wait_s = self._fetching.wait_s()
        if wait_s > 0 or self._held:
            self._held[key] = request
            if self._held_timer is None:
                self._held_timer = asyncio.get_running_loop().call_later(wait_s, self._release)
            return
        self._fetching.expect(key, self._config.now.replica_fetch_partition_bytes)
        self._fetcher(source).fetch(key, request)

    def _release(self) -> None:
        self._held_timer = None
        held, self._held = self._held, {}
        for key, request in held.items():
            partition = self._found(key)
            if partition is not None and partition.role.follower.leader == request.leader:
                self.fetch(key, request)

    def room_came(self) -> None:
        """More may wait to be written."""
        for fetcher in self._fetchers.values():
            fetcher.go_on()

    def _records_came(self, key: ReplicaKey, size_bytes: int) -> None:
        if self._fetching.came(key, size_bytes):
            self._counters.throttled_bytes_in += size_bytes

    def report(self, key: ReplicaKey, end: ReportDurableEnd) -> None:
        """Report to the leader of a partition how far it is synced here."""
        held = self._held.get(key)
        if held is not None and held.epoch == end.epoch:
            self._held[key] = replace(held, durable_end=end.durable_end)
        source = self._source_of.get(key)
        if source is not None and source[0] == end.leader:
            self._fetcher(source).report(key, end)

    def quiet_s(self, key: ReplicaKey) -> float | None:
        """When the leader of a partition that is observed here was last known to have nothing new of it."""
        source = self._source_of.get(key)
        return None if source is None else self._fetcher(source).quiet_s(key)

    def _fetcher(self, source: _Source) -> Fetcher:
        fetcher = self._fetchers.get(source)
        if fetcher is None:
            leader, observer = source
            fetcher = self._fetchers[source] = Fetcher(
                leader,
                self._cluster.peers,
                observer=observer,
                clock=self._runtime.clock,
                own_epoch=self._cluster.own_epoch,
                find=self._found,
                records_came=self._records_came,
                has_room=self._has_room,
                config=self._config,
                ids=self._runtime.ids,
                log=self._log,
                limited_log=self._limited_log,
            )
        return fetcher

    def _found(self, key: ReplicaKey) -> Partition | None:
        try:
            return self._find(key)
        except LogboomError:
            return None

    # --- partitions that lead -----------------------------------------------------------------------------------

    def leads(self, key: ReplicaKey, leads: bool) -> None:
        """This broker begins or ends to lead a partition that has followers."""
        self._isr.leads(key, leads)
        self._serving.moved(key)

    def moved(self, key: ReplicaKey) -> None:
        """A partition that this broker leads has something new for its followers."""
        self._serving.moved(key)

    def propose(self, key: ReplicaKey) -> None:
        """A leader has a proposal for the controller."""
        self._isr.propose(key)

    def brokers_changed(self) -> None:
        """The metadata says something else of the brokers than before."""
        self._isr.look_now()

    async def stop(self) -> None:
        """Ask, propose and serve nothing more."""
        self._serving.stop()
        if self._held_timer is not None:
            self._held_timer.cancel()
        self._held.clear()
        await asyncio.gather(self._isr.stop(), *(fetcher.stop() for fetcher in self._fetchers.values()))
