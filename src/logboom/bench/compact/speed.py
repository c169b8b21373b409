"""How fast a stream is compacted: Logboom and Kafka on the same batches, in turns."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any, Final

from logboom.bench.compact.cleaners import Cleaner
from logboom.bench.compact.table import batches_of, table_at, updates
from logboom.bench.processes import family_cpu_s

BATCHES: Final = {"batches of 64 KB": 65_536, "one record a batch": 1}
Sample = dict[str, float]


@dataclass(frozen=True)
class SpeedLoad:
    """A table of `keys` records, compacted before, and so many megabytes of updates; `record_bytes` of value each."""

    keys: int = 100_000
    megabytes: int = 400
    record_bytes: int = 1_000
    segment_mib: int = 64
    rounds: int = 3


def run_speed(load: SpeedLoad, cleaners: Mapping[str, Cleaner], note: Callable[[str], None]) -> dict[str, Any]:
    """Samples of each kind of batches and each broker, and their medians. Only one broker runs at a time."""
    samples: dict[str, dict[str, list[Sample]]] = {}
    for kind, batch_bytes in BATCHES.items():
        note(f"{kind}: making {load.keys:,} records and {load.megabytes} MB of updates ...")
        table = batches_of(range(load.keys), load.record_bytes, batch_bytes)
        changes = batches_of(updates(load.keys, load.megabytes, load.record_bytes), load.record_bytes, batch_bytes)
        for number in range(load.rounds):
            for name, cleaner in cleaners.items():
                note(f"{kind}, round {number + 1} of {load.rounds}: {name} ...")
                cleaner.server.resume()
                sample = _sample(cleaner, table, changes, load)
                samples.setdefault(kind, {}).setdefault(name, []).append(sample)
                cleaner.server.pause()
                os.sync()
    return {"samples": samples, "medians": {kind: _medians(found) for kind, found in samples.items()}}


def _sample(cleaner: Cleaner, table: list[bytes], changes: list[bytes], load: SpeedLoad) -> Sample:
    """One compaction. `mb_per_s` counts all that was read over, the compacted part and the updates, once."""
    server = cleaner.server
    with table_at(server.address, load.segment_mib) as stream:
        stream.write(table)
        stream.allow(compaction=True)
        cleaner.wait(stream.stream, cleaner.end_of_complete(stream.stream))
        stream.allow(compaction=False)
        stream.write(changes)
        end = cleaner.end_of_complete(stream.stream)
        before, used_s = len(cleaner.told(stream.stream)), family_cpu_s(server.pid)
        stream.allow(compaction=True)
        told = cleaner.wait(stream.stream, end)[before:]
        used_s = family_cpu_s(server.pid) - used_s
    size_bytes, seconds = sum(one.bytes_before for one in told), sum(one.seconds for one in told)
    return {
        "mb": round(size_bytes / 1e6, 1),
        "left_mb": round(sum(one.bytes_after for one in told) / 1e6, 1),
        "seconds": round(seconds, 3),
        "cpu_s": round(used_s, 3),
        "mb_per_s": round(size_bytes / 1e6 / max(seconds, 1e-3), 1),
        "mb_per_cpu_s": round(size_bytes / 1e6 / max(used_s, 1e-3), 1),
        "keys_per_s": round(load.keys / max(seconds, 1e-3)),
        "runs": len(told),
    }


def _medians(found: Mapping[str, list[Sample]]) -> dict[str, Sample]:
    return {name: {key: median(one[key] for one in many) for key in many[0]} for name, many in found.items()}
