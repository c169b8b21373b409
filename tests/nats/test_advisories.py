"""What people read in `__advisories` when messages of NATS were not stored."""

import asyncio
import json
import socket
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

import pytest
import structlog
from tests.nats.servers import (
    NatsServer,
    alter,
    attach,
    end,
    grow,
    metrics,
    needs_nats_server,
    on_a_loop,
    published,
    stored,
    taken,
)
from tests.support.brokers import ClusterBrokers
from tests.support.commands import run_logboom
from tests.support.server import BrokerProcess
from tests.support.waiting import WAIT_S

import nats
from logboom.app.supervisor import nats_server
from logboom.base.ids import StreamId
from logboom.base.units import MIB
from logboom.nats.ingress.plan import Attached, are_chosen_apart

pytestmark = needs_nats_server


def advisories(bootstrap: str, wanted: dict[str, int]) -> dict[str, dict[str, Any]]:
    """The last advisory of each type, with the count of all of them; waits until there are as many as are wanted."""
    count, deadline = 1, time.monotonic() + WAIT_S
    while True:
        by_type: dict[str, dict[str, Any]] = {}
        for record in stored(bootstrap, "__advisories", count):
            one = json.loads(record.value)
            one["count"] += by_type.get(one["type"], {"count": 0})["count"]
            by_type[one["type"]] = one
        if all(by_type.get(kind, {"count": 0})["count"] >= least for kind, least in wanted.items()):
            return by_type
        assert time.monotonic() < deadline, by_type
        count += 1


@on_a_loop
async def test_what_is_not_stored_is_told_to_people(tmp_path: Path) -> None:
    with NatsServer(tmp_path) as server, BrokerProcess(tmp_path / "data", "--nats", server.url) as broker:
        attach(broker.kafka, "short", "short")
        alter(broker.kafka, "short", "max.message.bytes", "1000")
        async with await nats.connect(server.url) as client:
            await taken(client, "short")
            for _ in range(3):
                await client.publish("short", bytes(2_000))
            assert (await published(client, "short", bytes(2_000)))["error"]["err_code"] == 10054
            wrong = await published(client, "short", b"x", Nats_Expected_Last_Sequence="99")
            assert wrong["error"]["err_code"] == 10071
        server.kill()
        found = await asyncio.to_thread(
            advisories, broker.kafka, {"nats.dropped": 3, "nats.refused": 1, "nats.disconnected": 1}
        )
        dropped, refused, lost = (found[f"nats.{kind}"] for kind in ("dropped", "refused", "disconnected"))
        assert (dropped["stream"], dropped["reason"], dropped["count"]) == ("short", "message_too_large", 3)
        assert (refused["stream"], refused["reason"], refused["count"]) == ("short", "message_too_large", 1)
        assert lost["reason"] in ("closed by the server", "broken")
        shown = await asyncio.to_thread(
            run_logboom, ["tail", "__advisories", "--bootstrap", broker.kafka], timeout_s=2 * WAIT_S
        )
        assert b'"type":"nats.dropped"' in shown.stdout
        counted = metrics(broker.http)
        assert 'logboom_advisories_total{type="nats.dropped"} 3.0' in counted
        assert 'logboom_nats_dropped_total{reason="message_too_large"} 3.0' in counted


@pytest.mark.slow
@on_a_loop
async def test_advisories_of_every_broker_are_in_one_stream(tmp_path: Path) -> None:
    with NatsServer(tmp_path) as server, ClusterBrokers(tmp_path, f"nats.servers={server.url}") as cluster:
        cluster.create("own", partitions=3, logboom_nats_subjects="own.{partition}", max_message_bytes="1000")
        async with await nats.connect(server.url) as client:
            for index in range(3):
                await taken(client, f"own.{index}")
                await client.publish(f"own.{index}", bytes(2_000))
            await client.flush()
        await asyncio.to_thread(advisories, cluster.bootstrap, {"nats.dropped": 3})
        held = stored(cluster.bootstrap, "__advisories", end(cluster.bootstrap, "__advisories"))
        senders = {json.loads(one.value)["broker"] for one in held}
        assert len(senders) > 1


@pytest.mark.slow
@on_a_loop
async def test_a_change_of_where_messages_belong_is_told(tmp_path: Path) -> None:
    """Brokers learn of it one after the other, so that each may take a message, or neither: once for a change, by the
    broker that leads the first partition."""
    with NatsServer(tmp_path) as server, ClusterBrokers(tmp_path, f"nats.servers={server.url}") as cluster:
        cluster.create("parted", partitions=3, logboom_nats_subjects="parted.*")
        cluster.create("alone", logboom_nats_subjects="alone.*")
        async with await nats.connect(server.url) as client:
            await taken(client, "parted.probe")
        await asyncio.to_thread(alter, cluster.bootstrap, "alone", "logboom.nats.partitioner", "subject")
        await asyncio.to_thread(alter, cluster.bootstrap, "parted", "logboom.nats.ack", "leader")
        await asyncio.to_thread(alter, cluster.bootstrap, "parted", "logboom.nats.partitioner", "token:2")
        await asyncio.to_thread(grow, cluster.bootstrap, "parted", 4)
        found = await asyncio.to_thread(advisories, cluster.bootstrap, {"nats.repartitioned": 2})
        assert (found["nats.repartitioned"]["stream"], found["nats.repartitioned"]["count"]) == ("parted", 2)


@pytest.mark.parametrize(
    ("before", "after", "apart"),
    [
        ((3, False, "key header"), (3, False, "key subject"), True),
        ((3, False, "key header"), (4, False, "key header"), True),
        ((1, False, "key header"), (2, False, "key header"), True),
        ((3, True, "round_robin"), (3, False, "subject"), True),
        ((1, True, "round_robin"), (2, True, "round_robin"), True),
        ((2, True, "round_robin"), (3, True, "round_robin"), False),
        ((3, False, "subject"), (3, False, "subject"), False),
        ((1, False, "subject"), (1, False, "key header"), False),
    ],
)
def test_which_changes_may_be_taken_differently(
    before: tuple[int, bool, str], after: tuple[int, bool, str], apart: bool
) -> None:
    def attached(subject: str, settings: tuple[int, bool, str]) -> Attached:
        return Attached(StreamId(UUID(int=1)), "s", (subject,), None, *settings)

    assert are_chosen_apart(attached("a.*", before), attached("a.*", after)) is apart
    assert not are_chosen_apart(attached("a.{partition}", before), attached("a.{partition}", after))


def test_a_client_that_answers_no_pings_is_cut_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A frozen broker would keep its part of each queue for minutes."""
    monkeypatch.setattr(nats_server, "_PING_S", 1)

    async def body() -> None:
        server = nats_server.EmbeddedNats("127.0.0.1:0", tmp_path / "nats.conf", structlog.get_logger())
        await server.start()
        try:
            address = urlsplit(server.url)
            reader, writer = await asyncio.open_connection(address.hostname, address.port)
            writer.write(b'CONNECT {"verbose":false}\r\nSUB work crew 1\r\nPING\r\n')
            said = await reader.read()
            writer.close()
        finally:
            await server.stop()
        assert b"Stale Connection" in said

    asyncio.run(asyncio.wait_for(body(), WAIT_S))


def test_a_client_that_does_not_read_is_told_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nats_server, "_PENDING_MAX_BYTES", 2 * MIB)

    async def body() -> None:
        server = nats_server.EmbeddedNats("127.0.0.1:0", tmp_path / "nats.conf", structlog.get_logger())
        told: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        server.on_slow_consumer = told.set_result
        await server.start()
        try:
            address = urlsplit(server.url)
            with socket.create_connection((address.hostname, address.port), timeout=WAIT_S) as slow:
                slow.sendall(b'CONNECT {"verbose":false,"name":"does-not-read"}\r\nSUB loud 1\r\nPING\r\n')
                async with await nats.connect(server.url) as client:
                    while not told.done():
                        await client.publish("loud", bytes(1_000_000))
                        await client.flush(WAIT_S)
            assert "Slow Consumer Detected" in told.result()
            assert server.slow_consumers == 1
        finally:
            await server.stop()

    asyncio.run(asyncio.wait_for(body(), 3 * WAIT_S))
