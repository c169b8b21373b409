"""What clients lose while a stream is compacted: each rate and latency with it, and without it before and after.

A disk whose rate is limited takes more in the first of two measurements of some GB than in the second, compaction or
not; so what is told as without one is the middle of one measurement before it and one after it.
"""

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import fmean, median
from typing import Any, Final

from logboom.bench.compact.cleaners import Cleaner, Told
from logboom.bench.compact.table import Table, batches_of, table_at, updates
from logboom.bench.compact.turns import Turns
from logboom.bench.consume import run_consume
from logboom.bench.latency import LatencyLoad, run_latency
from logboom.bench.produce import ProduceLoad, produce
from logboom.bench.streams import bench_stream
from logboom.bench.throughput import FETCH_MAX_BYTES

_BATCH_BYTES: Final = 65_536
_RECORD_BYTES: Final = 1_000
_KEYS: Final = 100_000
_WRITTEN_AT_ONCE_MB: Final = 100
_SEGMENT_MIB: Final = 64
_BEGUN_WITHIN_S: Final = 0.3
"""The brokers look for dirty logs twenty times a second."""
_MANY_TURNS: Final = 3
"""The measurement in turns takes this many times as long as the others."""
IN_TURNS: Final = "produce_in_turns"
"""`turns`: of brokers whose compaction is a process of its own."""
MEASURES: Final = ("produce", IN_TURNS, "consume", "latency")
Sample = dict[str, float]


@dataclass(frozen=True)
class BesideLoad:
    """`megabytes` are compacted meanwhile: enough for `seconds`, which each measurement takes."""

    megabytes: int = 2_000
    seconds: float = 5.0
    rounds: int = 2
    only: tuple[str, ...] = MEASURES


def run_beside(load: BesideLoad, cleaners: Mapping[str, Cleaner], note: Callable[[str], None]) -> dict[str, Any]:
    """For each measure and broker, samples without and with a compaction, and ratios of their medians."""
    samples: dict[str, dict[str, dict[str, list[Sample]]]] = {}
    at_once_mb = min(_WRITTEN_AT_ONCE_MB, load.megabytes)
    batches = batches_of(updates(_KEYS, at_once_mb, _RECORD_BYTES), _RECORD_BYTES, _BATCH_BYTES)
    for measure in load.only:
        for number in range(load.rounds):
            for name, cleaner in cleaners.items():
                if measure == IN_TURNS and not cleaner.has_process:
                    continue
                note(f"{measure} beside a compaction, round {number + 1} of {load.rounds}: {name} ...")
                cleaner.server.resume()
                found = samples.setdefault(measure, {}).setdefault(name, {"without": [], "with": []})
                _pair(measure, cleaner, batches, load, found)
                cleaner.server.pause()
                os.sync()
    return {"samples": samples, "ratios": {measure: _ratios(found) for measure, found in samples.items()}}


def _pair(
    measure: str, cleaner: Cleaner, batches: list[bytes], load: BesideLoad, found: dict[str, list[Sample]]
) -> None:
    address = cleaner.server.address
    with table_at(address, max(1, min(_SEGMENT_MIB, load.megabytes // 4))) as table:
        table.write(batches, max(1, load.megabytes // _WRITTEN_AT_ONCE_MB))
        if measure == IN_TURNS:
            _in_turns(cleaner, table, load, found)
            return
        take = {"produce": _produce, "consume": _consume, "latency": _latency}[measure]
        before = take(address, load.seconds, lambda: None)
        found["with"].append(_with(cleaner, table, lambda begin: take(address, load.seconds, begin)))
        cleaner.wait_for_room()
        after = take(address, load.seconds, lambda: None)
        found["without"].append({key: fmean((value, after[key])) for key, value in before.items()})


def _in_turns(cleaner: Cleaner, table: Table, load: BesideLoad, found: dict[str, list[Sample]]) -> None:
    """Samples of both kinds from one load, as the middle of its turns."""
    turns = Turns(cleaner.server.pid)

    def measured(begin: Callable[[], None]) -> Sample:
        with bench_stream(cleaner.server.address) as stream:
            begin()
            with turns.taken():
                seconds = _MANY_TURNS * load.seconds
                produce(cleaner.server.address, stream, ProduceLoad(_RECORD_BYTES, seconds=seconds, warm_up_s=0.2))
        return {"mb_per_s": round(turns.works, 2)}

    found["with"].append(_with(cleaner, table, measured))
    found["without"].append({"mb_per_s": round(turns.is_stopped, 2)})


def _with(cleaner: Cleaner, table: Table, measured: Callable[[Callable[[], None]], Sample]) -> Sample:
    """A sample taken while the table is compacted, and for which share of its time it was."""
    began_s = 0.0

    def begin() -> None:
        nonlocal began_s
        table.allow(compaction=True)
        time.sleep(_BEGUN_WITHIN_S)
        began_s = time.monotonic()

    sample = measured(begin)
    took_s = time.monotonic() - began_s
    over = cleaner.told(table.stream)
    told = cleaner.wait(table.stream, cleaner.end_of_complete(table.stream))
    seconds = sum(one.seconds for one in told)
    share = min(1.0, seconds / took_s) if over else 1.0
    return {**sample, "compacted_share": round(share, 2), "compacted_mb_per_s": _rate(told, seconds)}


def _rate(told: list[Told], seconds: float) -> float:
    return round(sum(one.bytes_before for one in told) / 1e6 / max(seconds, 1e-3), 1)


def _produce(address: str, seconds: float, begin: Callable[[], None]) -> Sample:
    with bench_stream(address) as stream:
        begin()
        result = produce(address, stream, ProduceLoad(_RECORD_BYTES, seconds=seconds, warm_up_s=0.2))
    return {"mb_per_s": float(str(result["mb_per_s"]))}


def _consume(address: str, seconds: float, begin: Callable[[], None]) -> Sample:
    with bench_stream(address) as stream:
        filled = produce(address, stream, ProduceLoad(_RECORD_BYTES, seconds=1, warm_up_s=0))
        end = int(str(filled["records"]))
        run_consume(address, stream, end, FETCH_MAX_BYTES, rounds=1)
        begin()
        until_s, rates = time.monotonic() + seconds, []
        while time.monotonic() < until_s:
            rates.append(float(str(run_consume(address, stream, end, FETCH_MAX_BYTES, rounds=1)["mb_per_s"])))
    return {"mb_per_s": median(rates)}


def _latency(address: str, seconds: float, begin: Callable[[], None]) -> Sample:
    with bench_stream(address) as stream:
        begin()
        told = run_latency(address, stream, LatencyLoad(seconds=seconds, warm_up_s=1.0))["end_to_end"]
    percentiles = told["percentiles_ms"]
    return {"p50_ms": percentiles["50.0"], "p99_ms": percentiles["99.0"]}


def _ratios(found: Mapping[str, Mapping[str, list[Sample]]]) -> dict[str, Sample]:
    """With a compaction, as a multiple of without: of each value, in the middle of the rounds."""
    return {
        name: {
            key: round(median(b[key] / a[key] for a, b in zip(both["without"], both["with"], strict=True)), 3)
            for key in both["without"][0]
        }
        for name, both in found.items()
    }
