"""Servers of NATS and leaders of partitions that are killed under load: what was acked is in the log, and once."""

import asyncio
from pathlib import Path

import nats.errors
import nats.js.errors
import pytest
from tests.nats.publisher import Publisher
from tests.nats.servers import NatsServer, attach, nats_cluster, needs_nats_server, on_a_loop, taken
from tests.support.brokers import ClusterBrokers
from tests.support.server import BrokerProcess
from tests.support.waiting import WAIT_S

import nats

pytestmark = needs_nats_server
_KILLS_MAX = 50
"""A kill at a moment when everything that was published is acked shows nothing."""


@on_a_loop
async def test_a_nats_server_that_is_killed_under_load(tmp_path: Path) -> None:
    with NatsServer(tmp_path) as server, BrokerProcess(tmp_path / "data", "--nats", server.url) as broker:
        attach(broker.kafka, "orders", "orders.>")
        async with await nats.connect(server.url, max_reconnect_attempts=-1, reconnect_time_wait=0.05) as client:
            await taken(client, "orders.probe")
            publisher = Publisher(client, "orders.x")
            running = asyncio.create_task(publisher.run())
            kills = 0
            while kills < 2 or (not publisher.tried_again and kills < _KILLS_MAX):
                await publisher.after(200)
                server.kill()
                kills += 1
                await asyncio.sleep(0)
                server.start()
            await publisher.after(200)
            publisher.end()
            await asyncio.wait_for(running, 2 * WAIT_S)
        assert publisher.tried_again
        publisher.check(broker.kafka, "orders")


@pytest.mark.slow
@on_a_loop
async def test_a_leader_that_is_killed_under_load(tmp_path: Path) -> None:
    """`Publisher.check`: every message that was acked is in the log at its sequence, and none is there twice."""
    with NatsServer(tmp_path) as server, ClusterBrokers(tmp_path, f"nats.servers={server.url}") as cluster:
        cluster.create("orders", logboom_nats_subjects="orders.>")
        async with await nats.connect(server.url) as client:
            await taken(client, "orders.probe")
            publisher = Publisher(client, "orders.x")
            running = asyncio.create_task(publisher.run())
            for _ in range(2):
                await publisher.after(200)
                leader = await asyncio.to_thread(cluster.leader, "orders", 0)
                cluster[leader].kill9()
                await publisher.after(200)
                await asyncio.to_thread(cluster.start, leader)
                await asyncio.to_thread(cluster.wait_in_sync, "orders")
            publisher.end()
            await asyncio.wait_for(running, 2 * WAIT_S)
        publisher.check(cluster.bootstrap, "orders")


@pytest.mark.slow
@on_a_loop
async def test_a_nats_server_that_another_of_its_cluster_replaces(tmp_path: Path) -> None:
    """`Publisher.check`: every message that was acked is in the log at its sequence, and none is there twice."""
    with nats_cluster(tmp_path) as (first, second), BrokerProcess(tmp_path / "data", "--nats", first.url) as broker:
        attach(broker.kafka, "orders", "orders.>")
        async with await nats.connect(
            [second.url, first.url], max_reconnect_attempts=-1, reconnect_time_wait=0.05
        ) as client:
            await taken(client, "orders.probe")
            publisher = Publisher(client, "orders.x")
            running = asyncio.create_task(publisher.run())
            await publisher.after(200)
            first.kill()  # the broker has been told of the other one
            await publisher.after(200)
            first.start()
            second.kill()
            await publisher.after(200)
            publisher.end()
            await asyncio.wait_for(running, 2 * WAIT_S)
        publisher.check(broker.kafka, "orders")


@pytest.mark.slow
@on_a_loop
async def test_a_leader_that_is_frozen_and_then_a_server_and_a_leader_at_once(tmp_path: Path) -> None:
    """`Publisher.check`: every message that was acked is in the log at its sequence, and none is there twice."""
    with NatsServer(tmp_path) as server, ClusterBrokers(tmp_path, f"nats.servers={server.url}") as cluster:
        cluster.create("orders", logboom_nats_subjects="orders.>")
        async with await nats.connect(server.url, max_reconnect_attempts=-1, reconnect_time_wait=0.05) as client:
            await taken(client, "orders.probe")
            publisher = Publisher(client, "orders.x")
            running = asyncio.create_task(publisher.run())
            await publisher.after(100)
            leader = await asyncio.to_thread(cluster.leader, "orders", 0)
            cluster[leader].pause()
            try:
                await publisher.after(100)  # another one leads
            finally:
                cluster[leader].resume()
            await asyncio.to_thread(cluster.wait_in_sync, "orders")
            await publisher.after(100)
            leader = await asyncio.to_thread(cluster.leader, "orders", 0)
            cluster[leader].kill9()
            server.kill()
            await asyncio.sleep(0)
            server.start()
            await publisher.after(100)
            await asyncio.to_thread(cluster.start, leader)
            publisher.end()
            await asyncio.wait_for(running, 2 * WAIT_S)
        publisher.check(cluster.bootstrap, "orders")
