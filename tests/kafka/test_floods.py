"""Clients that send much at once: all others, the timers and the disk's threads have their turn in between.

On uvloop, as a broker runs; it would read 32 times from one socket before anything else.
"""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.kafka.door import Running, frame, run, running
from tests.support.clock import ManualClock
from tests.support.waiting import WAIT_S

from logboom.base.units import KIB, MIB

API_VERSIONS = 18
PER_TURN = 64


def requests(count: int, client_id_bytes: int) -> bytes:
    return frame(API_VERSIONS, 0, 1, b"", client_id=b"x" * client_id_bytes) * count


def fill(conn: socket.socket, data: memoryview) -> int:
    """Send until the sockets between the two sides are full; how much went out."""
    sent = 0
    conn.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        while sent < len(data):
            sent += conn.send(data[sent : sent + 64 * KIB])
    conn.settimeout(WAIT_S)
    return sent


def finish(conn: socket.socket, data: memoryview, answers: int) -> None:
    """Send the rest, and read all answers meanwhile."""
    with ThreadPoolExecutor(1) as reading:
        done = reading.submit(read_answers, conn, answers)
        conn.sendall(data)
        done.result(WAIT_S)


def read_answers(conn: socket.socket, count: int) -> None:
    left = b""
    while count:
        left += conn.recv(MIB)
        while len(left) >= 4 and len(left) >= 4 + (size := int.from_bytes(left[:4], "big")):
            left = left[4 + size :]
            count -= 1


@asynccontextmanager
async def connected(node: Running) -> AsyncIterator[socket.socket]:
    """A socket that the broker has accepted."""
    before = node.metrics.connections_total
    with socket.create_connection(node.address) as conn:
        while node.metrics.connections_total == before:
            await asyncio.sleep(0)
        yield conn


async def most_in_a_turn(node: Running, conn: socket.socket, data: bytes, answers: int) -> int:
    """How many requests began in one turn of the loop, at most. The loop does nothing while the sockets fill."""
    view, loop = memoryview(data), asyncio.get_running_loop()
    began = node.metrics.api(API_VERSIONS)
    sent = fill(conn, view)
    flood = loop.run_in_executor(None, finish, conn, view[sent:], answers)
    most, before = 0, began.requests
    while not flood.done():
        await asyncio.sleep(0)
        most, before = max(most, began.requests - before), began.requests
    await flood
    return most


def test_a_flood_leaves_others_their_turn(tmp_path: Path) -> None:
    """Each read of 128 KiB holds fewer requests than may begin in a turn, so nothing but their bytes stops the next."""

    async def body() -> int:
        async with running(tmp_path) as node, connected(node) as conn:
            count = 4_000
            return await most_in_a_turn(node, conn, requests(count, 2 * KIB), count)

    assert run(body) <= 2 * PER_TURN  # what was left of one read, and another one


def test_requests_that_take_long_leave_others_their_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each seems to take 2 ms: fewer begin in a turn than of those that cost nothing."""

    class Slow(ManualClock):
        def monotonic_s(self) -> float:
            self.now_s += 0.002
            return self.now_s

    async def body() -> int:
        async with running(tmp_path) as node:
            with monkeypatch.context() as patched:
                patched.setattr(node.broker, "clock", Slow())
                async with connected(node) as conn:
                    return await most_in_a_turn(node, conn, requests(500, 1), 500)

    assert run(body) <= 2 * 3
