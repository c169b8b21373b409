"""What the listener for brokers costs, beside a plain echo on the same event loop: `python -m tests.peer.measure`.

Each side is a process of its own. Told are rates, which depend on what else the machine does, and the CPU time of both
sides, which hardly does: for each MB of answers of 256 KiB, and for each request and answer of 100 bytes. Not a test.
"""

import asyncio
import multiprocessing
import os
import time
from collections.abc import Awaitable, Callable
from multiprocessing.connection import Connection as Pipe
from pathlib import Path
from typing import Final, cast

import structlog
import uvloop
from tests.peer.servers import KEY, address, identity

from logboom.base.ids import BrokerId
from logboom.base.units import KIB
from logboom.broker.peers import Address, FrameKind, PeerIdentity
from logboom.broker.runtime import Runtime
from logboom.peer.config import PeerConfig
from logboom.peer.server import PeerServer

LONG: Final = os.urandom(256 * KIB)
SHORT: Final = bytes(100)
ASK_LONG: Final = b"long"
PREFIX_BYTES: Final = 32
RUNS: Final = (("long", 1_000, 1), ("long", 2_000, 4), ("short", 3_000, 1), ("short", 20_000, 64))
"""Which answer, how many, and how many at a time."""
Call = Callable[[bool], Awaitable[object]]


class PlainAnswers(asyncio.Protocol):
    """Length, body; answers with the same, or with the long answer."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self.rest = b""

    def data_received(self, data: bytes) -> None:
        data = self.rest + data
        while len(data) >= PREFIX_BYTES:
            end = PREFIX_BYTES + int.from_bytes(data[:4], "big")
            if len(data) < end:
                break
            body, data = data[PREFIX_BYTES:end], data[end:]
            self.transport.writelines(framed(LONG if body == ASK_LONG else body))
        self.rest = data


def framed(body: bytes) -> tuple[bytes, bytes]:
    return len(body).to_bytes(4, "big") + bytes(PREFIX_BYTES - 4), body


class PlainAsker(asyncio.BufferedProtocol):
    """Asks, and reads long answers into buffers of their own."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self.waiting: list[asyncio.Future[None]] = []
        self.scratch = memoryview(bytearray(256 * KIB))
        self.rest = b""
        self.body: bytearray | None = None
        self.filled = 0

    def get_buffer(self, sizehint: int) -> memoryview:
        return self.scratch if self.body is None else memoryview(self.body)[self.filled :]

    def buffer_updated(self, nbytes: int) -> None:
        if self.body is not None:
            self.filled += nbytes
            if self.filled == len(self.body):
                self.body = None
                self.waiting.pop(0).set_result(None)
            return
        data = self.rest + bytes(self.scratch[:nbytes])
        while len(data) >= PREFIX_BYTES:
            size = int.from_bytes(data[:4], "big")
            if len(data) < PREFIX_BYTES + size:
                self.body, self.filled = bytearray(size), len(data) - PREFIX_BYTES
                self.body[: self.filled] = data[PREFIX_BYTES:]
                data = b""
            else:
                data = data[PREFIX_BYTES + size :]
                self.waiting.pop(0).set_result(None)
        self.rest = data

    async def call(self, long: bool) -> None:
        self.waiting.append(asyncio.get_running_loop().create_future())
        self.transport.writelines(framed(ASK_LONG if long else SHORT))
        await self.waiting[-1]


async def started(broker_id: int, seal_records: bool) -> PeerServer:
    config = PeerConfig(listen="127.0.0.1:0", key_file=Path("of-no-use"), seal_records=seal_records)
    made = PeerServer(config, (KEY,), runtime=Runtime(), log=structlog.get_logger())
    await made.start()
    made.identify(identity(broker_id))
    return made


async def answer(way: str, pipe: Pipe) -> None:
    """The process that answers: its port, then its CPU time whenever that is asked for."""
    loop = asyncio.get_running_loop()
    if way == "plain":
        server = await loop.create_server(PlainAnswers, "127.0.0.1", 0)
        pipe.send(server.sockets[0].getsockname()[1])
    else:
        two = await started(2, way == "all sealed")

        async def echo(who: PeerIdentity, body: memoryview) -> list[memoryview]:
            return [body]

        async def long(who: PeerIdentity, body: memoryview) -> list[bytes]:
            return [b"what decides", LONG]

        two.serve(FrameKind.CONTROL, echo)
        two.serve(FrameKind.FETCH, long)
        pipe.send(address(two).port)
    loop.add_reader(pipe.fileno(), lambda: pipe.send(pipe.recv() and time.process_time()))
    await asyncio.Event().wait()


async def asker(way: str, port: int) -> Call:
    if way == "plain":
        _, plain = await asyncio.get_running_loop().create_connection(PlainAsker, "127.0.0.1", port)
        return plain.call
    one, two = await started(1, way == "all sealed"), BrokerId(2)
    one.locate({two: Address("127.0.0.1", port)})

    def call(long: bool) -> Awaitable[object]:
        kind, body = (FrameKind.FETCH, ASK_LONG) if long else (FrameKind.CONTROL, SHORT)
        return one.call(two, kind, [body], timeout_s=60)

    return call


async def measure(way: str, pipe: Pipe) -> None:
    call = await asker(way, pipe.recv())
    await call(True)
    await call(False)
    for size, count, at_a_time in RUNS:

        async def ask(long: bool = size == "long", times: int = count // at_a_time) -> None:
            for _ in range(times):
                await call(long)

        pipe.send(True)
        before_there, before, begun = pipe.recv(), time.process_time(), time.perf_counter()
        await asyncio.gather(*(ask() for _ in range(at_a_time)))
        took, here = time.perf_counter() - begun, time.process_time() - before
        pipe.send(True)
        there = pipe.recv() - before_there
        if size == "long":
            mb = count * len(LONG) / 1e6
            told = f"{mb / took:6.0f} MB/s   {here / mb * 1e3:5.2f} {there / mb * 1e3:5.2f} ms/MB"
        else:
            told = f"{count / took:6.0f} calls/s {here / count * 1e6:5.1f} {there / count * 1e6:5.1f} us/call"
        print(f"{way:10} {size:5} {at_a_time:2} at a time  {told}", flush=True)


def main() -> None:
    """Each way twice, in turns."""
    print("way, answer, rate, CPU of who asks and of who answers")
    context = multiprocessing.get_context("spawn")
    for way in ("plain", "sealed", "all sealed") * 2:
        here, there = context.Pipe()
        answering = context.Process(target=answer_in_process, args=(way, there), daemon=True)
        answering.start()
        uvloop.run(measure(way, here))
        answering.kill()
        answering.join()


def answer_in_process(way: str, pipe: Pipe) -> None:
    uvloop.run(answer(way, pipe))


if __name__ == "__main__":
    main()
