"""Leaderships that go from one broker to another while both are there: no message is lost, none is stored twice, and
each publisher's messages keep their order."""

import asyncio
from pathlib import Path

import pytest
from tests.nats.flow import Flow, all_stored, check_each_once, check_order, cli, connected, counted, handed_over, lead
from tests.nats.proxy import PausingProxy
from tests.nats.servers import NatsServer, nats_cluster, needs_nats_server, on_a_loop, taken
from tests.support.brokers import ClusterBrokers
from tests.support.waiting import WAIT_S

pytestmark = [needs_nats_server, pytest.mark.slow]

LEASE_MS = 20_000


def _cluster(directory: Path, *servers: NatsServer | PausingProxy) -> ClusterBrokers:
    addresses = ",".join(server.url for server in servers)
    return ClusterBrokers(directory, f"nats.servers={addresses}", lease_ms=LEASE_MS)


@on_a_loop
async def test_plain_messages_of_one_partition(tmp_path: Path) -> None:
    with NatsServer(tmp_path) as server, _cluster(tmp_path, server) as cluster:
        cluster.create("orders", logboom_nats_subjects="orders.>")
        async with connected(server.url) as clients:
            await taken(clients[0], "orders.probe")
            flow = Flow(clients, lambda number, count: f"orders.{number}")
            moved = 0
            for nodes in ((2, 3, 1), (3, 1, 2), (1, 2, 3), (2, 3, 1)):
                await flow.after(100)
                moved += await asyncio.to_thread(lead, cluster, "orders", *nodes)
            await handed_over(cluster, moved)
            assert counted(cluster, "handed_over_total") > 0
            assert counted(cluster, "dropped_total") == 0
            leader = await asyncio.to_thread(cluster.leader, "orders", 0)
            await flow.after(100)
            await asyncio.to_thread(cluster[leader].stop)
            await flow.after(100)
            count = await flow.end()
            found = await all_stored(cluster, {"orders": 1}, count)
        check_each_once(found, flow.sent)
        check_order(found[0])


@on_a_loop
async def test_several_partitions_queues_and_equal_messages(tmp_path: Path) -> None:
    with NatsServer(tmp_path) as server, _cluster(tmp_path, server) as cluster:
        cluster.create("keyed", 3, logboom_nats_subjects="keyed.*", logboom_nats_partitioner="token:2")
        cluster.create("spread", 3, logboom_nats_subjects="spread", logboom_nats_partitioner="round_robin")
        for half in ("half-1", "half-2"):
            cluster.create(half, logboom_nats_subjects="split", logboom_nats_group="halves")
        cluster.create("equal", logboom_nats_subjects="equal")
        async with connected(server.url) as clients:
            for subject in ("keyed.probe", "spread", "split", "equal"):
                await taken(clients[0], subject)
            flows = {
                "keyed": Flow(clients, lambda number, count: f"keyed.{number}{count % 5}"),
                "spread": Flow(clients, lambda number, count: "spread"),
                "split": Flow(clients, lambda number, count: "split"),
                "equal": Flow(clients, lambda number, count: "equal", lambda number, count: b"x"),
            }
            for broker in (1, 2):
                await flows["keyed"].after(60)
                await asyncio.to_thread(cluster[broker].stop)  # others lead, before it ends
                await flows["keyed"].after(60)
                await asyncio.to_thread(cluster.start, broker)
                for stream in ("keyed", "spread", "half-1", "half-2", "equal"):
                    await asyncio.to_thread(cluster.wait_in_sync, stream)
                await asyncio.to_thread(cli, "rebalance", "--bootstrap", cluster.bootstrap)
            counts = {name: await flow.end() for name, flow in flows.items()}
            keyed = await all_stored(cluster, {"keyed": 3}, counts["keyed"])
            check_each_once(keyed, flows["keyed"].sent)
            for values in keyed:
                check_order(values)
            check_each_once(await all_stored(cluster, {"spread": 3}, counts["spread"]), flows["spread"].sent)
            halves = await all_stored(cluster, {"half-1": 1, "half-2": 1}, counts["split"])
            check_each_once(halves, flows["split"].sent)
            (equal,) = await all_stored(cluster, {"equal": 1}, counts["equal"])
            assert equal == [b"x"] * counts["equal"]


@pytest.mark.parametrize("words", [b"PUB _INBOX.logboom.", b"SUB _INBOX.logboom.", b"UNSUB "])
@on_a_loop
async def test_equal_messages_while_the_mark_is_late(tmp_path: Path, words: bytes) -> None:
    """Equal messages that the next leader alone has heard, since the old one has ended its subscription, or the mark
    was sent before the next one could hear it, are none of those that the old one alone has heard, before. Those that
    the old one hears behind the mark are no loss."""
    with NatsServer(tmp_path) as server:
        async with PausingProxy(server.port, words) as proxy:
            with _cluster(tmp_path, proxy) as cluster:
                await asyncio.to_thread(cluster.create, "equal", logboom_nats_subjects="equal")
                async with connected(server.url) as clients:
                    await taken(clients[0], "equal")
                    flow = Flow(clients, lambda number, count: "equal", lambda number, count: b"x")
                    await flow.after(20)
                    leader = await asyncio.to_thread(cluster.leader, "equal", 0)
                    others = [broker for broker in (1, 2, 3) if broker != leader]
                    await asyncio.to_thread(lead, cluster, "equal", *others, leader)
                    await asyncio.wait_for(proxy.pauses.wait(), WAIT_S)
                    await flow.after(40)
                    proxy.goes_on.set()
                    await flow.after(20)
                    count = await flow.end()
                    (equal,) = await all_stored(cluster, {"equal": 1}, count)
                    dropped = counted(cluster, "dropped_total")
    assert (len(equal), dropped) == (count, 0)


@on_a_loop
async def test_servers_that_are_a_cluster(tmp_path: Path) -> None:
    with nats_cluster(tmp_path) as (first, second), _cluster(tmp_path, first, second) as cluster:
        cluster.create("orders", logboom_nats_subjects="orders.>")
        async with connected(first.url, second.url) as clients:
            await taken(clients[0], "orders.probe")
            await taken(clients[1], "orders.probe")
            flow = Flow(clients, lambda number, count: f"orders.{number}")
            for nodes in ((2, 3, 1), (3, 1, 2), (1, 2, 3), (2, 3, 1)):
                await flow.after(100)
                await asyncio.to_thread(lead, cluster, "orders", *nodes)
            await flow.after(100)
            count = await flow.end()
            found = await all_stored(cluster, {"orders": 1}, count)
        # A message may be there twice, if it was longer on its way between the servers than a subscription.
        check_each_once([list(dict.fromkeys(found[0]))], flow.sent)
        check_order(list(dict.fromkeys(found[0])))
