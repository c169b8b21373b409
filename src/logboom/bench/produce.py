"""How many acked records a second a server takes, from requests encoded beforehand."""

import asyncio
import time
from dataclasses import asdict, dataclass

from logboom.bench import wire
from logboom.records import HEADER_BYTES


@dataclass(frozen=True)
class ProduceLoad:
    """What is sent. `in_flight` counts requests over all connections together."""

    record_bytes: int = 100
    request_bytes: int = 64 * 1024
    connections: int = 4
    in_flight: int = 16
    partitions: int = 1
    seconds: float = 10.0
    warm_up_s: float = 2.0

    def records_per_request(self) -> int:
        """Records of `record_bytes` that fill a batch of `request_bytes`; at least one."""
        one = len(wire.batch_of(self.record_bytes, 1)) - HEADER_BYTES
        return max(1, (self.request_bytes - HEADER_BYTES) // one)


@dataclass
class _Count:
    requests: int = 0
    measured: int = 0
    errors: int = 0
    first_error: int = 0


class _Run:
    def __init__(self, bootstrap: str, stream: str, load: ProduceLoad) -> None:
        self._bootstrap, self._stream, self._load = bootstrap, stream, load
        batch = wire.batch_of(load.record_bytes, load.records_per_request())
        self._batch_bytes = len(batch)
        self._frames = [wire.produce_frame(stream, partition, batch) for partition in range(load.partitions)]
        self._count = _Count()
        self._measuring = False
        self._over = asyncio.Event()
        self._lost = False
        self._out = 0
        self._until = 0.0

    def _answered(self, pipe: wire.Pipe, answer: memoryview) -> None:
        code = wire.produce_error(answer[4:], self._stream)
        count = self._count
        count.requests += 1
        if self._measuring:
            count.measured += 1
        if code != 0:
            count.errors += 1
            count.first_error = count.first_error or code
        self._out -= 1
        if time.perf_counter() < self._until and count.errors < 100:
            self._send(pipe)
        elif self._out == 0:
            self._over.set()

    def _send(self, pipe: wire.Pipe) -> None:
        self._out += 1
        number = self._count.requests + self._out
        pipe.send(self._frames[number % len(self._frames)], number & 0x7FFFFFFF)

    def _went_away(self) -> None:
        self._lost = not self._over.is_set()
        self._over.set()

    async def run(self) -> dict[str, object]:
        load = self._load
        pipes = [await wire.connect(self._bootstrap, self._answered, self._went_away) for _ in range(load.connections)]
        self._until = time.perf_counter() + load.warm_up_s + load.seconds
        for number in range(load.in_flight):
            self._send(pipes[number % len(pipes)])
        await asyncio.sleep(load.warm_up_s)
        self._measuring, began = True, time.perf_counter()
        await asyncio.sleep(load.seconds)
        self._measuring, took_s = False, time.perf_counter() - began
        async with asyncio.timeout(60):
            await self._over.wait()
        for pipe in pipes:
            pipe.transport.close()
        if self._lost:
            raise wire.BenchError(f"{self._bootstrap} closed the connection in the middle of the run")
        if self._count.errors:
            raise wire.BenchError(
                f"{self._count.errors} requests failed, the first with code {self._count.first_error}"
            )
        requests_s = self._count.measured / took_s
        return {
            "load": asdict(load),
            "batch_bytes": self._batch_bytes,
            "requests_per_s": round(requests_s, 1),
            "records_per_s": round(requests_s * load.records_per_request(), 1),
            "mb_per_s": round(requests_s * self._batch_bytes / 1e6, 2),
            "records": self._count.requests * load.records_per_request(),
            "seconds": round(took_s, 3),
        }


async def run_produce(bootstrap: str, stream: str, load: ProduceLoad) -> dict[str, object]:
    """Keep `in_flight` requests under way for the time of the load; only answers inside that time count.

    Rates are per second, MB are 10^6 bytes of record batches. Raises BenchError on the first sign of refusal.
    """
    return await _Run(bootstrap, stream, load).run()
