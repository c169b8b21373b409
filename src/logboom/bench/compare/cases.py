"""The cases of a comparison, each run for one server at a time. Each removes what it created.

Measurements return plain numbers by name; `cpu_s_per_million` is the server's CPU seconds for a million messages.
"""

import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from logboom.bench import report
from logboom.bench.compare.contestants import Contestant
from logboom.bench.compare.tools import consumer_performance, producer_performance
from logboom.bench.consume import run_consume
from logboom.bench.histogram import histogram_of, summary
from logboom.bench.latency import HELD_WITHIN_S, LatencyLoad, run_latency
from logboom.bench.produce import ProduceLoad, produce
from logboom.bench.servers import NatsServer, Server
from logboom.bench.streams import bench_stream, leaders_of
from logboom.bench.throughput import FETCH_MAX_BYTES, run_throughput
from logboom.bench.wire import BenchError

MAX_MESSAGE_CONFIG: Final = {"max.message.bytes": "2000000"}
Sample = dict[str, Any]


@contextmanager
def stream_of(contestant: Contestant, server: Server) -> Iterator[str]:
    """A stream for one measurement, gone after it."""
    if contestant.server == "nothing":
        yield f"stream-{uuid.uuid4().hex[:8]}"
    elif contestant.speaks_kafka:
        config = {**MAX_MESSAGE_CONFIG, **contestant.config}
        with bench_stream(server.address, replicas=contestant.replicas, config=config) as stream:
            yield stream
    else:
        assert isinstance(server, NatsServer)
        stream = f"bench-{uuid.uuid4().hex[:8]}"
        server.load("-mode", "create", "-stream", stream)
        try:
            yield stream
        finally:
            server.load("-mode", "delete", "-stream", stream)


def _in_flight(record_bytes: int, at_most: int) -> str:
    """How many publishes may wait for their ack: beyond 128 MB of them nats-server refuses more."""
    return str(max(16, min(at_most, (64 << 20) // record_bytes)))


class _Cpu:
    """The server's CPU time from here on, over all its processes."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._before = self._now_s()

    def _now_s(self) -> float:
        try:
            return sum(map(report.cpu_seconds, self._server.pids))
        except OSError:
            raise BenchError(f"{self._server.name} has ended") from None

    def per_million(self, messages: float) -> float:
        return round((self._now_s() - self._before) / (messages / 1e6), 4)


class _Roles:
    """CPU time of a stream's leader and of its followers from here on, in their own code and in the kernel."""

    def __init__(self, server: Server, leader: str) -> None:
        self._pids: dict[str, list[int]] = {"leader": [], "followers": []}
        for address, pid in server.brokers.items():
            self._pids["leader" if address == leader else "followers"].append(pid)
        self._before = self._now_s()

    def _now_s(self) -> dict[str, float]:
        found = {}
        for role, pids in self._pids.items():
            split = [report.cpu_split(pid) for pid in pids]
            found[f"{role}_user"] = sum(user for user, _ in split)
            found[f"{role}_system"] = sum(system for _, system in split)
        return found

    def per_million(self, messages: float) -> dict[str, float]:
        return {role: round((now - self._before[role]) / (messages / 1e6), 4) for role, now in self._now_s().items()}


class Case(ABC):
    """One measurement, taken of every server; `group` is the value of `--only` that selects it."""

    group: str
    name: str
    title: str

    @abstractmethod
    def measure(self, contestant: Contestant, server: Server) -> Sample:
        """Take it once; BenchError where the server cannot do it."""


@dataclass
class Produce(Case):
    """A producer of the peer's own making at full speed: ProducerPerformance, or the NATS client."""

    record_bytes: int
    seconds: float
    group = "produce"

    def __post_init__(self) -> None:
        self.name = f"produce-{self.record_bytes}"
        self.title = (
            f"Acked produce, {self.record_bytes:,} B (ProducerPerformance; JetStream: nats.go, 4,000 in flight)"
        )

    def measure(self, contestant: Contestant, server: Server) -> Sample:
        with stream_of(contestant, server) as stream:
            cpu = _Cpu(server)
            if isinstance(server, NatsServer):
                size, seconds = str(self.record_bytes), str(self.seconds)
                sample = server.load("-mode", "produce", "-stream", stream, "-size", size, "-seconds", seconds)
            else:
                return self._with_kafkas_tool(server, stream)
            return {**sample, "cpu_s_per_million": cpu.per_million(sample["records"])}

    def _with_kafkas_tool(self, server: Server, stream: str) -> Sample:
        """ProducerPerformance for this many records as 40 MB/s would be in the time. As many for a replicated stream:
        the first hundreds of thousands cost everybody more, so that a shorter run is not to be compared with a longer
        one.
        """
        records = int(self.seconds * 40e6 / (self.record_bytes + 7))
        cpu, roles = _Cpu(server), _Roles(server, leaders_of(server.address, stream)[0])
        sample: Sample = dict(producer_performance(server.address, stream, self.record_bytes, records))
        sample["cpu_s_per_million"] = cpu.per_million(records)
        if len(server.brokers) > 1:
            sample["cpu_s_per_million_of"] = roles.per_million(records)
        return sample


@dataclass
class Consume(Case):
    """A stream read from its start: by ConsumerPerformance or the NATS client, and by bench's own reader."""

    record_bytes: int
    fill_bytes: int
    group = "consume"

    def __post_init__(self) -> None:
        self.name = f"consume-{self.record_bytes}"
        self.title = (
            f"Consume from the page cache, {self.record_bytes:,} B "
            "(ConsumerPerformance; JetStream: nats.go, ordered push consumer)"
        )

    def measure(self, contestant: Contestant, server: Server) -> Sample:
        messages = self.fill_bytes // (self.record_bytes + 7)
        with stream_of(contestant, server) as stream:
            if isinstance(server, NatsServer):
                size = str(self.record_bytes)
                # A sync for each message would need minutes for as many: such a server gets ten seconds.
                much = ("-seconds", "10") if contestant.name == "nats-always" else ("-messages", str(messages))
                messages = server.load("-mode", "produce", "-stream", stream, "-size", size, *much)["records"]
                cpu = _Cpu(server)
                sample = server.load("-mode", "consume", "-stream", stream, "-size", size)
                return {**sample, "cpu_s_per_million": cpu.per_million(messages)}
            filled = produce(server.address, stream, ProduceLoad(self.record_bytes, messages=messages))
            end = int(str(filled["records"]))
            cpu = _Cpu(server)
            sample = dict(consumer_performance(server.address, stream, self.record_bytes, end))
            sample["cpu_s_per_million"] = cpu.per_million(end)
            raw = run_consume(server.address, stream, end, FETCH_MAX_BYTES, rounds=1)
            return {**sample, "raw_records_per_s": raw["records_per_s"], "raw_mb_per_s": raw["mb_per_s"]}


@dataclass
class Latency(Case):
    """End-to-end latency at a held rate, from the intended moment: librdkafka with linger 0, or the NATS client."""

    record_bytes: int
    rate_per_s: int
    seconds: float
    warm_up_s: float
    group = "latency"

    def __post_init__(self) -> None:
        self.name = f"latency-{self.record_bytes}"
        self.title = f"End-to-end latency, {self.record_bytes:,} B at {self.rate_per_s:,}/s"

    def measure(self, contestant: Contestant, server: Server) -> Sample:
        load = LatencyLoad(self.record_bytes, self.rate_per_s, self.seconds, self.warm_up_s)
        sent = self.rate_per_s * (self.seconds + self.warm_up_s)
        with stream_of(contestant, server) as stream:
            cpu = _Cpu(server)
            if isinstance(server, NatsServer):
                taken = server.load(
                    *("-mode", "latency", "-stream", stream, "-size", str(self.record_bytes)),
                    *("-rate", str(self.rate_per_s), "-seconds", str(self.seconds), "-warm-up", str(self.warm_up_s)),
                    *("-in-flight", _in_flight(self.record_bytes, 100_000)),
                )
                latencies = taken.pop("latencies_us")
                sample = {"end_to_end": summary(histogram_of(latencies)), "held": latencies[-1] < HELD_WITHIN_S * 1e6}
            else:
                sample = run_latency(server.address, stream, load)
            return {**sample, "cpu_s_per_million": cpu.per_million(sent)}


@dataclass
class Throughput(Case):
    """A fixed number of messages of one size, written in prepared batches and read back."""

    record_bytes: int
    messages: int
    group = "throughput"

    def __post_init__(self) -> None:
        self.name = f"throughput-{self.record_bytes}"
        self.title = f"{self.messages:,} messages of {self.record_bytes:,} B, written and read back"

    def measure(self, contestant: Contestant, server: Server) -> Sample:
        with stream_of(contestant, server) as stream:
            if isinstance(server, NatsServer):
                size, in_flight = str(self.record_bytes), _in_flight(self.record_bytes, 4_000)
                arguments = ("-stream", stream, "-size", size, "-in-flight", in_flight)
                wrote = server.load("-mode", "produce", *arguments, "-messages", str(self.messages))
                read = server.load("-mode", "consume", *arguments)
            else:
                return run_throughput(server.address, stream, self.record_bytes, self.messages)
        return {"produce_mb_per_s": wrote["mb_per_s"], "consume_mb_per_s": read["mb_per_s"]}


def warm(contestant: Contestant, server: Server, seconds: float) -> None:
    """Load that compiles what a JVM compiles and fills what any server fills: large and small requests, and reads."""
    with stream_of(contestant, server) as stream:
        if isinstance(server, NatsServer):
            server.load("-mode", "produce", "-stream", stream, "-seconds", str(seconds * 0.6))
            server.load("-mode", "consume", "-stream", stream)
            return
        large = produce(server.address, stream, ProduceLoad(seconds=seconds * 0.35, warm_up_s=0))
        produce(
            server.address,
            stream,
            ProduceLoad(256, request_bytes=1, in_flight=4, seconds=seconds * 0.35, warm_up_s=0),
        )
        until = time.monotonic() + seconds * 0.3
        while time.monotonic() < until:
            run_consume(server.address, stream, int(str(large["records"])), FETCH_MAX_BYTES, rounds=1)
