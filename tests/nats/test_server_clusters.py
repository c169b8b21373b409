"""Several servers of NATS that are one cluster, under brokers that are connected to different ones: servers that are
killed, that stand still, that leave, that are cut off from the others."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest
from tests.nats.flow import (
    Flow,
    all_stored,
    check_at_most_once,
    check_each_once,
    check_order,
    connected,
    counted,
    handed_over,
    lead,
)
from tests.nats.links import linked, up
from tests.nats.proxy import Proxy, SlowProxy
from tests.nats.publisher import Publisher
from tests.nats.servers import NatsServer, nats_cluster, needs_nats_server, on_a_loop, taken
from tests.support.brokers import ClusterBrokers
from tests.support.server import free_port
from tests.support.waiting import WAIT_S, until

from logboom.nats.link.servers import ServerPool
from logboom.nats.metrics import NatsMetrics

pytestmark = needs_nats_server

QUICK = ("nats.ping_interval_s=0.5", "nats.reconnect_pause_max_s=0.2", "nats.connect_timeout_s=2")
PINGED = ('ping_interval: "500ms"', "ping_max: 2")
"""A server soon gives up one that does not answer."""


def each_elsewhere(servers: Sequence[NatsServer]) -> dict[int, str]:
    """Broker 1 is connected to the first server, broker 2 to the second..."""
    return {
        number: "nats.servers=" + ",".join(one.url for one in [*servers[number - 1 :], *servers[: number - 1]])
        for number in range(1, len(servers) + 1)
    }


async def server_of(servers: Sequence[NatsServer], broker: int, *, but: NatsServer | None = None) -> NatsServer:
    """The server that a broker is connected to, once it is one; `but`: not this one."""
    async with asyncio.timeout(WAIT_S):
        while True:
            for server in servers:
                if server is not but and broker in await asyncio.to_thread(server.brokers):
                    return server
            await asyncio.sleep(0.05)


@contextlib.asynccontextmanager
async def acked_load(servers: Sequence[NatsServer], subject: str) -> AsyncIterator[list[Publisher]]:
    """Publishers that publish again until each message is acked, each with a connection to a server of its own."""
    async with connected(*(one.url for one in servers)) as clients:
        publishers = [Publisher(one, subject, b"of %d" % at, name=f"{at}-") for at, one in enumerate(clients)]
        running = [asyncio.create_task(one.run()) for one in publishers]
        try:
            yield publishers
        finally:
            for one in publishers:
                one.end()
            await asyncio.wait_for(asyncio.gather(*running), 2 * WAIT_S)


async def go_on(publishers: Sequence[Publisher]) -> None:
    """Return once messages of each were acked from now on."""
    await asyncio.gather(*(one.after(50) for one in publishers))


def plain(found: Sequence[Sequence[bytes]]) -> list[bytes]:
    """The plain messages of one partition."""
    return [value for value in found[0] if b" of " not in value]


@on_a_loop
async def test_a_server_that_stands_still_is_not_waited_for_again(tmp_path: Path) -> None:
    """The next one is tried, of which it has told."""
    metrics = NatsMetrics()
    with nats_cluster(tmp_path) as (first, second):
        await asyncio.to_thread(until, lambda: second.address in first.others(), "it is told of")
        async with linked(metrics, servers=[first.url], ping_interval_s=0.2) as link:
            await up(link)
            first.pause()
            async with asyncio.timeout(WAIT_S):
                while metrics.connections < 2:
                    await asyncio.sleep(0.01)
    assert (metrics.disconnects, metrics.failed_connections) == ({"does not answer": 1}, 0)


@on_a_loop
async def test_servers_that_refuse_are_passed_over(tmp_path: Path) -> None:
    """One has other users, one does not speak TLS as it is asked to."""
    metrics = NatsMetrics()
    users = 'authorization { user: "other", password: "other" }'
    with NatsServer(tmp_path, users) as strange, NatsServer(tmp_path) as plain_text, NatsServer(tmp_path) as good:
        servers = [strange.url, f"tls://127.0.0.1:{plain_text.port}", good.url]
        async with linked(metrics, servers=servers, reconnect_pause_max_s=0.1) as link:
            for connections in (1, 2):
                async with asyncio.timeout(WAIT_S):
                    while metrics.connections < connections or not link.is_up:
                        await asyncio.sleep(0.01)
                assert metrics.failed_connections >= 2 * connections
                good.kill()
                good.start()
    assert metrics.errors["authorization"] >= 2


def test_servers_that_are_told_of() -> None:
    """Those of the settings come first, and what is told by address has a certificate of the name of who told."""
    pool = ServerPool(["tls://nats.example.org", "tls://nats.example.org:4222", "tls://10.0.0.9:4223"])
    first = pool.next()
    pool.told(["10.0.0.1:4222", "10.0.0.9:4223", "b.example.org:4222", "10.0.0.1:4222"], by=first)
    seen = [pool.next() for _ in range(4)]
    assert [str(one) for one in seen] == ["10.0.0.9:4223", "10.0.0.1:4222", "b.example.org:4222", str(first)]
    assert [one.tls_name for one in seen] == [None, "nats.example.org", None, None]
    assert all(one.tls for one in seen)
    assert [str(one) for one in pool.others(seen[1])] == [str(seen[2]), str(first), str(seen[0])]
    pool.moved(seen[1])
    pool.told([], by=seen[1])  # it has left its cluster
    assert pool.next() == first
    alone = ServerPool(["nats://10.0.0.1"], discovers=False)
    alone.told(["10.0.0.2:4222"], by=alone.next())
    assert alone.others(alone.next()) == [alone.next()]


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["kill", "pause", "leave"])
@on_a_loop
async def test_the_server_of_a_leader(tmp_path: Path, fault: str) -> None:
    """It is killed, stands still for longer than it may leave pings without answer, or leaves its cluster: then no
    plain message is lost either."""
    ports = [free_port() for _ in range(3)]
    with (
        nats_cluster(tmp_path, *PINGED, ports=ports) as servers,
        ClusterBrokers(tmp_path, *QUICK, own_settings=each_elsewhere(servers)) as cluster,
    ):
        await asyncio.to_thread(cluster.create, "orders", logboom_nats_subjects="orders.*")
        leader = await asyncio.to_thread(cluster.leader, "orders", 0)
        server = await server_of(servers, leader)
        others = [one for one in servers if one is not server]
        async with connected(*(one.url for one in servers)) as clients:
            for client in clients:
                await taken(client, "orders.probe")
            async with acked_load(servers, "orders.acked") as publishers:
                flow = Flow(clients, lambda number, count: f"orders.{number}")
                await go_on(publishers)
                getattr(server, fault)()
                await server_of(others, leader)
                if fault == "kill":
                    server.start()
                if fault == "pause":
                    server.resume()
                await go_on(publishers)
                await flow.end()
        found = plain(await all_stored(cluster, {"orders": 1}, 0))
        if fault == "leave":
            check_each_once([found], flow.sent)
        check_at_most_once(found, flow.sent)
        for one in publishers:
            one.check(cluster.bootstrap, "orders")


@pytest.mark.slow
@on_a_loop
async def test_a_server_that_leaves_while_leaderships_move(tmp_path: Path) -> None:
    """All brokers are connected to it: they go to others while they hand over to each other, and lose no plain
    message."""
    ports = [free_port() for _ in range(3)]
    with (
        nats_cluster(tmp_path, *PINGED, ports=ports) as servers,
        ClusterBrokers(tmp_path, *QUICK, f"nats.servers={servers[0].url}", lease_ms=20_000) as cluster,
    ):
        await asyncio.to_thread(cluster.create, "orders", logboom_nats_subjects="orders.*")
        await asyncio.to_thread(lead, cluster, "orders", 1, 2, 3)
        async with connected(*(one.url for one in servers[1:])) as clients:
            for client in clients:
                await taken(client, "orders.probe")
            flow = Flow(clients, lambda number, count: f"orders.{number}")
            await flow.after(50)
            servers[0].leave()
            for nodes in ((2, 3, 1), (3, 1, 2), (1, 2, 3)):
                await asyncio.to_thread(lead, cluster, "orders", *nodes)
            for broker in (1, 2, 3):
                await server_of(servers[1:], broker)
            await flow.after(50)
            count = await flow.end()
            found = plain(await all_stored(cluster, {"orders": 1}, count))
    # A message may be there twice where it was longer on its way between servers than a subscription.
    once = list(dict.fromkeys(found))
    check_each_once([once], flow.sent)
    check_order(once)


@pytest.mark.slow
@on_a_loop
async def test_a_broker_that_is_killed_while_it_moves(tmp_path: Path) -> None:
    """It is connected to the server that leaves and to the next one: what was acked is there once, whatever the two had
    brought."""
    ports = [free_port() for _ in range(3)]
    with (
        nats_cluster(tmp_path, *PINGED, ports=ports) as servers,
        ClusterBrokers(tmp_path, *QUICK, own_settings=each_elsewhere(servers)) as cluster,
    ):
        await asyncio.to_thread(cluster.create, "orders", logboom_nats_subjects="orders.*")
        async with connected(*(one.url for one in servers)) as clients:
            for client in clients:
                await taken(client, "orders.probe")
            async with acked_load(servers, "orders.acked") as publishers:
                flow = Flow(clients, lambda number, count: f"orders.{number}")
                await go_on(publishers)
                leader = await asyncio.to_thread(cluster.leader, "orders", 0)
                server = await server_of(servers, leader)
                server.leave()
                await server_of(servers, leader, but=server)
                assert leader in await asyncio.to_thread(server.brokers)
                cluster[leader].kill9()
                await go_on(publishers)
                await asyncio.to_thread(cluster.start, leader)
                await go_on(publishers)
                await flow.end()
        check_at_most_once(plain(await all_stored(cluster, {"orders": 1}, 0)), flow.sent)
        for one in publishers:
            one.check(cluster.bootstrap, "orders")


@pytest.mark.slow
@on_a_loop
async def test_servers_that_are_cut_off_from_each_other(tmp_path: Path) -> None:
    """Publishers on the leader's side get their acks; those on the other side get them from the next leader there, and
    from the first one's once the servers are one cluster again."""
    ports = free_port(), free_port()
    async with Proxy(ports[0]) as to_first, Proxy(ports[1]) as to_second:
        with (
            nats_cluster(tmp_path, *PINGED, ports=ports, reached_at=(to_first.port, to_second.port)) as servers,
            ClusterBrokers(
                tmp_path, *QUICK, "nats.discover_servers=false", own_settings=each_elsewhere([*servers, servers[0]])
            ) as cluster,
        ):
            await asyncio.to_thread(cluster.create, "orders", logboom_nats_subjects="orders.*")
            await asyncio.to_thread(lead, cluster, "orders", 1, 2, 3)
            async with connected(servers[0].url, servers[1].url) as clients:
                for client in clients:
                    await taken(client, "orders.probe")
                async with acked_load(servers, "orders.acked") as publishers:
                    here, there = publishers[0], publishers[1]
                    flow = Flow(clients, lambda number, count: f"orders.{number}")
                    await go_on(publishers)
                    for proxy in (to_first, to_second):
                        proxy.fall_silent()
                    tried = there.tried_again.total()
                    await here.after(50)
                    async with asyncio.timeout(WAIT_S):
                        while there.tried_again.total() < tried + 8:
                            await asyncio.sleep(0.05)
                    await asyncio.to_thread(lead, cluster, "orders", 2, 1, 3)
                    await there.after(50)
                    for proxy in (to_first, to_second):
                        await proxy.come_back()
                    await go_on(publishers)
                    await flow.end()
            check_at_most_once(plain(await all_stored(cluster, {"orders": 1}, 0)), flow.sent)
            for one in publishers:
                one.check(cluster.bootstrap, "orders")


@pytest.mark.slow
@on_a_loop
async def test_a_queue_over_several_servers(tmp_path: Path) -> None:
    """Streams of a group, whose leaders are connected to different servers, split the messages, and lose none where one
    of the servers leaves its cluster."""
    ports = [free_port() for _ in range(3)]
    streams = {"third-1": 1, "third-2": 1, "third-3": 1}
    with (
        nats_cluster(tmp_path, *PINGED, ports=ports) as servers,
        ClusterBrokers(tmp_path, *QUICK, own_settings=each_elsewhere(servers)) as cluster,
    ):
        for number, stream in enumerate(streams, 1):
            cluster.create(stream, logboom_nats_subjects="split", logboom_nats_group="thirds")
            others = [one for one in (1, 2, 3) if one != number]
            await asyncio.to_thread(lead, cluster, stream, number, *others)
        async with connected(*(one.url for one in servers)) as clients:
            for client in clients:
                await taken(client, "split")
            flow = Flow(clients, lambda number, count: "split")
            await flow.after(50)
            servers[0].leave()
            await server_of(servers[1:], 1)
            await flow.after(50)
            count = await flow.end()
        found = await all_stored(cluster, streams, count)
    check_each_once(found, flow.sent)
    assert all(found)


@pytest.mark.slow
@on_a_loop
async def test_leaders_at_a_hub_and_at_its_leaf_node_hand_over(tmp_path: Path) -> None:
    """The two servers do not say that they are several, and 60 ms lie between them: a tenth of all messages was lost,
    as the old leader left to the next one what did not reach it yet. Changes that come faster than the word of a
    subscription may lose some, as with several servers of a cluster."""
    leaf_port = free_port()
    hub_says = f'leafnodes {{ listen: "127.0.0.1:{leaf_port}" }}'
    async with SlowProxy(leaf_port, 0.06) as way:
        leaf_says = f'leafnodes {{ remotes: [ {{ url: "nats-leaf://127.0.0.1:{way.port}" }} ] }}'
        with (
            NatsServer(tmp_path, hub_says) as hub,
            NatsServer(tmp_path, leaf_says) as leaf,
            ClusterBrokers(
                tmp_path,
                f"nats.servers={hub.url}",
                own_settings={2: f"nats.servers={leaf.url}"},
                lease_ms=20_000,
            ) as cluster,
        ):
            await asyncio.to_thread(cluster.create, "orders", logboom_nats_subjects="orders.*")
            await asyncio.to_thread(lead, cluster, "orders", 1, 2, 3)
            async with connected(hub.url, leaf.url) as clients:
                for client in clients:
                    await taken(client, "orders.probe")
                flow = Flow(clients, lambda number, count: f"orders.{number}")
                before = await asyncio.to_thread(counted, cluster, "handovers_total")
                for number, nodes in enumerate(((2, 3, 1), (1, 2, 3), (2, 3, 1), (3, 1, 2)), 1):
                    await flow.after(60)
                    await asyncio.to_thread(lead, cluster, "orders", *nodes)
                    await handed_over(cluster, before + number)
                await flow.after(60)
                count = await flow.end()
                failed = counted(cluster, "failed_handovers_total")
                found = plain(await all_stored(cluster, {"orders": 1}, 0 if failed else count))
    check_at_most_once(found, flow.sent)
    if not failed:  # a broker may not come to answer in 4 s where others take all the time there is
        check_each_once([found], flow.sent)
