"""Groups on a cluster of whole brokers, in simulated time: they come, are cut off, stop and come back."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import structlog
from tests.groups.harness import kind
from tests.groups.test_service import G, commit, formed, heartbeat, join, offset_of, until
from tests.support import simulated
from tests.support.peers import MemoryNetwork
from tests.support.simulated import machine

from logboom.base.ids import BrokerId
from logboom.broker.broker import Broker
from logboom.broker.config import BrokerConfig
from logboom.broker.groups.offsets_stream import OFFSETS_STREAM
from logboom.groups import Heartbeat, partition_of_group
from logboom.groups.errors import CoordinatorNotAvailableError, NotCoordinatorError
from logboom.metadata.assignment import Assignment

PARTITIONS = 6
QUICK: dict[str, Any] = {
    "groups": {"initial_rebalance_delay_ms": 0, "session_timeout_min_ms": 1, "offsets_partitions": PARTITIONS},
    "leader_rebalance_interval_ms": 5_000,
    "stream_defaults": {"min_insync_replicas": 2},
}
GROUPS = [f"g{number}" for number in range(20)]


class Cluster:
    """Brokers of which the first founds the cluster."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.network = MemoryNetwork()
        self.brokers: dict[int, Broker] = {}

    async def start(self, *broker_ids: int) -> None:
        await asyncio.gather(*map(self._start, broker_ids))

    async def _start(self, broker_id: int) -> None:
        runtime, disk_of = machine()
        others = tuple(f"memory:{one}" for one in (1, 2, 3) if one != broker_id)
        self.brokers[broker_id] = await Broker.start(
            BrokerConfig(
                data_dir=self.path / str(broker_id), broker_id=broker_id, join=() if broker_id == 1 else others, **QUICK
            ),
            runtime=runtime,
            log=structlog.wrap_logger(structlog.testing.CapturingLogger()),
            open_disk=disk_of,
            peers=self.network.join(broker_id),
        )

    async def stop(self, broker_id: int) -> None:
        """In good order: others take over first."""
        broker = self.brokers.pop(broker_id)
        await broker.leave()
        await broker.stop()
        self.network.leave(broker_id)

    def isolate(self, broker_id: int) -> Broker:
        """Nobody but clients reaches the broker any more."""
        for other in self.brokers:
            if other != broker_id:
                self.network.cut(broker_id, other)
        return self.brokers[broker_id]

    def assignments(self, seen_by: int) -> tuple[Assignment, ...]:
        stream = self.brokers[seen_by].catalog.image.by_name.get(OFFSETS_STREAM)
        return () if stream is None else stream.assignments

    def coordinator(self, group_id: str, seen_by: int) -> int:
        return self.assignments(seen_by)[partition_of_group(group_id, PARTITIONS)].leader

    def minima(self, seen_by: int) -> set[int]:
        """`min.insync.replicas` of the offsets, as the leaders among their partitions have it."""
        leaders = [
            self.brokers[one.leader].replicas.find(OFFSETS_STREAM, index)
            for index, one in enumerate(self.assignments(seen_by))
        ]
        return {partition.config.min_insync_replicas for partition in leaders}

    async def in_sync(self, brokers: int, seen_by: int) -> None:
        """Wait until every partition of the offsets has so many replicas in sync."""
        await until(lambda: {len(one.isr) for one in self.assignments(seen_by)} == {brokers})

    async def agree(self) -> None:
        """Wait until all know the same metadata."""
        await until(lambda: len({one.cluster.state.applied_index for one in self.brokers.values()}) == 1)

    async def commit(self, group_id: str, offset: int, seen_by: int) -> None:
        """Commit as a client does: look for the coordinator, and look again when told so."""
        while True:
            leader = self.coordinator(group_id, seen_by)
            if leader in self.brokers:
                reply = await self.brokers[leader].groups.commit(commit(offset, group_id=group_id))
                if reply.results == (None,):
                    return
            await asyncio.sleep(0.05)

    async def check(self, offset: int, seen_by: int) -> None:
        """Every group has this offset, and only its coordinator says so."""
        for group_id in GROUPS:
            broker = self.brokers[self.coordinator(group_id, seen_by)]
            await broker.groups.loaded()
            assert offset_of(broker, group_id) == offset


@asynccontextmanager
async def three_brokers(path: Path) -> AsyncIterator[Cluster]:
    """The first was alone for a while, and made the stream of offsets; it has three replicas now, spread evenly."""
    cluster = Cluster(path)
    try:
        await cluster.start(1)
        await cluster.brokers[1].catalog.create_stream("clicks", config={"min.insync.replicas": "1"})
        await cluster.commit(GROUPS[0], 1, seen_by=1)
        assert cluster.minima(seen_by=1) == {1}, "the default of streams, which is 2, would keep it from committing"
        await cluster.start(2, 3)
        await cluster.in_sync(3, seen_by=1)
        await until(lambda: cluster.minima(seen_by=1) == {2})
        await until(lambda: Counter(one.leader for one in cluster.assignments(1)) == {1: 2, 2: 2, 3: 2})
        await cluster.agree()
        yield cluster
    finally:
        cluster.network.heal()
        for broker in cluster.brokers.values():
            await broker.stop()


def test_the_offsets_of_the_first_broker_get_replicas_when_others_come(tmp_path: Path) -> None:
    async def body() -> None:
        async with three_brokers(tmp_path) as cluster:
            for group_id in GROUPS:
                await cluster.commit(group_id, 5, seen_by=2)
            await cluster.check(5, seen_by=3)
            listed = [group.group_id for broker in cluster.brokers.values() for group in broker.groups.overview()]
            assert sorted(listed) == sorted(GROUPS), "each by one broker"

    simulated.run(body)


def test_groups_go_on_when_their_offsets_go_back_to_one_replica(tmp_path: Path) -> None:
    async def body() -> None:
        async with three_brokers(tmp_path) as cluster:
            for index in range(PARTITIONS):
                await cluster.brokers[1].cluster_admin.reassign(OFFSETS_STREAM, index, [1])
            await until(lambda: {one.replicas for one in cluster.assignments(1)} == {(BrokerId(1),)})
            for group_id in GROUPS:
                await cluster.commit(group_id, 7, seen_by=1)
            await cluster.check(7, seen_by=1)

    simulated.run(body)


def test_groups_go_on_when_their_coordinator_is_cut_off(tmp_path: Path) -> None:
    async def body() -> None:
        async with three_brokers(tmp_path) as cluster:
            for group_id in GROUPS:
                await cluster.commit(group_id, 5, seen_by=1)
            dead = cluster.coordinator(G, seen_by=1)
            seen_by = next(one for one in cluster.brokers if one != dead)
            member = await formed(cluster.brokers[dead])
            waits = asyncio.create_task(cluster.brokers[dead].groups.join(join()))
            await asyncio.sleep(0.01)
            cluster.isolate(dead)
            late = asyncio.create_task(cluster.brokers[dead].groups.commit(commit(9, group_id=G)))
            await until(lambda: cluster.coordinator(G, seen_by) not in (-1, dead))
            assert await heartbeat(cluster.brokers[dead], member) is CoordinatorNotAvailableError, "it has no lease"
            for group_id in GROUPS:
                await cluster.commit(group_id, 6, seen_by)
            await cluster.check(6, seen_by)
            after = cluster.brokers[cluster.coordinator(G, seen_by)]
            beat = Heartbeat(group_id=G, generation=member.generation, member_id=member.member_id)
            assert (await after.groups.heartbeat(beat)).error is None, "members work on"
            assert kind((await waits).error) is NotCoordinatorError
            assert kind((await late).results[0]) is not None
            cluster.network.heal()
            await cluster.in_sync(3, seen_by)
            await cluster.check(6, seen_by)
            await until(lambda: cluster.coordinator(G, dead) == cluster.coordinator(G, seen_by))

    simulated.run(body)


def test_a_stop_in_good_order_costs_no_commit_its_answer(tmp_path: Path) -> None:
    async def body() -> None:
        async with three_brokers(tmp_path) as cluster:
            for offset, stopped in enumerate((1, 2, 3, 1)):
                seen_by = next(one for one in cluster.brokers if one != stopped)
                stopping = asyncio.create_task(cluster.stop(stopped))
                await asyncio.gather(*(cluster.commit(group_id, offset, seen_by) for group_id in GROUPS))
                await stopping
                await cluster.check(offset, seen_by)
                await cluster.start(stopped)
                await cluster.in_sync(3, seen_by)

    simulated.run(body)


def test_a_broker_alone_makes_the_stream_at_once_and_of_several_the_first_group_does(tmp_path: Path) -> None:
    async def body() -> None:
        cluster = Cluster(tmp_path)
        await cluster.start(1)
        assert {one.replicas for one in cluster.assignments(1)} == {(BrokerId(1),)}
        await cluster.brokers[1].stop()

    simulated.run(body)
