"""Plain messages under way, leaderships that are given to other brokers meanwhile, and what is stored at the end."""

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Final

from confluent_kafka import KafkaException
from nats.aio.client import Client
from tests.nats.servers import end, metrics, stored
from tests.support.brokers import ClusterBrokers
from tests.support.commands import run_logboom
from tests.support.waiting import WAIT_S

import nats

PUBLISHERS: Final = 3
BURST: Final = 4
"""Messages that a publisher sends every 20 ms: few enough that a busy machine's brokers do not lose their leases."""


class Flow:
    """Plain messages, numbered by publisher, from when it is begun until it is ended."""

    def __init__(
        self,
        clients: list[Client],
        subject: Callable[[int, int], str],
        payload: Callable[[int, int], bytes] = lambda number, count: b"%d %d" % (number, count),
    ) -> None:
        """`subject`, `payload`: of the publisher's message of a number."""
        self.sent = [0] * len(clients)
        self._clients = clients
        self._subject = subject
        self._payload = payload
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
            for _ in range(BURST):
                count = self.sent[number]
                await client.publish(self._subject(number, count), self._payload(number, count))
                self.sent[number] += 1
            await client.flush()
            await asyncio.sleep(0.02)


@contextlib.asynccontextmanager
async def connected(*urls: str) -> AsyncIterator[list[Client]]:
    """Publishers, each with a connection of its own, to one of these servers after the other."""
    clients = [
        await nats.connect(urls[number % len(urls)], max_reconnect_attempts=-1, reconnect_time_wait=0.05)
        for number in range(PUBLISHERS)
    ]
    try:
        yield clients
    finally:
        for client in clients:
            await client.close()


def lead(cluster: ClusterBrokers, stream: str, *nodes: int) -> int:
    """Have the first of these brokers lead partition 0 of a stream; how many leaders that has changed."""
    before = cluster.leader(stream, 0)
    to = ",".join(map(str, nodes))
    cli("reassign", stream, "--to", to, "--bootstrap", cluster.bootstrap)
    if cluster.leader(stream, 0) != nodes[0]:
        cli("elect", stream, "0", "--bootstrap", cluster.bootstrap)
    return int(before != nodes[0])


def cli(*words: str) -> None:
    """`logboom cluster ...`"""
    done = run_logboom(["cluster", *words], timeout_s=WAIT_S)
    assert done.returncode == 0, done


async def all_stored(cluster: ClusterBrokers, streams: dict[str, int], count: int) -> list[list[bytes]]:
    """What each partition of these streams has got, once it is so much in all, or nothing more comes; without what
    `taken` has asked with."""
    deadline = time.monotonic() + WAIT_S
    while True:
        found = []
        with contextlib.suppress(KafkaException):  # a new leader may not know yet what is committed
            found = [
                await asyncio.to_thread(values_of, cluster.bootstrap, stream, index)
                for stream, partitions in streams.items()
                for index in range(partitions)
            ]
        if sum(map(len, found)) >= count or time.monotonic() > deadline:
            return found
        await asyncio.sleep(0.2)


def values_of(bootstrap: str, stream: str, index: int) -> list[bytes]:
    records = stored(bootstrap, stream, end(bootstrap, stream, index), index)
    return [one.value for one in records if one.value != b"probe"]


def counted(cluster: ClusterBrokers, name: str) -> int:
    """A metric of the way to NATS, of all brokers that run."""
    running = [metrics(broker.http) for broker in cluster.brokers.values() if broker.running]
    named = (f"logboom_nats_{name} ", f"logboom_nats_{name}{{")
    lines = [line for text in running for line in text.splitlines() if line.startswith(named)]
    return round(sum(float(line.split()[-1]) for line in lines))


async def handed_over(cluster: ClusterBrokers, count: int) -> None:
    """Return once leaders have taken over from others so often, or waited for them as long as they do."""
    async with asyncio.timeout(WAIT_S):
        while await asyncio.to_thread(_ended_handovers, cluster) < count:
            await asyncio.sleep(0.1)


def _ended_handovers(cluster: ClusterBrokers) -> int:
    return counted(cluster, "handovers_total") + counted(cluster, "failed_handovers_total")


def check_each_once(found: list[list[bytes]], sent: list[int]) -> None:
    """Every message is there, and once."""
    there = Counter(value for values in found for value in values)
    wanted = Counter(b"%d %d" % (number, at) for number, count in enumerate(sent) for at in range(count))
    assert (wanted - there, there - wanted) == (Counter(), Counter())


def check_at_most_once(found: Sequence[bytes], sent: Sequence[int]) -> None:
    """No message is there twice, or behind a later one of its publisher."""
    assert len(found) == len(set(found))
    assert len(found) <= sum(sent)
    check_order(found)


def check_order(values: Sequence[bytes]) -> None:
    """Each publisher's messages are in the order in which it published them."""
    for number in range(PUBLISHERS):
        own = [int(value.split()[1]) for value in values if value.startswith(b"%d " % number)]
        assert own == sorted(own)
