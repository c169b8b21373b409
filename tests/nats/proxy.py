"""Between a broker and a server of NATS, on the loop of the test."""

import asyncio
from types import TracebackType
from typing import Self

from tests.support.server import free_port


class Proxy:
    """Hands bytes on until it is told to cut. Life: an `async with` block."""

    def __init__(self, to_port: int) -> None:
        self.port = free_port()
        self.url = f"nats://127.0.0.1:{self.port}"
        self.connections = 0
        """That were made through it."""
        self._to_port = to_port
        self._server: asyncio.Server | None = None
        self._flows: set[asyncio.Task[None]] = set()
        self._open = asyncio.Event()
        self._open.set()
        self._refusing = False

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accepted, "127.0.0.1", self.port)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        await self._end_flows()

    def fall_silent(self) -> None:
        """Hand nothing on, and end nothing, as where a cable was pulled."""
        self._open.clear()

    async def come_back(self) -> None:
        """End what was silent, and hand on what is connected from now on."""
        await self._end_flows()
        self._refusing = False
        self._open.set()

    def refuse(self) -> None:
        """End all connections, and new ones at once, until `come_back`."""
        self._refusing = True
        for flow in self._flows:
            flow.cancel()

    async def reset(self) -> None:
        """End all connections; new ones are made at once."""
        await self._end_flows()

    async def _end_flows(self) -> None:
        flows = tuple(self._flows)
        for flow in flows:
            flow.cancel()
        await asyncio.gather(*flows, return_exceptions=True)

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._refusing:
            writer.transport.abort()
            return
        task = asyncio.current_task()
        assert task is not None
        self._flows.add(task)
        try:
            there, back = await asyncio.open_connection("127.0.0.1", self._to_port)
            try:
                self.connections += 1
                await asyncio.gather(self._hand_on(reader, back), self._hand_on(there, writer))
            finally:
                back.transport.abort()
        except (OSError, asyncio.CancelledError):
            pass  # one of the two is gone, or was cut off
        finally:
            writer.transport.abort()
            self._flows.discard(task)

    async def _hand_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1 << 16):
            await self._open.wait()
            writer.write(data)
            await writer.drain()
        raise ConnectionResetError


class PausingProxy(Proxy):
    """Hands on what stands before some words that a client says for the first time, and these only once it is told to
    go on: what others send to the server meanwhile comes in between."""

    def __init__(self, to_port: int, words: bytes) -> None:
        super().__init__(to_port)
        self.pauses, self.goes_on = asyncio.Event(), asyncio.Event()
        self._words = words

    async def _hand_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1 << 16):
            before, words, behind = data.partition(self._words)
            writer.write(before)
            if words:
                self.pauses.set()
                await self.goes_on.wait()
            writer.write(words + behind)
            await writer.drain()
        raise ConnectionResetError


class SlowProxy(Proxy):
    """Hands everything on a while later, as a long way does."""

    def __init__(self, to_port: int, delay_s: float) -> None:
        super().__init__(to_port)
        self._delay_s = delay_s

    async def _hand_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        loop = asyncio.get_running_loop()
        while data := await reader.read(1 << 16):
            loop.call_later(self._delay_s, writer.write, data)
        raise ConnectionResetError
