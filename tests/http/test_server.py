"""The HTTP server in simulated time: bounded whatever its peers do. `test_service` has it on real sockets."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Any

import pytest
import structlog
from tests.support.simulated import machine, run

from logboom.base.settings import split_address
from logboom.http.request import Request
from logboom.http.server import HttpServer, Response

GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
TIMEOUT_S = 10.0


class Serving:
    """A server of at most two connections; requests of `/wait` are answered once the gate is open."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.cancelled = 0
        self.log: Any = structlog.testing.CapturingLogger()
        self.server = HttpServer(
            self.answer,
            max_connections=2,
            request_timeout_s=TIMEOUT_S,
            clock=machine()[0].clock,
            log=structlog.wrap_logger(self.log, processors=[]),
        )
        self.address = ("", 0)

    async def answer(self, request: Request) -> Response:
        if request.path == "/wait":
            try:
                await self.gate.wait()
            except asyncio.CancelledError:
                self.cancelled += 1
                raise
        if request.path == "/fault":
            raise KeyError("fault")
        if request.path == "/large":
            return Response(HTTPStatus.OK, bytes(1 << 20))
        return Response(HTTPStatus.OK, b"hello", headers=[("X-Query", request.query)])

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection(*self.address)

    async def exchange(self, *pieces: bytes, eof: bool = False) -> bytes:
        """All that comes back."""
        reader, writer = await self.connect()
        for piece in pieces:
            writer.write(piece)
            await asyncio.sleep(0.1)
        if eof:
            writer.write_eof()
        return await rest_of(reader, writer)


async def rest_of(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
    received = b""
    try:
        while chunk := await reader.read(1 << 16):
            received += chunk
    except ConnectionError:
        pass
    writer.close()
    return received


def serving(body: Callable[[Serving], Awaitable[None]]) -> None:
    @asynccontextmanager
    async def started() -> Any:
        serving = Serving()
        serving.address = split_address(await serving.server.start("127.0.0.1:0"))
        try:
            yield serving
        finally:
            await serving.server.stop()
        assert serving.server.connections == 0

    async def main() -> None:
        async with started() as one:
            await body(one)

    run(main)


def now_s() -> float:
    return asyncio.get_running_loop().time()


def test_it_answers_however_the_request_is_cut() -> None:
    async def body(serving: Serving) -> None:
        whole = await serving.exchange(b"GET /?a=b HTTP/1.1\r\nHost: x\r\n\r\n")
        assert whole.startswith(b"HTTP/1.0 200 OK\r\nDate: Thu, 01 Jan 2026 00:")
        assert whole.endswith(b"\r\nContent-Length: 5\r\nConnection: close\r\nX-Query: a=b\r\n\r\nhello")
        cut = await serving.exchange(*(bytes([byte]) for byte in GET))
        assert cut.endswith(b"\r\n\r\nhello")
        assert (await serving.exchange(GET, eof=True)).endswith(b"\r\n\r\nhello")
        assert (await serving.exchange(GET.replace(b"GET", b"HEAD"))).endswith(b"X-Query: \r\n\r\n")

    serving(body)


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"POST / HTTP/1.1\r\nHost: x\r\n\r\n", b" 405 "),
        (b"GET /" + b"a" * 9_000 + b" HTTP/1.1\r\n\r\n", b" 414 "),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\r\n\r\n", b" 400 "),
        (b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 200 + b"\r\n", b" 431 "),
        (b"PRI * HTTP/2.0\r\n\r\n", b" 505 "),
    ],
    ids=["method", "long line", "tls", "many headers", "http/2"],
)
def test_anything_but_a_short_get_is_refused(data: bytes, status: bytes) -> None:
    async def body(serving: Serving) -> None:
        assert status in (await serving.exchange(data)).partition(b"\r\n")[0]
        assert b" 200 " in await serving.exchange(GET)

    serving(body)


def test_a_request_that_breaks_off_is_refused_and_an_empty_one_closed() -> None:
    async def body(serving: Serving) -> None:
        assert b" 400 " in await serving.exchange(b"GET / HT", eof=True)
        assert await serving.exchange(eof=True) == b""

    serving(body)


@pytest.mark.parametrize("sent", [b"", b"GET / HT", b"GET /wait HTTP/1.0\r\n\r\n"], ids=["silent", "half", "waiting"])
def test_a_connection_is_closed_when_its_time_is_over(sent: bytes) -> None:
    async def body(serving: Serving) -> None:
        began_s = now_s()
        assert await serving.exchange(sent) == b""
        assert TIMEOUT_S <= now_s() - began_s < TIMEOUT_S + 0.1
        assert serving.server.connections == 0
        assert serving.cancelled == (b"/wait" in sent)

    serving(body)


def test_a_peer_that_sends_one_byte_at_a_time_has_no_more_time_than_others() -> None:
    async def body(serving: Serving) -> None:
        reader, writer = await serving.connect()
        began_s = now_s()
        while not reader.at_eof() and reader.exception() is None:
            writer.write(b"G")
            await asyncio.sleep(0.5)
        assert now_s() - began_s < TIMEOUT_S + 1
        writer.close()

    serving(body)


def test_a_peer_that_reads_nothing_is_closed_when_its_time_is_over() -> None:
    async def body(serving: Serving) -> None:
        reader, writer = await serving.connect()
        writer.transport.pause_reading()  # type: ignore[attr-defined]  # a reading transport
        writer.write(b"GET /large HTTP/1.0\r\n\r\n")
        await asyncio.sleep(TIMEOUT_S - 1)
        assert serving.server.connections == 1
        await asyncio.sleep(2)
        assert serving.server.connections == 0
        writer.transport.resume_reading()  # type: ignore[attr-defined]  # the same
        assert len(await rest_of(reader, writer)) < 1 << 20

    serving(body)


def test_one_connection_too_many_is_closed_at_once_and_logged_once() -> None:
    async def body(serving: Serving) -> None:
        waiting = [await serving.connect() for _ in range(2)]
        for _, writer in waiting:
            writer.write(b"GET /wait HTTP/1.0\r\n\r\n")
        await asyncio.sleep(0.1)
        for _ in range(3):
            assert await serving.exchange(GET) == b""
        assert serving.server.refused == 3
        warned = [call.kwargs for call in serving.log.calls]
        assert [(line["event"], line["limit"], line["refused"]) for line in warned] == [
            ("limit reached", "http.max_connections", 1)
        ]
        serving.gate.set()
        for reader, writer in waiting:
            assert b" 200 " in await rest_of(reader, writer)
        assert b" 200 " in await serving.exchange(GET)

    serving(body)


def test_a_fault_of_the_application_ends_one_request() -> None:
    async def body(serving: Serving) -> None:
        assert b" 500 " in await serving.exchange(b"GET /fault HTTP/1.0\r\n\r\n")
        (logged,) = serving.log.calls
        assert isinstance(logged.kwargs["exc_info"], KeyError)
        assert b" 200 " in await serving.exchange(GET)

    serving(body)


def test_stop_does_not_wait_for_slow_peers() -> None:
    async def body(serving: Serving) -> None:
        reader, writer = await serving.connect()
        writer.write(b"GET / HT")
        await asyncio.sleep(0.1)
        began_s = now_s()
        await serving.server.stop()
        assert now_s() == began_s
        assert await rest_of(reader, writer) == b""
        with pytest.raises(ConnectionRefusedError):
            await serving.connect()

    serving(body)
