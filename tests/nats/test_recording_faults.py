"""Services are recorded on when servers of NATS and leaders of partitions are killed: never twice, no reply alone."""

import asyncio
import contextlib
from collections import Counter
from pathlib import Path

import nats.errors
import pytest
from confluent_kafka import KafkaException
from nats.aio.client import Client
from nats.aio.msg import Msg
from tests.nats.servers import NatsServer, attach, end, needs_nats_server, on_a_loop, stored
from tests.support.brokers import ClusterBrokers
from tests.support.server import BrokerProcess
from tests.support.waiting import WAIT_S

import nats

pytestmark = needs_nats_server


PAUSE_S = 0.005
"""Between two requests: few enough that a busy machine's brokers do not lose their leases."""


class Asker:
    """Asks a service that doubles numbers, one number after the other, until it is told to end."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._ending = False
        self.answered = 0

    async def run(self) -> None:
        """Ask."""
        number = 0
        while not self._ending:
            number += 1
            try:
                reply = await self._client.request("double", b"%d" % number, timeout=1)
            except (nats.errors.Error, OSError):
                await asyncio.sleep(0.02)
            else:
                assert reply.data == b"%d" % (2 * number), "somebody else has answered"
                self.answered += 1
                await asyncio.sleep(PAUSE_S)

    def end(self) -> None:
        """Ask no other number."""
        self._ending = True


async def double(message: Msg) -> None:
    """The service."""
    await message.respond(b"%d" % (2 * int(message.data)))


async def grown(bootstrap: str, count: int) -> None:
    """Return once the stream holds so many records more."""
    wanted = None
    async with asyncio.timeout(2 * WAIT_S):
        while True:
            with contextlib.suppress(KafkaException):  # a new leader may not know yet what is committed
                held = await asyncio.to_thread(end, bootstrap, "doubled")
                wanted = held + count if wanted is None else wanted
                if held >= wanted:
                    return
            await asyncio.sleep(0.05)


def check(bootstrap: str) -> None:
    """No request and no reply is there twice, each reply is behind its request and answers it."""
    records = stored(bootstrap, "doubled", end(bootstrap, "doubled"))
    asked: dict[bytes | None, int] = {}
    seen = Counter((one.key, one.header("logboom-kind")[0]) for one in records)
    assert set(seen.values()) == {1}
    for one in records:
        if one.header("logboom-kind") == [b"request"]:
            asked[one.key] = int(one.value)
        else:
            assert int(one.value) == 2 * asked[one.key]
    replies = sum(1 for _, kind in seen if kind == b"reply")
    assert replies > len(asked) // 2


@on_a_loop
async def test_a_nats_server_that_is_killed(tmp_path: Path) -> None:
    with NatsServer(tmp_path) as server, BrokerProcess(tmp_path / "data", "--nats", server.url) as broker:
        attach(broker.kafka, "doubled", "", services="double")
        async with contextlib.AsyncExitStack() as stack:
            clients = [
                await stack.enter_async_context(
                    await nats.connect(server.url, max_reconnect_attempts=-1, reconnect_time_wait=0.05)
                )
                for _ in range(2)
            ]
            await clients[0].subscribe("double", "group", cb=double)
            asker = Asker(clients[1])
            running = asyncio.create_task(asker.run())
            await grown(broker.kafka, 50)
            server.kill()
            server.start()
            await grown(broker.kafka, 50)
            asker.end()
            await asyncio.wait_for(running, WAIT_S)
        check(broker.kafka)


@pytest.mark.slow
@on_a_loop
async def test_a_leader_that_is_killed(tmp_path: Path) -> None:
    with NatsServer(tmp_path) as server, ClusterBrokers(tmp_path, f"nats.servers={server.url}") as cluster:
        cluster.create("doubled", logboom_nats_services="double")
        async with contextlib.AsyncExitStack() as stack:
            clients = [await stack.enter_async_context(await nats.connect(server.url)) for _ in range(2)]
            await clients[0].subscribe("double", "group", cb=double)
            asker = Asker(clients[1])
            running = asyncio.create_task(asker.run())
            await grown(cluster.bootstrap, 50)
            leader = await asyncio.to_thread(cluster.leader, "doubled", 0)
            cluster[leader].kill9()
            await grown(cluster.bootstrap, 50)
            await asyncio.to_thread(cluster.start, leader)
            await asyncio.to_thread(cluster.wait_in_sync, "doubled")
            asker.end()
            await asyncio.wait_for(running, WAIT_S)
        check(cluster.bootstrap)
