"""What one partition costs a broker for each byte, read by one consumer and by a thousand.

Catching up: every consumer reads the whole stream from the page cache. Tailing: every consumer waits at the end while
batches come at a steady rate; what the batches alone cost is measured before and taken off. The consumers are raw
sockets in one thread that throw away what they get, so that a thousand of them fit beside the broker.
"""

import select
import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from statistics import median
from typing import TypeAlias

from logboom.bench import footprint, wire
from logboom.bench.blast import dial
from logboom.bench.produce import ProduceLoad, produce
from logboom.bench.servers import Server
from logboom.bench.streams import bench_stream

_RECEIVE_BYTES = 256 * 1024
_FETCH_BYTES = 1024 * 1024
_STALL_S = 60.0


@dataclass(frozen=True)
class FanoutLoad:
    """`total_mb` is read by the one, the first `stream_mb` of it by each of many; each `rounds` times."""

    consumers: int = 1_000
    stream_mb: int = 8
    total_mb: int = 512
    record_bytes: int = 1_000
    request_bytes: int = 64 * 1024
    tail_seconds: float = 3.0
    tail_rate_one: float = 300.0
    tail_rate_many: float = 4.0
    rounds: int = 3


Costs: TypeAlias = dict[str, float]


class _Consumer:
    """One connection with one fetch under way."""

    __slots__ = ("_filled", "_frame", "_head", "_left", "_shape", "bytes", "fetches", "link", "offset", "passes")

    def __init__(self, link: socket.socket, shape: "_Shape", offset: int) -> None:
        link.setblocking(False)
        self.link = link
        self.offset = offset
        self.bytes = self.fetches = 0
        self._shape = shape
        self._frame = bytearray(shape.fetch)
        self._head = bytearray(shape.head_bytes)
        self._filled = 0
        self._left = 0

    def ask(self) -> None:
        struct.pack_into(">q", self._frame, len(self._frame) - wire.FETCH_OFFSET_FROM_END, self.offset)
        self.link.send(self._frame)

    def read(self, scratch: memoryview) -> bool:
        """Read the bytes that arrived; True if they completed an answer."""
        try:
            if self._filled < len(self._head):
                got = self.link.recv_into(memoryview(self._head)[self._filled :])
                self._filled += got
                if got and self._filled == len(self._head):
                    self._left = self._shape.length(self._head) - len(self._head)
            else:
                got = self.link.recv_into(scratch[: self._left])
                self._left -= got
        except BlockingIOError:
            return False
        if not got:
            raise wire.BenchError("the server closed a consumer's connection")
        if self._filled < len(self._head) or self._left:
            return False
        size = self._shape.records_bytes(self._head)
        self.bytes += size
        self.fetches += 1
        self.offset += self._shape.records_in(size)
        self._filled = 0
        return True


@dataclass(frozen=True)
class _Shape:
    """What requests and answers about one stream look like, whose batches are all alike."""

    fetch: bytes
    head_bytes: int
    batch_bytes: int
    batch_records: int

    @classmethod
    def of(cls, stream: str, load: ProduceLoad) -> "_Shape":
        batch = wire.batch_of(load.record_bytes, load.records_per_request())
        head_bytes = 4 + 4 + 4 + 4 + 2 + len(stream.encode()) + 4 + 4 + 2 + 8 + 8 + 4 + 4
        frame = bytes(wire.fetch_frame(stream, 0, 0, _FETCH_BYTES))
        return cls(frame, head_bytes, len(batch), load.records_per_request())

    def length(self, head: bytearray) -> int:
        """Bytes of the whole answer."""
        (length,) = struct.unpack_from(">i", head)
        (code,) = struct.unpack_from(">h", head, self.head_bytes - 26)
        if code:
            raise wire.BenchError(f"a fetch failed with code {code}")
        return int(length) + 4

    def records_bytes(self, head: bytearray) -> int:
        (size,) = struct.unpack_from(">i", head, self.head_bytes - 4)
        return max(int(size), 0)

    def records_in(self, size: int) -> int:
        batches, rest = divmod(size, self.batch_bytes)
        if rest:
            raise wire.BenchError("a fetch brought something other than the batches that were sent")
        return batches * self.batch_records


@dataclass
class _Crowd:
    """Consumers of one stream under one poll."""

    consumers: list[_Consumer]
    poll: select.epoll
    scratch: memoryview = field(default_factory=lambda: memoryview(bytearray(_RECEIVE_BYTES)))

    @classmethod
    @contextmanager
    def of(cls, address: str, shape: _Shape, count: int, offset: int) -> Iterator["_Crowd"]:
        crowd = cls([], select.epoll())
        try:
            for _ in range(count):
                consumer = _Consumer(dial(address), shape, offset)
                crowd.consumers.append(consumer)
                crowd.poll.register(consumer.link, select.EPOLLIN)
            yield crowd
        finally:
            for consumer in crowd.consumers:
                consumer.link.close()
            crowd.poll.close()

    def run(self, wait_s: Callable[[], float | None], done: Callable[[_Consumer], bool]) -> None:
        """Keep every consumer fetching until `wait_s` gives None; one that is `done` stops."""
        by_handle = {consumer.link.fileno(): consumer for consumer in self.consumers}
        heard_s = time.perf_counter()
        for consumer in self.consumers:
            consumer.ask()
        while (timeout_s := wait_s()) is not None:
            for handle, _ in self.poll.poll(timeout_s):
                consumer = by_handle[handle]
                heard_s = time.perf_counter()
                if consumer.read(self.scratch) and not done(consumer):
                    consumer.ask()
            if time.perf_counter() - heard_s > _STALL_S:
                raise wire.BenchError(f"no consumer got anything for {_STALL_S:.0f} s")

    @property
    def bytes(self) -> int:
        return sum(consumer.bytes for consumer in self.consumers)

    @property
    def fetches(self) -> int:
        return sum(consumer.fetches for consumer in self.consumers)


@dataclass
class _Producer:
    """Batches of one kind at a steady rate over one connection; answers are read and not waited for."""

    link: socket.socket
    frame: bytes
    interval_s: float
    until_s: float
    arrived: Callable[[], bool]
    """Whether anybody has got anything: on a machine that is busy with other things it may take its time."""
    next_s: float = 0.0

    def wait_s(self) -> float | None:
        """Send the records that are due; seconds until the next, None once the time is over."""
        now_s = time.perf_counter()
        if now_s >= self.until_s and self.arrived():
            return None
        if now_s >= self.next_s:
            self.link.sendall(self.frame)
            self.next_s = max(self.next_s, now_s - self.interval_s) + self.interval_s
            while select.select([self.link], [], [], 0)[0] and self.link.recv(4096):
                pass
        return max(0.0, self.next_s - now_s)


class _FanoutRun:
    """One run against one broker."""

    def __init__(self, server: Server, stream: str, load: FanoutLoad, progress: Callable[[str], None]) -> None:
        self._server, self._stream, self._load, self._progress = server, stream, load, progress
        self._shape = _Shape.of(stream, ProduceLoad(load.record_bytes, load.request_bytes))

    def measure(self) -> dict[str, object]:
        load, shape = self._load, self._shape
        batches = -(-load.total_mb * 1_000_000 // shape.batch_bytes)
        fill = ProduceLoad(load.record_bytes, load.request_bytes, messages=batches * shape.batch_records)
        self._progress(f"filling a stream with {load.total_mb} MB ...")
        end = int(str(produce(self._server.address, self._stream, fill)["records"]))
        part = max(1, min(end, load.stream_mb * 1_000_000 // shape.batch_bytes * shape.batch_records))
        self._catch_up(1, end)  # once to warm both sides
        return {
            "catching_up": self._compare(lambda: self._catch_up(1, end), lambda: self._catch_up(load.consumers, part)),
            "tailing": self._compare(
                lambda: self._tail(1, load.tail_rate_one), lambda: self._tail(load.consumers, load.tail_rate_many)
            ),
        }

    def _compare(self, one: Callable[[], Costs], many: Callable[[], Costs]) -> dict[str, object]:
        """Both in turns; the medians count."""
        alone, crowd = [], []
        for _ in range(self._load.rounds):
            alone.append(one())
            crowd.append(many())
        costs = [median(costs["cpu_us_per_mb"] for costs in runs) for runs in (alone, crowd)]
        return {
            "one_us_per_mb": costs[0],
            "many_us_per_mb": costs[1],
            "ratio_per_byte": round(costs[1] / costs[0], 3),
            "one": alone,
            "many": crowd,
        }

    def _catch_up(self, count: int, end: int) -> Costs:
        """Each reads from the start up to `end`."""
        self._progress(f"{count} of them read up to offset {end} ...")
        left = count

        def done(consumer: _Consumer) -> bool:
            nonlocal left
            if consumer.offset < end:
                return False
            left -= 1
            return True

        with _Crowd.of(self._server.address, self._shape, count, 0) as crowd:
            return self._costs(crowd, lambda: crowd.run(lambda: 1.0 if left else None, done))

    def _tail(self, count: int, rate: float) -> Costs:
        self._progress(f"{count} of them wait at the end, {rate:.0f} batches/s come ...")
        batches_alone = self._tail_once(0, rate)
        crowd = self._tail_once(count, rate)
        crowd["cpu_us_per_mb"] = round((crowd["cpu_s"] - batches_alone["cpu_s"]) / crowd["mb"] * 1e6, 1)
        return crowd

    def _tail_once(self, count: int, rate: float) -> Costs:
        batch = wire.batch_of(self._load.record_bytes, self._shape.batch_records)
        frame = wire.produce_frame(self._stream, 0, batch)
        end = self._now_end()
        link = dial(self._server.address)
        with link, _Crowd.of(self._server.address, self._shape, count, end) as crowd:
            until_s = time.perf_counter() + self._load.tail_seconds
            producer = _Producer(link, frame, 1 / rate, until_s, lambda: not count or crowd.bytes > 0)
            return self._costs(crowd, lambda: crowd.run(producer.wait_s, lambda _: False))

    def _now_end(self) -> int:
        """The log end offset, from the answer to a fetch at it."""
        with dial(self._server.address) as link:
            link.sendall(self._shape.fetch)
            head = link.recv(self._shape.head_bytes, socket.MSG_WAITALL)
        return int(struct.unpack_from(">q", head, self._shape.head_bytes - 24)[0])

    def _costs(self, crowd: _Crowd, work: Callable[[], None]) -> Costs:
        pid = self._server.pid
        cpu, began_s = footprint.cpu_ns(pid), time.perf_counter()
        work()
        took_s, used_s = time.perf_counter() - began_s, (footprint.cpu_ns(pid) - cpu) / 1e9
        mb = crowd.bytes / 1e6
        return {
            "cpu_us_per_mb": round(used_s / mb * 1e6, 1) if mb else 0.0,
            "cpu_s": round(used_s, 4),
            "seconds": round(took_s, 3),
            "mb": round(mb, 1),
            "mb_per_s": round(mb / took_s, 1),
            "fetches": crowd.fetches,
            "memory_mb": round(footprint.memory_bytes(pid) / 1e6, 1),
        }


def run_fanout(server: Server, load: FanoutLoad, progress: Callable[[str], None]) -> dict[str, object]:
    """Both ways of reading by one and by many, beside each other in one run against a running server."""
    # Acks that wait for the disk would cost more than what is measured here.
    with bench_stream(server.address, config={"logboom.flush": "none"}) as stream:
        return _FanoutRun(server, stream, load, progress).measure()
