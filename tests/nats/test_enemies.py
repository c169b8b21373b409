"""Servers and peers that lie, or never end what they begin."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TypeAlias

import pytest
from tests.nats.servers import WAIT_S, on_a_loop
from tests.nats.test_link import linked, up
from tests.support.server import free_port

from logboom.nats.ingress.holding import HeldMessages, HoldingState
from logboom.nats.link.frames import Run
from logboom.nats.metrics import NatsMetrics

Serve: TypeAlias = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
"""What a server does once a client has logged in."""


@contextlib.asynccontextmanager
async def lying(serve: Serve) -> AsyncIterator[str]:
    """A server of NATS up to the log-in; its address."""
    served: set[asyncio.Task[None]] = set()

    async def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        served.add(task)
        try:
            writer.write(b'INFO {"server_id":"liar","version":"2.9.10","max_payload":1048576}\r\n')
            await reader.readuntil(b"PING\r\n")
            writer.write(b"PONG\r\n")
            await serve(reader, writer)
        except (OSError, asyncio.IncompleteReadError):
            pass  # the client has ended the connection
        finally:
            writer.close()

    port = free_port()
    server = await asyncio.start_server(accepted, "127.0.0.1", port)
    try:
        yield f"nats://127.0.0.1:{port}"
    finally:
        server.close()
        for task in served:
            task.cancel()
        await asyncio.gather(*served, return_exceptions=True)


@pytest.mark.parametrize("begun", [b"MSG a 1 1000000\r\n", b"HMSG a 1 12 4000000", b"INFO {", b"P"])
@on_a_loop
async def test_half_a_frame_for_ever(begun: bytes) -> None:
    """Bytes drip in, and no frame is ever whole: the pings that are not answered end the connection."""

    async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(begun)
        while True:
            writer.write(b"x")
            await writer.drain()
            await asyncio.sleep(0.01)

    metrics = NatsMetrics()
    async with lying(drip) as url, linked(metrics, servers=[url], ping_interval_s=0.2):
        async with asyncio.timeout(2 * WAIT_S):
            while metrics.disconnects["does not answer"] < 2:
                await asyncio.sleep(0.01)


@on_a_loop
async def test_what_comes_behind_the_answer_to_a_ping_is_known_to_come_later() -> None:
    """Both come in one read, before anybody who waits for the answer goes on. A leader that hands over a partition, and
    keeps its subscription for others, must not hold what came later."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await reader.readuntil(b"PING\r\n")
            writer.write(b"MSG a 1 6\r\nbefore\r\nPONG\r\nMSG a 1 5\r\nafter\r\n")

    holding = HeldMessages(0)
    holding.state = HoldingState.ENDING
    seen: list[tuple[bytes, HoldingState]] = []

    def arrived(run: Run) -> None:
        seen.extend((one.payload, holding.state) for one in run)

    def ended() -> None:
        holding.state = HoldingState.ENDED

    async with lying(answer) as url, linked(NatsMetrics(), servers=[url]) as link:
        await up(link)
        link.subscribe("a", None, arrived)
        await asyncio.wait_for(link.round_trip(ended), WAIT_S)
        async with asyncio.timeout(WAIT_S):
            while len(seen) < 2:
                await asyncio.sleep(0.01)
    assert seen == [(b"before", HoldingState.ENDING), (b"after", HoldingState.ENDED)]
