"""A compacted stream as a table's changes make it: every key once, then updates of random keys."""

import random
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from logboom.base.ids import Offset
from logboom.bench import wire
from logboom.bench.blast import Blast, Window
from logboom.bench.streams import bench_stream
from logboom.records import HEADER_BYTES, Record, build_batch

_DAY_MS: Final = 86_400_000
_KEY: Final = b"key-%012d"
_IN_FLIGHT: Final = 16


def batches_of(keys: Sequence[int], record_bytes: int, batch_bytes: int) -> list[bytes]:
    """Batches with a record for each number, of as many records as fit into `batch_bytes`, one at least."""
    now_ms = time.time_ns() // 1_000_000
    value = random.Random(1).randbytes(record_bytes)  # noqa: S311 - bytes that no codec makes smaller
    one = len(build_batch([Record(Offset(0), now_ms, _KEY % 0, value)])) - HEADER_BYTES
    count = max(1, (batch_bytes - HEADER_BYTES) // one)
    return [
        bytes(build_batch([Record(Offset(0), now_ms, _KEY % key, value) for key in keys[start : start + count]]))
        for start in range(0, len(keys), count)
    ]


def updates(keys: int, megabytes: int, record_bytes: int) -> list[int]:
    """The keys of this many megabytes of records; the same ones each time."""
    rng = random.Random(2)  # noqa: S311
    return [rng.randrange(keys) for _ in range(megabytes * 1_000_000 // record_bytes)]


class Table:
    """One stream, which is compacted only while `compacting`."""

    def __init__(self, address: str, stream: str) -> None:
        self.address = address
        self.stream = stream
        self._admin = AdminClient({"bootstrap.servers": address, "log_level": 0})

    def write(self, batches: Sequence[bytes], times: int = 1) -> None:
        """Append all of them, in order, this many times."""
        frames = [wire.produce_frame(self.stream, 0, batch) for batch in batches]
        blast = Blast({self.address: frames}, 1, wire.produce_error_at(self.stream))
        Window(0, 0, times * len(frames)).over(blast, _IN_FLIGHT)

    def allow(self, *, compaction: bool) -> None:
        """Let it be compacted from now on, or not, by the age that its records must have."""
        lag = ConfigEntry(
            "min.compaction.lag.ms",
            "0" if compaction else str(_DAY_MS),
            incremental_operation=AlterConfigOpType.SET,
        )
        resource = ConfigResource(ResourceType.TOPIC, self.stream, incremental_configs=[lag])
        for done in self._admin.incremental_alter_configs([resource]).values():
            done.result(30)


@contextmanager
def table_at(address: str, segment_mib: int) -> Iterator[Table]:
    """An empty one, removed at the end."""
    config = {
        "cleanup.policy": "compact",
        "min.compaction.lag.ms": str(_DAY_MS),
        "min.cleanable.dirty.ratio": "0.001",
        "segment.bytes": str(segment_mib * 1024 * 1024),
        "file.delete.delay.ms": "1000",
    }
    with bench_stream(address, config=config) as stream:
        yield Table(address, stream)
