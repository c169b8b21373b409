"""How fast one consumer reads a stream from its start, batches left undecoded."""

import asyncio
import time

from logboom.bench import wire
from logboom.records import iter_batches


class _Reader:
    def __init__(self, stream: str, end: int, max_bytes: int) -> None:
        self._stream, self._end, self._max_bytes = stream, end, max_bytes
        self.bytes = 0
        self.records = 0
        self.fetches = 0
        self.problem = ""
        self.over = asyncio.Event()

    def ask(self, pipe: wire.Pipe, offset: int) -> None:
        pipe.send(wire.fetch_frame(self._stream, 0, offset, self._max_bytes), self.fetches)

    def answered(self, pipe: wire.Pipe, answer: memoryview) -> None:
        self.fetches += 1
        fetched = wire.read_fetched(answer[4:], self._stream)
        if fetched.error:
            self.problem = f"fetch failed with code {fetched.error}"
            self.over.set()
            return
        next_offset = -1
        for _, header in iter_batches(fetched.records):
            next_offset = header.next_offset
            self.records += header.records_count
        self.bytes += len(fetched.records)
        if next_offset >= self._end:
            self.over.set()
        else:
            self.ask(pipe, next_offset if next_offset >= 0 else self._end)

    def lost(self) -> None:
        if not self.over.is_set():
            self.problem = "the server closed the connection"
            self.over.set()


async def run_consume(bootstrap: str, stream: str, end: int, max_bytes: int) -> dict[str, object]:
    """Read partition 0 of `stream` from 0 to offset `end` over one connection, one fetch at a time."""
    reader = _Reader(stream, end, max_bytes)
    pipe = await wire.connect(bootstrap, reader.answered, reader.lost)
    began = time.perf_counter()
    reader.ask(pipe, 0)
    async with asyncio.timeout(600):
        await reader.over.wait()
    took_s = time.perf_counter() - began
    pipe.transport.close()
    if reader.problem:
        raise wire.BenchError(reader.problem)
    return {
        "records_per_s": round(reader.records / took_s, 1),
        "mb_per_s": round(reader.bytes / took_s / 1e6, 2),
        "fetches": reader.fetches,
        "bytes": reader.bytes,
        "records": reader.records,
        "seconds": round(took_s, 3),
        "max_bytes": max_bytes,
    }
