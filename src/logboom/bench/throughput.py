"""Throughput over message size: a fixed number of messages of each size, written and read back."""

from dataclasses import dataclass
from typing import Any, Final

from logboom.bench.consume import run_consume
from logboom.bench.produce import ProduceLoad, produce

SIZES: Final = (256, 1_024, 4_096, 16_384, 65_536, 262_144, 1_048_000)
"""From 256 B to what fits into a Kafka broker's default of 1 MiB, overhead included."""
FETCH_MAX_BYTES: Final = 1024 * 1024


@dataclass(frozen=True)
class ThroughputLoad:
    """`messages` of each size, fewer where they would be more than `size_max_bytes`."""

    messages: int = 100_000
    size_max_bytes: int = 2 * 1024**3

    def count(self, size: int) -> int:
        """How many messages of a size are sent."""
        return min(self.messages, self.size_max_bytes // size)


def run_throughput(bootstrap: str, stream: str, record_bytes: int, messages: int) -> dict[str, Any]:
    """Write `messages` (rounded up to whole requests) with encoded batches and read them; MB/s of values."""
    written = produce(bootstrap, stream, ProduceLoad(record_bytes, messages=messages))
    read: dict[str, Any] = run_consume(bootstrap, stream, int(str(written["records"])), FETCH_MAX_BYTES, rounds=1)
    return {
        "records": written["records"],
        "produce_mb_per_s": written["value_mb_per_s"],
        "consume_mb_per_s": round(read["records_per_s"] * record_bytes / 1e6, 2),
        "client_cpu_share": written["client_cpu_share"],
    }
