"""Streams of a group while brokers and servers of NATS are killed under load; each message has its history checked."""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from nats.aio.client import Client
from tests.nats.publisher import NOT_NOW, RetryingPublisher
from tests.nats.servers import NatsServer, Stored, end, nats_cluster, needs_nats_server, on_a_loop, stored
from tests.support.brokers import ClusterBrokers
from tests.support.waiting import WAIT_S

import nats

pytestmark = [needs_nats_server, pytest.mark.slow]

GROUP = ("third-1", "third-2", "third-3")
WHOLE = "whole"
"""A stream of the same subject outside the group, which gets all and answers nothing."""


class Publisher(RetryingPublisher[bytes]):
    """Publishes numbers, some with ids and until they are acked, others plainly; `acked` has stream and sequence."""

    def __init__(self, client: Client) -> None:
        super().__init__(client)
        self._client = client
        self._plain = 0

    async def run(self) -> None:
        """Publish, eight at a time, and a plain one now and then."""
        await asyncio.gather(self._publish_plain(), *(self._publish_acked() for _ in range(8)))

    async def _publish_acked(self) -> None:
        while not self._ending:
            text, self._next = b"acked %d" % self._next, self._next + 1
            ack = await self._until_acked(text, "orders.acked", text, text.decode())
            self.acked[text] = ack.stream, ack.seq

    async def _publish_plain(self) -> None:
        while not self._ending:
            try:
                await self._client.publish("orders.plain", b"plain %d" % self._plain)
            except NOT_NOW:
                await asyncio.sleep(0.05)
            self._plain += 1
            await asyncio.sleep(0.002)


def check(publisher: Publisher, bootstrap: str) -> None:
    """What was acked is where its ack says. Who was not tried again is in one stream of the group, who was may be in
    several, in each of them once. A plain message is at most in one of them, and in the whole stream in its order."""
    held = {stream: stored(bootstrap, stream, end(bootstrap, stream)) for stream in (*GROUP, WHOLE)}
    for text, (stream, sequence) in publisher.acked.items():
        assert stream in GROUP
        assert held[stream][sequence - 1].value == text
    for stream, records in held.items():
        assert not _twice([one.value for one in records]), stream
    group = [one.value for stream in GROUP for one in held[stream]]
    twice = _twice(group)
    assert twice <= publisher.tried_again.keys()
    plain = [_number(one) for one in held[WHOLE] if one.value.startswith(b"plain")]
    assert plain == sorted(plain)
    assert len(plain) > 100
    assert sum(value.startswith(b"plain") for value in group) > 100


def _twice(values: Sequence[bytes]) -> set[bytes]:
    return {value for value, count in Counter(values).items() if count > 1}


def _number(record: Stored) -> int:
    return int(record.value.removeprefix(b"plain "))


def attach_all(cluster: ClusterBrokers) -> None:
    """The group, whose streams have leaders on several brokers, and the whole stream."""
    for stream in GROUP:
        cluster.create(stream, logboom_nats_subjects="orders.>", logboom_nats_group="thirds")
    cluster.create(WHOLE, logboom_nats_subjects="orders.>", logboom_nats_ack="none")


async def under_load(
    cluster: ClusterBrokers, urls: list[str], breakages: Sequence[Callable[[], None]], mend: Callable[[], None]
) -> None:
    """Break one thing after the other while messages flow, mend it, and check all that was published."""
    attach_all(cluster)
    async with await nats.connect(urls, max_reconnect_attempts=-1, reconnect_time_wait=0.05) as client:
        publisher = Publisher(client)
        running = asyncio.create_task(publisher.run())
        await publisher.after(100)
        for break_it in breakages:
            await asyncio.to_thread(break_it)
            await publisher.after(150)
            await asyncio.to_thread(mend)
            await publisher.after(50)
        publisher.end()
        await asyncio.wait_for(running, 2 * WAIT_S)
    await asyncio.to_thread(check, publisher, cluster.bootstrap)


def settle(cluster: ClusterBrokers) -> None:
    """All brokers run, and all replicas are in sync."""
    cluster.start(*(number for number, broker in cluster.brokers.items() if not broker.running))
    for stream in (*GROUP, WHOLE):
        cluster.wait_in_sync(stream)


@on_a_loop
async def test_brokers_and_the_server_are_killed(tmp_path: Path) -> None:
    """`under_load` compares all that was published with what the streams have."""
    with NatsServer(tmp_path) as server, ClusterBrokers(tmp_path, f"nats.servers={server.url}") as cluster:

        def kill_a_leader() -> None:
            cluster[cluster.leader(GROUP[0], 0)].kill9()

        def restart_the_server() -> None:
            server.kill()
            server.start()

        def kill_a_leader_and_the_server() -> None:
            kill_a_leader()
            restart_the_server()

        def kill_all_brokers() -> None:
            cluster.kill_all()
            settle(cluster)

        breakages = (kill_a_leader, restart_the_server, kill_a_leader_and_the_server, kill_all_brokers, kill_a_leader)
        await under_load(cluster, [server.url], breakages, lambda: settle(cluster))


@on_a_loop
async def test_brokers_and_servers_of_a_cluster_are_killed(tmp_path: Path) -> None:
    """`under_load` compares all that was published with what the streams have."""
    with (
        nats_cluster(tmp_path) as servers,
        ClusterBrokers(
            tmp_path,
            own_settings={
                number: "nats.servers=" + ",".join(one.url for one in (servers[number % 2], servers[1 - number % 2]))
                for number in (1, 2, 3)
            },
        ) as cluster,
    ):

        def kill(number: int) -> None:
            servers[number].kill()

        def kill_a_leader_and(number: int) -> None:
            cluster[cluster.leader(GROUP[1], 0)].kill9()
            servers[number].kill()

        def mend() -> None:
            for server in servers:
                server.kill()
                server.start()
            settle(cluster)

        breakages = (lambda: kill(0), lambda: kill(1), lambda: kill_a_leader_and(0), lambda: kill_a_leader_and(1))
        await under_load(cluster, [one.url for one in servers], breakages, mend)
