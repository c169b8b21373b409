"""A leader whose disk is full: another one leads in its place and takes over what it could not store (a small ext4 on a
loop device; needs the right to mount one)."""

import asyncio
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.faults.test_disk_mounts import Loop
from tests.nats.flow import lead
from tests.nats.publisher import Publisher
from tests.nats.servers import NatsServer, nats_cluster, needs_nats_server, on_a_loop, taken
from tests.support.brokers import ClusterBrokers, Place
from tests.support.waiting import WAIT_S, until

import nats

pytestmark = [needs_nats_server, pytest.mark.slow]

_METADATA_BYTES = 1_000_000
"""Room for changes of the metadata, so that a broker learns that it is to lead."""
SMALL = 2
"""The broker whose disk it is."""
_PAUSE_S = 0.02
"""At full speed the messages themselves fill the small disk in ten seconds."""


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Loop]:
    made = Loop(tmp_path, 200)
    yield made
    subprocess.run(["umount", "--lazy", str(made.path)], check=False, timeout=WAIT_S)


def fill_but(disk: Path, left_bytes: int) -> Path:
    """Leave so much room; the file that has to go to make more."""
    ballast, free = disk / "ballast", os.statvfs(disk)
    with ballast.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, free.f_bavail * free.f_frsize - left_bytes)
    return ballast


async def others_lead(cluster: ClusterBrokers, publisher: Publisher) -> None:
    """Return once another broker leads, and messages are acked."""
    await asyncio.to_thread(
        cluster.wait_for, lambda: "the disk is full" in cluster[SMALL].log_text(), "a full disk of the leader"
    )
    await asyncio.to_thread(cluster.wait_for, lambda: cluster.leader("orders", 0) != SMALL, "another leader")
    await publisher.after(200)


@on_a_loop
async def test_what_is_acked_is_there_once_where_a_leaders_disk_is_full(tmp_path: Path, small: Loop) -> None:
    """`Publisher.check`: every message that was acked is in the log at its sequence, and none is there twice."""
    settings = ("broker.replica_lag_max_ms=3000",)
    places = {SMALL: Place(directory=small.path / "data")}
    with (
        NatsServer(tmp_path) as server,
        ClusterBrokers(tmp_path, f"nats.servers={server.url}", *settings, places=places) as cluster,
    ):
        cluster.create("orders", logboom_nats_subjects="orders.>", segment_bytes="1048576")
        async with await nats.connect(server.url) as client:
            await taken(client, "orders.probe")
            publisher = Publisher(client, "orders.x", padding=bytes(20_000), pause_s=_PAUSE_S)
            # It is full from the first messages on that it has to store as the leader.
            await asyncio.to_thread(lead, cluster, "orders", 1, 2, 3)
            ballast = await asyncio.to_thread(fill_but, small.path, _METADATA_BYTES)
            await asyncio.to_thread(lead, cluster, "orders", SMALL, 3, 1)
            running = asyncio.create_task(publisher.run())
            await others_lead(cluster, publisher)
            ballast.unlink()
            await asyncio.to_thread(cluster.wait_in_sync, "orders")
            # It is full while it leads.
            await asyncio.to_thread(lead, cluster, "orders", SMALL, 1, 3)
            await publisher.after(100)
            ballast = await asyncio.to_thread(small.fill)
            await others_lead(cluster, publisher)
            ballast.unlink()
            await asyncio.to_thread(cluster.wait_in_sync, "orders")
            publisher.end()
            await asyncio.wait_for(running, 2 * WAIT_S)
        publisher.check(cluster.bootstrap, "orders")


@on_a_loop
async def test_a_leaders_disk_is_full_while_its_server_leaves(tmp_path: Path, small: Loop) -> None:
    """It moves to another nats-server meanwhile: what was acked is there once."""
    places = {SMALL: Place(directory=small.path / "data")}
    with nats_cluster(tmp_path) as (first, second):
        urls = f"nats.servers={first.url},{second.url}"
        with ClusterBrokers(tmp_path, urls, "broker.replica_lag_max_ms=3000", places=places) as cluster:
            cluster.create("orders", logboom_nats_subjects="orders.>", segment_bytes="1048576")
            async with await nats.connect(second.url) as client:
                await taken(client, "orders.probe")
                publisher = Publisher(client, "orders.x", padding=bytes(20_000), pause_s=_PAUSE_S)
                await asyncio.to_thread(lead, cluster, "orders", SMALL, 1, 3)
                running = asyncio.create_task(publisher.run())
                await publisher.after(100)
                ballast = await asyncio.to_thread(small.fill)
                first.leave()
                await others_lead(cluster, publisher)
                await asyncio.to_thread(until, lambda: second.brokers() >= {1, SMALL, 3}, "they have moved")
                await publisher.after(100)
                ballast.unlink()
                await asyncio.to_thread(cluster.wait_in_sync, "orders")
                publisher.end()
                await asyncio.wait_for(running, 2 * WAIT_S)
            publisher.check(cluster.bootstrap, "orders")
