"""Leaderships that go from one broker to another while both are there: no message is lost, none is stored twice, and
each publisher's messages keep their order."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import nats.errors
import nats.js.errors
import pytest
from nats.aio.client import Client
from tests.nats.servers import WAIT_S, NatsServer, end, metrics, needs_nats_server, on_a_loop, stored, taken
from tests.support.brokers import ClusterBrokers
from tests.support.commands import run_logboom

import nats

pytestmark = [needs_nats_server, pytest.mark.slow]

PUBLISHERS = 3


class Flow:
    """Plain messages, numbered by publisher, from when it is begun until it is ended."""

    def __init__(self, clients: list[Client], subject: Callable[[int, int], str]) -> None:
        """`subject`: of the publisher's message of a number."""
        self.sent = [0] * len(clients)
        self._clients = clients
        self._subject = subject
        self._ending = False
        self._running = [asyncio.create_task(self._publish(number)) for number in range(len(clients))]

    async def end(self) -> int:
        """Publish no more; how many messages a server has got."""
        self._ending = True
        await asyncio.wait_for(asyncio.gather(*self._running), WAIT_S)
        return sum(self.sent)

    async def after(self, count: int) -> None:
        """Return once each publisher has published so many more."""
        wanted = min(self.sent) + count
        async with asyncio.timeout(WAIT_S):
            while min(self.sent) < wanted:
                await asyncio.sleep(0.01)

    async def _publish(self, number: int) -> None:
        client = self._clients[number]
        while not self._ending:
            for _ in range(5):
                count = self.sent[number]
                await client.publish(self._subject(number, count), b"%d %d" % (number, count))
                self.sent[number] += 1
            await client.flush()
            await asyncio.sleep(0.003)


@contextlib.asynccontextmanager
async def connected(url: str, count: int) -> AsyncIterator[list[Client]]:
    """So many publishers, each with a connection of its own."""
    clients = [await nats.connect(url, max_reconnect_attempts=-1, reconnect_time_wait=0.05) for _ in range(count)]
    try:
        yield clients
    finally:
        for client in clients:
            await client.close()


def lead(cluster: ClusterBrokers, stream: str, *nodes: int) -> None:
    """Have the first of these brokers lead partition 0 of a stream, the second partition 1 and so on."""
    to = ",".join(map(str, nodes))
    moved = run_logboom(["cluster", "reassign", stream, "--to", to, "--bootstrap", cluster.bootstrap], timeout_s=60)
    assert moved.returncode == 0, moved
    for index in cluster.partitions(stream):
        elected = run_logboom(["cluster", "elect", stream, str(index), "--bootstrap", cluster.bootstrap], timeout_s=60)
        assert elected.returncode == 0, elected


async def all_stored(cluster: ClusterBrokers, stream: str, count: int, partitions: int = 1) -> list[list[bytes]]:
    """What each partition has got, once it is so much in all; without what `taken` has asked with."""
    async with asyncio.timeout(WAIT_S):
        while True:
            ends = [await asyncio.to_thread(end, cluster.bootstrap, stream, index) for index in range(partitions)]
            found = [
                [one.value for one in await asyncio.to_thread(stored, cluster.bootstrap, stream, until, index)]
                for index, until in enumerate(ends)
            ]
            found = [[value for value in values if value != b"probe"] for values in found]
            if sum(map(len, found)) >= count:
                return found
            await asyncio.sleep(0.2)


def counted(cluster: ClusterBrokers, name: str) -> int:
    """A metric of the way to NATS, of all brokers that run."""
    running = [metrics(broker.http) for broker in cluster.brokers.values() if broker.running]
    lines = [line for text in running for line in text.splitlines() if line.startswith(f"logboom_nats_{name} ")]
    return round(sum(float(line.split()[1]) for line in lines))


def check_each_once(found: list[list[bytes]], sent: list[int]) -> None:
    """Every message is there, and once."""
    everything = sorted(value for values in found for value in values)
    assert everything == sorted(b"%d %d" % (number, at) for number, count in enumerate(sent) for at in range(count))


def check_order(values: list[bytes]) -> None:
    """Each publisher's messages are in the order in which it published them."""
    for number in range(PUBLISHERS):
        own = [int(value.split()[1]) for value in values if value.startswith(b"%d " % number)]
        assert own == sorted(own)


@on_a_loop
async def test_plain_messages_of_one_partition(tmp_path: Path) -> None:
    with NatsServer(tmp_path) as server, ClusterBrokers(tmp_path, f"nats.servers={server.url}") as cluster:
        cluster.create("orders", logboom_nats_subjects="orders.>")
        async with connected(server.url, PUBLISHERS) as clients:
            await taken(clients[0], "orders.probe")
            flow = Flow(clients, lambda number, count: f"orders.{number}")
            for nodes in ((2, 3, 1), (3, 1, 2), (1, 2, 3)) * 2:
                await flow.after(300)
                await asyncio.to_thread(lead, cluster, "orders", *nodes)
            assert counted(cluster, "handovers_total") == 6
            assert counted(cluster, "handed_over_total") > 0
            leader = await asyncio.to_thread(cluster.leader, "orders", 0)
            await flow.after(300)
            await asyncio.to_thread(cluster[leader].stop)
            await flow.after(300)
            count = await flow.end()
            found = await all_stored(cluster, "orders", count)
        check_each_once(found, flow.sent)
        check_order(found[0])
