"""The goals of a single broker that take minutes to check: the measured figure, the goal, and whether it is met.

Starts a broker of its own. Goals beside Kafka belong to `compare`, those of long or large runs to their own commands.
"""

import statistics
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from logboom.bench import baseline
from logboom.bench.compare.cases import MAX_MESSAGE_CONFIG
from logboom.bench.compare.contestants import CONTESTANTS
from logboom.bench.compare.lives import start_and_idle
from logboom.bench.consume import run_consume
from logboom.bench.latency import WELL_KNOWN, LatencyLoad, run_latency
from logboom.bench.produce import ProduceLoad, produce
from logboom.bench.servers import LogboomServer
from logboom.bench.streams import bench_stream
from logboom.bench.throughput import FETCH_MAX_BYTES

SMALL_CONNECTIONS: Final = 32
SMALL_IN_FLIGHT_EACH: Final = 5
"""What the Java client has under way on a connection by default."""
Note = Callable[[str], None]


@dataclass(frozen=True)
class Goal:
    """`got` against `wanted`: at least that much, or at most where `at_most` is set."""

    name: str
    got: float
    wanted: float
    unit: str
    at_most: bool = False

    @property
    def held(self) -> bool:
        """Whether it is reached."""
        return self.got <= self.wanted if self.at_most else self.got >= self.wanted

    def row(self) -> tuple[str, str, str, str]:
        """For a table: goal, got, wanted, held."""
        word = "at most" if self.at_most else "at least"
        return self.name, f"{self.got:,.4g} {self.unit}", f"{word} {self.wanted:,g}", "yes" if self.held else "NO"

    def as_json(self) -> dict[str, Any]:
        """For a program."""
        return {**asdict(self), "held": self.held}


@dataclass(frozen=True)
class GoalsLoad:
    """Seconds of each measurement, and rounds of each ratio."""

    seconds: float = 5.0
    rounds: int = 3
    latency_s: float = 20.0
    idle_s: float = 10.0


def run_goals(load: GoalsLoad, directory: Path, note: Note) -> Iterator[Goal]:
    """Measure one goal after the other against a new broker with its data in `directory`."""
    with tempfile.TemporaryDirectory(prefix="logboom-goals-", dir=directory) as name:
        work = Path(name)
        server = LogboomServer(work / "node")
        server.prepare()
        try:
            server.start()
            yield from _rates(server.address, work, load, note)
            yield from _latencies(server.address, load, note)
        finally:
            server.remove()
        yield from _life(work, load, note)


def _rates(address: str, work: Path, load: GoalsLoad, note: Note) -> Iterator[Goal]:
    for size in (100, 1_000):
        note(f"produce, {size} B in requests of 64 KiB, beside a plain loop ...")
        ratios = [_produce_ratio(address, work, size, load.seconds) for _ in range(load.rounds)]
        yield Goal(f"produce {size} B, fsynced / plain 1 MB write + fdatasync", statistics.median(ratios), 0.6, "")
    note("consume, beside a plain loopback copy ...")
    yield Goal("consume 1,000 B / plain loopback copy", _consume_ratio(address, load), 0.6, "")
    note(f"requests of one record over {SMALL_CONNECTIONS} connections ...")
    small = ProduceLoad(
        100,
        request_bytes=1,
        connections=SMALL_CONNECTIONS,
        in_flight=SMALL_CONNECTIONS * SMALL_IN_FLIGHT_EACH,
        seconds=load.seconds,
    )
    with bench_stream(address) as stream:
        got = _number(produce(address, stream, small)["requests_per_s"])
    yield Goal("fsynced requests of one 100 B record, 32 connections", got, 30_000, "per s")


def _produce_ratio(address: str, work: Path, record_bytes: int, seconds: float) -> float:
    before = _number(baseline.write_and_sync(work, seconds / 2)["mb_per_s"])
    with bench_stream(address) as stream:
        result = produce(address, stream, ProduceLoad(record_bytes, seconds=seconds, warm_up_s=1.0))
    after = _number(baseline.write_and_sync(work, seconds / 2)["mb_per_s"])
    return _number(result["mb_per_s"]) / ((before + after) / 2)


def _consume_ratio(address: str, load: GoalsLoad) -> float:
    with bench_stream(address) as stream:
        filled = produce(address, stream, ProduceLoad(1_000, seconds=load.seconds, warm_up_s=0))
        end = int(_number(filled["records"]))
        return _number(run_consume(address, stream, end, FETCH_MAX_BYTES, rounds=load.rounds)["ratio_to_plain_copy"])


def _latencies(address: str, load: GoalsLoad, note: Note) -> Iterator[Goal]:
    for size, rate in WELL_KNOWN:
        note(f"latency, {size} B at {rate}/s ...")
        with bench_stream(address, config=MAX_MESSAGE_CONFIG) as stream:
            result = run_latency(address, stream, LatencyLoad(size, rate, load.latency_s, min(3.0, load.latency_s)))
        percentiles, name = result["end_to_end"]["percentiles_ms"], f"latency {size:,} B at {rate:,}/s"
        yield Goal(f"{name}: rate held (1: yes)", float(result["held"]), 1, "")
        if size <= 5_120:
            yield Goal(f"{name}: p50", percentiles["50.0"], 1, "ms", at_most=True)
        yield Goal(f"{name}: p99", percentiles["99.0"], 8 if size <= 5_120 else 15, "ms", at_most=True)


def _life(work: Path, load: GoalsLoad, note: Note) -> Iterator[Goal]:
    note("start and idle with 100 partitions ...")
    lives = [start_and_idle(CONTESTANTS["logboom"], work, load.idle_s) for _ in range(load.rounds)]
    middle = {key: statistics.median(life[key] for life in lives) for key in lives[0]}
    yield Goal("start with an empty directory", middle["start_s"], 1, "s", at_most=True)
    yield Goal("idle with 100 partitions: memory", middle["idle_rss_mb"], 100, "MB", at_most=True)
    yield Goal("idle with 100 partitions: share of a core", middle["idle_cpu_percent"], 1, "%", at_most=True)


def _number(value: object) -> float:
    assert isinstance(value, int | float)
    return float(value)
