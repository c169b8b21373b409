"""Replication of one broker: the port of its partitions, and its handlers at the port to other brokers."""

import asyncio
from collections.abc import Callable, Collection
from typing import TypeAlias

from logboom.base.ids import BrokerId
from logboom.broker.partition.replication_port import StreamIdPartition
from logboom.broker.peers import FrameKind
from logboom.broker.replication.context import ReplicationContext
from logboom.broker.replication.fetcher import Fetcher
from logboom.broker.replication.isr import IsrKeeper
from logboom.broker.replication.serving import FetchServing
from logboom.broker.replication.throttle import ReplicationThrottle
from logboom.replication.following import Fetch, ReportDurableEnd

_Source: TypeAlias = tuple[BrokerId, bool]
"""A leader, and whether it is observed."""


class ReplicationService:
    """`partition.replication_port.Replication`. Life: made before the partitions, `start`ed with them, `stop`ped before
    their logs close. On the loop."""

    def __init__(
        self,
        context: ReplicationContext,
        has_room: Callable[[], bool],
    ) -> None:
        """`has_room`: whether more may wait to be written to the disk; if not, `room_came` is called once it may."""
        self._context = context
        self._has_room = has_room
        self._fetchers: dict[_Source, Fetcher] = {}
        self._source_of: dict[StreamIdPartition, _Source] = {}
        self._held: dict[StreamIdPartition, Fetch] = {}
        """Fetches that wait for the throttle."""
        self._held_timer: asyncio.TimerHandle | None = None
        config = context.config
        self._fetching = _throttle(context, "follower", lambda: config.now.follower_throttled_bytes_per_s)
        sending = _throttle(context, "leader", lambda: config.now.leader_throttled_bytes_per_s)
        self._serving = FetchServing(context, sending)
        self._isr = IsrKeeper(context, self._serving.confirm, self._serving.heard_of)

    def start(self) -> None:
        """Serve followers from now on."""
        peers = self._context.cluster.peers
        peers.serve_in_parts(FrameKind.FETCH, self._serving.fetch)
        peers.serve_posts(FrameKind.DURABLE_END, self._serving.durable_ends)

    # --- partitions that follow ---------------------------------------------------------------------------------

    def fetch(self, key: StreamIdPartition, request: Fetch) -> None:
        """Ask the leader for a partition."""
        assignment = self._context.metadata.image.assignment(key.stream, key.index)
        observes = assignment is not None and self._context.broker_id in assignment.observers
        source, before = (request.leader, observes), self._source_of.get(key)
        if before is not None and before != source:
            self._fetcher(before).drop(key)
        self._source_of[key] = source
        self._held.pop(key, None)
        if self._fetching.holds(key, self._context.broker_id):
            self._fetch_throttled(key, source, request)
        else:
            self._fetcher(source).fetch(key, request)

    def _fetch_throttled(self, key: StreamIdPartition, source: _Source, request: Fetch) -> None:
        """Ask for it when it is its turn; those that came first go first."""
        wait_s = self._fetching.wait_s()
        if wait_s > 0 or self._held:
            self._held[key] = request
            if self._held_timer is None:
                self._held_timer = asyncio.get_running_loop().call_later(wait_s, self._release)
            return
        self._fetching.expect(key, self._context.config.now.replica_fetch_partition_bytes)
        self._fetcher(source).fetch(key, request)

    def _release(self) -> None:
        self._held_timer = None
        held, self._held = self._held, {}
        for key, request in held.items():
            partition = self._context.find_or_none(key)
            if partition is not None and partition.role.follower.leader == request.leader:
                self.fetch(key, request)

    def room_came(self) -> None:
        """More may wait to be written."""
        for fetcher in self._fetchers.values():
            fetcher.go_on()

    def _records_came(self, key: StreamIdPartition, size_bytes: int) -> None:
        if self._fetching.came(key, size_bytes):
            self._context.counters.throttled_bytes_in += size_bytes

    def report(self, key: StreamIdPartition, end: ReportDurableEnd) -> None:
        """Report to the leader of a partition how far it is synced here."""
        held = self._held.get(key)
        if held is not None and held.epoch == end.epoch:
            self._held[key] = held._replace(durable_end=end.durable_end)
        source = self._source_of.get(key)
        if source is not None and source[0] == end.leader:
            self._fetcher(source).report(key, end)

    def quiet_s(self, key: StreamIdPartition) -> float | None:
        """When the leader of a partition that is observed here was last known to have nothing new of it."""
        source = self._source_of.get(key)
        return None if source is None else self._fetcher(source).quiet_s(key)

    def _fetcher(self, source: _Source) -> Fetcher:
        fetcher = self._fetchers.get(source)
        if fetcher is None:
            leader, observer = source
            fetcher = self._fetchers[source] = Fetcher(
                self._context, leader, observer=observer, records_came=self._records_came, has_room=self._has_room
            )
        return fetcher

    # --- partitions that lead -----------------------------------------------------------------------------------

    def leads(self, key: StreamIdPartition, leads: bool) -> None:
        """This broker begins or ends to lead a partition that has followers."""
        self._isr.leads(key, leads)
        self._serving.moved(key)

    def copies(self, key: StreamIdPartition, brokers: Collection[BrokerId]) -> None:
        """These brokers have a copy of a partition that this broker leads, and no others."""
        self._serving.copies(key, brokers)

    def written(self, key: StreamIdPartition) -> None:
        """Records of a partition that this broker leads were just written, on the loop."""
        self._serving.written(key)

    def moved(self, key: StreamIdPartition) -> None:
        """A partition that this broker leads has more records for its followers, or another beginning."""
        self._serving.moved(key)

    def mark_moved(self, key: StreamIdPartition) -> None:
        """A partition that this broker leads has another high-water mark."""
        self._serving.mark_moved(key)

    def propose(self, key: StreamIdPartition) -> None:
        """A leader has a proposal for the controller."""
        self._isr.propose(key)

    def await_join(self, key: StreamIdPartition) -> None:
        """A leader holds its high-water mark for a follower that is to join."""
        self._isr.await_join(key)

    def forget(self, key: StreamIdPartition) -> None:
        """A partition is gone from this broker."""
        source = self._source_of.pop(key, None)
        if source is not None:
            self._fetcher(source).drop(key)
        self._held.pop(key, None)
        self._fetching.forget(key)
        self._isr.forget(key)
        self._serving.forget(key)

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


def _throttle(context: ReplicationContext, side: str, bytes_per_s: Callable[[], int | None]) -> ReplicationThrottle:
    """Of the replicas that the setting of the stream names, on the side of the leader or the follower."""
    return ReplicationThrottle(
        f"{side}.replication.throttled.replicas",
        bytes_per_s,
        context.broker_id,
        context.metadata,
        context.runtime.clock,
    )
