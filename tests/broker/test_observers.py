"""Observers of real brokers: they have what is committed, nobody waits for them, and they say when they are too far
behind for readers."""

import asyncio
from pathlib import Path

import pytest
from tests.broker.node import append, values_of
from tests.broker.replicated import DIRECTOR, Cluster, bytes_of, cluster_of, until
from tests.support.simulated import run

from logboom.base.errors import InvalidRequestError, OffsetNotAvailableError
from logboom.base.ids import BrokerId
from logboom.broker.partition.replica import Partition
from logboom.metadata.membership import drain
from logboom.metadata.reassignment import reassign

OBSERVER = 3
"""Holds no replica in these tests; where it is a broker that only observes, it is so by its settings."""


async def observed(cluster: Cluster, **config: str) -> None:
    """The stream `orders` on brokers 1 and 2, observed by broker 3."""
    await cluster.start(OBSERVER, observer=True)
    await cluster.create("orders", [1, 2], 1, logboom_observers="1", **config)
    assert cluster.assignment("orders").observers == (BrokerId(OBSERVER),)


def copy(cluster: Cluster) -> Partition:
    return cluster.partition(OBSERVER, "orders")


def refusal(partition: Partition) -> OffsetNotAvailableError | None:
    return partition.role.follower.freshness.refusal(partition.config)


async def shows(cluster: Cluster, end: int) -> None:
    await until(lambda: copy(cluster).high_watermark == end, f"the observer shows {end} records")


def test_an_observer_copies_what_is_committed_and_is_in_no_isr(tmp_path: Path) -> None:
    async def body() -> None:
        async with cluster_of(tmp_path, 2) as cluster:
            await observed(cluster)
            for number in range(20):
                await append(cluster.leader("orders"), b"%d" % number)
            await shows(cluster, 20)
            assert bytes_of(copy(cluster).log) == bytes_of(cluster.leader("orders").log)
            assert await values_of(copy(cluster)) == [b"%d" % number for number in range(20)]
            assert cluster.assignment("orders").isr == (1, 2)
            lag = cluster.leader("orders").role.leader.observer_lag(BrokerId(OBSERVER), 0.0)
            assert lag is not None
            assert lag.records == 0
            assert refusal(copy(cluster)) is None

    run(body)


def test_nobody_waits_for_an_observer_that_is_cut_off(tmp_path: Path) -> None:
    async def body() -> None:
        async with cluster_of(tmp_path, 2) as cluster:
            await observed(cluster)
            await append(cluster.leader("orders"), b"a")
            await shows(cluster, 1)
            cluster.network.cut(1, OBSERVER)
            cluster.network.cut(2, OBSERVER)
            for _ in range(5):
                await append(cluster.leader("orders"), b"b")
            assert cluster.leader("orders").high_watermark == 6
            assert await values_of(copy(cluster)) == [b"a"]
            cluster.network.heal()
            await shows(cluster, 6)
            assert bytes_of(copy(cluster).log) == bytes_of(cluster.leader("orders").log)

    run(body)


def test_an_observer_that_has_not_heard_of_its_leader_for_too_long_refuses_readers(tmp_path: Path) -> None:
    async def body() -> None:
        async with cluster_of(tmp_path, 2) as cluster:
            await observed(cluster, logboom_observer_max_lag_ms="5000")
            await append(cluster.leader("orders"), b"a")
            await shows(cluster, 1)
            await asyncio.sleep(30)
            assert refusal(copy(cluster)) is None, "nothing was written, which the observer knows"
            cluster.network.cut(1, OBSERVER)
            cluster.network.cut(2, OBSERVER)
            await asyncio.sleep(3)
            assert refusal(copy(cluster)) is None
            await asyncio.sleep(4)
            assert "behind its leader" in str(refusal(copy(cluster)))
            cluster.network.heal()
            await until(lambda: refusal(copy(cluster)) is None, "it has heard of its leader")

    run(body)


def test_an_observer_that_lacks_too_many_records_refuses_readers(tmp_path: Path) -> None:
    async def body() -> None:
        async with cluster_of(tmp_path, 2) as cluster:
            await observed(cluster, logboom_observer_max_lag_records="10")
            await append(cluster.leader("orders"), b"a")
            await shows(cluster, 1)
            freshness, leader = copy(cluster).role.follower.freshness, cluster.leader("orders")
            cluster.network.cut(1, OBSERVER)
            cluster.network.cut(2, OBSERVER)
            for _ in range(11):
                await append(leader, b"b")
            lag = leader.role.leader.observer_lag(BrokerId(OBSERVER), 0.0)
            assert lag is not None
            assert lag.records == 11
            cluster.network.heal()
            await until(lambda: freshness.leaders_mark == 12, "it has heard of them")
            await shows(cluster, 12)
            assert refusal(copy(cluster)) is None

    run(body)


def test_an_observer_goes_on_with_another_leader_and_is_never_one(tmp_path: Path) -> None:
    async def body() -> None:
        async with cluster_of(tmp_path, 2, minimum=1) as cluster:
            await observed(cluster)
            await append(cluster.leader("orders"), b"a")
            await shows(cluster, 1)
            await cluster.stop(1)
            assert cluster.assignment("orders").leader == BrokerId(2)
            await append(cluster.leader("orders"), b"b")
            await shows(cluster, 2)
            await cluster.stop(2)
            now = cluster.assignment("orders")
            assert OBSERVER not in (now.leader, *now.isr, *now.elr, *now.last_known)
            assert await values_of(copy(cluster)) == [b"a", b"b"]
            await cluster.start(2)
            await until(lambda: cluster.assignment("orders").leader == BrokerId(2), "it leads again")
            await append(cluster.leader("orders"), b"c")
            await shows(cluster, 3)

    run(body)


def test_an_observer_that_becomes_a_replica_keeps_what_it_has(tmp_path: Path) -> None:
    async def body() -> None:
        async with cluster_of(tmp_path, 3) as cluster:
            await cluster.create("orders", [1, 2], logboom_observers="1")
            assert cluster.assignment("orders").observers == (BrokerId(OBSERVER),)
            await append(cluster.leader("orders"), b"a" * 10_000)
            await shows(cluster, 1)
            copied = cluster[OBSERVER].counters.replicated_bytes_in
            await cluster.take(reassign(cluster.image, "orders", 0, (3, 1), cluster.minimum_of))
            await until(lambda: set(cluster.assignment("orders").isr) == {1, 3}, "it is in sync")
            assert cluster[OBSERVER].counters.replicated_bytes_in == copied
            await append(cluster.leader("orders"), b"b")
            assert cluster.partition(OBSERVER, "orders").log.durable_end == 2

    run(body)


def test_a_drained_broker_gives_its_observers_away(tmp_path: Path) -> None:
    async def body() -> None:
        async with cluster_of(tmp_path, 3) as cluster:
            await cluster.start(4, observer=True)
            await cluster.create("orders", [1, 2], logboom_observers="1")
            await append(cluster.leader("orders"), b"a")
            assert cluster.assignment("orders").observers == (4,)
            await cluster.take(drain(cluster.image, BrokerId(4), draining=True))
            await until(lambda: cluster.assignment("orders").observers == (3,), "another one has it")
            await shows(cluster, 1)
            await until(lambda: len(list(cluster[4].replicas)) == 0, "its files are gone")

    run(body)


def test_a_broker_that_only_observes_has_no_vote(tmp_path: Path) -> None:
    async def body() -> None:
        async with cluster_of(tmp_path, 1, voters=3) as cluster:
            await cluster.start(OBSERVER, observer=True)
            await cluster.start(4)
            await until(lambda: len(cluster[DIRECTOR].cluster.quorum().voters) == 3, "three vote")
            assert OBSERVER not in [one.broker_id for one in cluster[DIRECTOR].cluster.quorum().voters]

    run(body)


def test_the_first_broker_of_a_cluster_is_no_observer(tmp_path: Path) -> None:
    async def body() -> None:
        with pytest.raises(InvalidRequestError, match="the first broker of a cluster cannot be an observer"):
            await Cluster(tmp_path).start(DIRECTOR, observer=True)

    run(body)


def test_an_observer_stays_one(tmp_path: Path) -> None:
    async def body() -> None:
        async with cluster_of(tmp_path, 1) as cluster:
            await cluster.start(OBSERVER, observer=True)
            await cluster.stop(OBSERVER)
            with pytest.raises(InvalidRequestError, match="registered as an observer, and stays that"):
                await cluster.start(OBSERVER)

    run(body)
