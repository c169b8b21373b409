"""Replicas that come back under a load that does not pause."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.broker.node import append_soon, batch
from tests.broker.replicated import Cluster, bytes_of, on_brokers, until

from logboom.sim.threads import current, sleep

SLOW_SYNC_S = 0.008
"""What a sync takes on the slow disk: more than ten times what it takes on the others."""


@asynccontextmanager
async def steady_load(cluster: Cluster, name: str) -> AsyncIterator[list[asyncio.Future[object]]]:
    """An append each millisecond, whether or not those before are acked."""
    appends: list[asyncio.Future[object]] = []

    async def appending() -> None:
        while True:
            appends.append(asyncio.ensure_future(append_soon(cluster.leader(name), batch(b"%d" % len(appends)))))
            await asyncio.sleep(0.001)

    task = asyncio.ensure_future(appending())
    try:
        yield appends
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await asyncio.gather(*appends)


def slow(cluster: Cluster, broker_id: int) -> None:
    """Its disk takes longer for each sync from now on."""

    def fault(operation: str, path: str) -> None:
        if operation == "begin_sync":
            raise BlockingIOError  # beside the loop no sync takes long
        if operation == "sync" and current() is not None:
            sleep(SLOW_SYNC_S, f"sync of {path}")

    cluster.disk(broker_id).fault = fault


@on_brokers(3)
async def test_a_replica_whose_disk_is_slower_comes_back_under_a_load_that_does_not_pause(cluster: Cluster) -> None:
    await cluster.create("orders", [1, 2, 3])
    await cluster.stop(3)
    async with steady_load(cluster, "orders") as appends:
        await until(lambda: len(appends) > 100, "a load")
        slow(cluster, 3)
        await cluster.start(3)
        await until(lambda: 3 in cluster.assignment("orders").isr, "the replica is in sync again", within_s=10.0)
        acked = sum(one.done() for one in appends)
        await until(lambda: sum(one.done() for one in appends) > acked + 100, "acks go on")
    await until(lambda: cluster.partition(3, "orders").high_watermark == len(appends), "all is committed")
    assert bytes_of(cluster.partition(3, "orders").log) == bytes_of(cluster.leader("orders").log)
