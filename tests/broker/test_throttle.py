"""Replicas that are added copy no faster than they may, and nobody who is in sync waits for them (KIP-73)."""

import asyncio
from pathlib import Path

import pytest
from tests.broker.node import append
from tests.broker.replicated import DIRECTOR, Cluster, bytes_of, cluster_of, stays, until
from tests.support.simulated import run

from logboom.base.ids import BrokerId, StreamName

RATE = 1_000_000
SIZE_BYTES = 6_000_000
RECORD = bytes(100_000)


async def filled(cluster: Cluster, throttled: str = "") -> None:
    """A stream of two replicas whose third one would take six seconds at the rate."""
    await cluster.create("orders", [1, 2], leader_replication_throttled_replicas=throttled)
    for number in range(SIZE_BYTES // len(RECORD)):
        await append(cluster.leader("orders"), b"%d" % number + RECORD)


async def throttle(cluster: Cluster, side: str, broker: int, rate: int | None) -> None:
    value = None if rate is None else str(rate)
    await cluster[broker].catalog.change_broker_config(str(broker), {f"{side}.replication.throttled.rate": value})


@pytest.mark.parametrize(("side", "broker", "named"), [("leader", 1, "0:1,0:2"), ("follower", 3, "0:3")])
def test_a_new_replica_copies_at_the_rate_while_appends_are_acked_at_once(
    tmp_path: Path, side: str, broker: int, named: str
) -> None:
    async def body() -> None:
        loop = asyncio.get_running_loop()
        async with cluster_of(tmp_path, 3) as cluster:
            await filled(cluster)
            await cluster[1].catalog.change_stream_config(
                "orders", {f"{side}.replication.throttled.replicas": named, "segment.bytes": "2000000"}
            )
            await throttle(cluster, side, broker, RATE)
            begun_s = loop.time()
            await cluster[1].cluster_admin.reassign("orders", 0, [1, 2, 3])
            waits = []
            while len(cluster.assignment("orders").isr) < 3:
                asked_s = loop.time()
                await append(cluster.leader("orders"), b"x")
                waits.append(loop.time() - asked_s)
                await asyncio.sleep(0.1)
            took_s = loop.time() - begun_s
            assert SIZE_BYTES / RATE - 1.5 < took_s < 2 * SIZE_BYTES / RATE
            assert max(waits) < 0.5
            counters = cluster[broker].counters
            copied = counters.throttled_bytes_out if side == "leader" else counters.throttled_bytes_in
            assert copied >= SIZE_BYTES
            before = copied, loop.time()
            for number in range(20):  # in sync, nothing holds it
                await append(cluster.leader("orders"), b"%d" % number + RECORD)
            assert loop.time() - before[1] < 1
            await until(
                lambda: cluster.partition(3, "orders").log.written_end == cluster.leader("orders").log.written_end
            )
            assert bytes_of(cluster.partition(3, "orders").log) == bytes_of(cluster.leader("orders").log)

    run(body)


def test_what_is_not_named_is_not_held_and_a_throttle_that_is_lifted_holds_nobody(tmp_path: Path) -> None:
    async def body() -> None:
        loop = asyncio.get_running_loop()
        async with cluster_of(tmp_path, 3) as cluster:
            await filled(cluster, "0:2,7:1")
            await throttle(cluster, "leader", 1, 1)
            begun_s = loop.time()
            await cluster[1].cluster_admin.reassign("orders", 0, [1, 2, 3])
            await cluster.in_sync("orders")
            assert loop.time() - begun_s < 2, "the setting names other replicas"
            await cluster[1].cluster_admin.reassign("orders", 0, [1, 2])
            await cluster[1].catalog.change_stream_config("orders", {"leader.replication.throttled.replicas": "*"})
            await until(lambda: 3 not in cluster.assignment("orders").replicas)
            await cluster[1].cluster_admin.reassign("orders", 0, [1, 2, 3])
            await stays(lambda: 3 not in cluster.assignment("orders").isr, 20.0)
            await throttle(cluster, "leader", 1, None)
            lifted_s = loop.time()
            await cluster.in_sync("orders")
            assert loop.time() - lifted_s < 5

    run(body)


def test_a_throttled_move_survives_its_controller_and_can_be_taken_back(tmp_path: Path) -> None:
    async def body() -> None:
        async with cluster_of(tmp_path, 4, voters=3) as cluster:
            await filled(cluster, "*")
            voters = cluster[DIRECTOR].cluster.quorum
            await until(lambda: len(voters().voters) == 3, "three vote")
            for broker in (1, 2):
                await throttle(cluster, "leader", broker, RATE)
            await cluster[1].cluster_admin.reassign("orders", 0, [1, 3])
            await cluster[1].cluster_admin.reassign("orders", 0, [1, 4])
            before = cluster[1].catalog.image.by_name[StreamName("orders")].assignments[0]
            assert (set(before.adding), set(before.removing)) == ({3, 4}, {2, 3})
            director = cluster.brokers.pop(DIRECTOR)
            await director.leave()
            await director.stop()
            cluster.network.leave(DIRECTOR)
            other = cluster[1]

            def now() -> tuple[set[BrokerId], bool]:
                found = other.catalog.image.by_name[StreamName("orders")].assignments[0]
                return set(found.replicas), found.reassigning

            await until(lambda: cluster[1].controller not in (-1, DIRECTOR), "another one is the controller")
            assert now()[1], "it goes on"
            await other.cluster_admin.reassign("orders", 0, None)
            await until(lambda: now() == ({1, 2}, False), "it was taken back")
            await append(cluster.partition(1, "orders"), b"after")
            await other.cluster_admin.reassign("orders", 0, [1, 4])
            await until(lambda: now() == ({1, 4}, False), "it ends under the new controller")
            await append(cluster.partition(1, "orders"), b"moved")

    run(body)
