"""Peers that bring a request in trickles, or half-close: honest slow ones are served, the others let go of."""

import asyncio
import socket
import struct
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from tests.kafka.door import Running, batch, frame, running, until, written
from tests.kafka.door import run as run_real
from tests.kafka.test_hot_apis import fetch_request, produce_request
from tests.support.simulated import run

from logboom.kafka.connection.connection import Connection
from logboom.kafka.connection.state import Phase
from logboom.kafka.wire.messages import milliseconds

LOGGED: list[dict[str, Any]] = []


@pytest.fixture(autouse=True)
def logged(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Collect what the door logs."""
    LOGGED.clear()

    class Log:
        def warning(self, event: str, **fields: Any) -> None:
            LOGGED.append({"event": event, **fields})

        error = warning

    monkeypatch.setattr("structlog.get_logger", lambda *names: Log())
    yield
    assert not [line for line in LOGGED if line["event"] == "a request failed"]


def connection(node: Running) -> Connection:
    (one,) = node.services.registry.connections
    assert isinstance(one, Connection)
    return one


def has_come(one: Connection, begun_bytes: int) -> bool:
    return one._frames.begun_bytes == begun_bytes


BIG = frame(0, 9, 1, bytes(300_000))


@pytest.mark.parametrize("begun", [BIG[:1], BIG[:3], BIG[:4], BIG[:11], BIG[:100_000], frame(18, 0, 1, b"") + BIG[:2]])
def test_a_trickle_of_a_request_is_closed_in_its_time(tmp_path: Path, begun: bytes) -> None:
    """Seconds are ticks, and the test is the clock: at most a byte comes between two of them."""

    async def body() -> None:
        async with running(tmp_path, {"request_timeout_s": 5}) as node, node.client() as client:
            client.writer.write(begun)
            await until(lambda: node.metrics.connections and connection(node)._frames.in_frame)
            victim = connection(node)
            before, ticks = victim._frames.begun_bytes, 0
            while node.metrics.connections:
                ticks += 1
                victim.tick(0.0)
                if ticks < 5 and before > 3:
                    client.writer.write(b"\0")
                    await until(partial(has_come, victim, before + ticks))
                await asyncio.sleep(0)
                assert ticks < 10
            assert ticks > 5
            await client.closed()
            assert node.metrics.too_slow == 1
            (line,) = LOGGED
            assert line["event"] == "request that does not arrive"
            assert "in 5 s (kafka.request_timeout_s)" in line["why"]

    run(body)


def test_a_request_that_makes_progress_is_not_cut(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path, {"request_timeout_s": 2}) as node, node.client() as client:
            stream = await node.broker.catalog.create_stream("s")
            request = produce_request(9, stream, {0: batch(b"x" * 400_000)})
            data = frame(0, 9, 1, written(request))
            sent = 0
            for start in range(0, len(data), 16 * 1024):
                piece = data[start : start + 16 * 1024]
                client.writer.write(piece)
                sent += len(piece)
                if sent == len(data):
                    break
                await until(partial(has_come, connection(node), sent))
                connection(node).tick(0.0)
                connection(node).tick(0.0)  # two seconds for every 16 KiB
            client._waiting.append((0, 9, 1))
            reply = await client.reply()
            assert reply.responses[0].partition_responses[0].error_code is ErrorCode.none
            assert node.metrics.too_slow == 0

    run(body)


def test_small_requests_that_always_leave_a_piece_behind_are_no_trickle(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path, {"request_timeout_s": 1}) as node, node.client() as client:
            data = frame(18, 0, 1, b"")
            client.writer.write(data[:2])
            for _ in range(5):
                client.writer.write(data[2:] + data[:2])
                await client.frame()
                connection(node).tick(0.0)
                connection(node).tick(0.0)
            assert node.metrics.too_slow == 0

    run(body)


def test_a_peer_whose_requests_wait_for_the_broker_is_not_closed(tmp_path: Path) -> None:
    """While a limit keeps the socket unread, what lies in it is no fault of the peer's."""

    async def body() -> None:
        limits = {"request_timeout_s": 1, "max_inflight_requests": 1}
        async with running(tmp_path, limits) as node, node.client() as client:
            stream = await node.broker.catalog.create_stream("s")
            client.send(1, 12, fetch_request(12, stream, {0: 0}, max_wait=milliseconds(3_000), min_bytes=1))
            client.writer.write(frame(18, 0, 2, b"") + BIG[:7])
            await until(lambda: node.metrics.waiting_fetches and not connection(node)._state.reads)
            for _ in range(5):
                connection(node).tick(0.0)
            assert node.metrics.connections == 1
            await client.reply()
            assert (await client.frame())[:4] == b"\0\0\0\x02"

    run(body)


def test_a_peer_that_trickles_is_closed_by_the_doors_own_clock(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path, {"request_timeout_s": 0.5}) as node, node.client() as client:
            client.writer.write(BIG[:20])
            assert await client.closed() == b""
            async with node.client() as other:
                assert (await other.ask(18, 0)).error_code is ErrorCode.none

    run(body)


@pytest.mark.parametrize("fast", [True, False])
def test_a_half_closed_peer_gets_its_answers(tmp_path: Path, fast: bool) -> None:
    """As with Kafka: `printf ... | nc` works, also where the answer takes the disk."""

    async def body() -> None:
        async with running(tmp_path) as node:
            stream = await node.broker.catalog.create_stream("s")
            requests = [written(produce_request(9, stream, {0: batch(b"x")})) for _ in range(20)]
            reader, writer = await asyncio.open_connection(*node.address)
            for number, request in enumerate(requests):
                writer.write(frame(0, 9, number, request) + frame(18, 0, 100 + number, b""))
            writer.write_eof()
            answers = await reader.read()
            numbers, position = [], 0
            while position < len(answers):
                size, number = struct.unpack_from(">ii", answers, position)
                numbers.append(number)
                position += 4 + size
            assert numbers == [one for number in range(20) for one in (number, 100 + number)]
            writer.close()
            assert node.broker.replicas.find("s", 0).log_end_offset == 20
            await until(lambda: not node.metrics.connections)
            assert (node.metrics.inflight_requests, node.metrics.inflight_bytes) == (0, 0)

    run_real(body, fast=fast)


@pytest.mark.parametrize("sent", [b"", b"\0", BIG[:50]])
def test_a_half_closed_peer_that_asked_for_nothing_is_let_go_of(tmp_path: Path, sent: bytes) -> None:
    async def body() -> None:
        async with running(tmp_path) as node:
            reader, writer = await asyncio.open_connection(*node.address)
            writer.write(sent)
            writer.write_eof()
            assert await reader.read() == b""
            writer.close()
            await until(lambda: not node.metrics.connections)

    run(body)


def test_a_half_closed_peer_that_waits_for_records_is_closed(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path) as node, node.client() as client:
            stream = await node.broker.catalog.create_stream("s")
            client.send(1, 12, fetch_request(12, stream, {0: 0}, max_wait=milliseconds(60_000), min_bytes=1))
            await until(lambda: node.metrics.waiting_fetches)
            client.writer.write_eof()
            assert await client.closed() == b""
            assert node.metrics.waiting_fetches == 0

    run(body)


@pytest.mark.uncompiled
def test_a_half_closed_peer_whose_reply_never_comes_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def body() -> None:
        async with running(tmp_path, {"request_timeout_s": 3}) as node, node.client() as client:
            stream = await node.broker.catalog.create_stream("s")
            held: list[Any] = []
            partition = node.broker.replicas.find("s", 0)
            monkeypatch.setattr(type(partition), "append", lambda self, *a, done, **k: held.append(done))
            client.send(0, 9, produce_request(9, stream, {0: batch(b"x")}, timeout=milliseconds(100_000)))
            await until(lambda: held)
            client.writer.write_eof()
            await until(lambda: connection(node)._state.phase is Phase.HALF_CLOSED)
            ticks = 0
            while node.metrics.connections:
                connection(node).tick(0.0)
                ticks += 1
                await asyncio.sleep(0.002)
                assert ticks < 10
            assert await client.closed() == b""
            assert (node.metrics.inflight_requests, node.metrics.inflight_bytes) == (0, 0)

    run(body)


def test_a_peer_that_breaks_off_in_the_middle_leaves_nothing(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path) as node:
            for linger in (b"\1\0\0\0\0\0\0\0", None):
                stranger = socket.create_connection(node.address)
                stranger.sendall(BIG[:100_000])
                await until(lambda: node.metrics.connections)
                if linger:  # closing sends a reset
                    stranger.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                stranger.close()
                await until(lambda: not node.metrics.connections)
            assert node.metrics.failures == 0

    run_real(body)
