"""Executor side: filters out the records of a batch that are done. Knows only Arrow and ranges of offsets."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from logboom.pipeline.sinks.repeats.ranges import Done

RECORD_SCHEMA: Final = "topic string, partition int, offset bigint, key binary, value binary"


@dataclass(frozen=True, slots=True)
class WithoutDone:
    """Filters out the records of a batch that are done."""

    done: Done

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            columns = (batch.column(name).to_pylist() for name in ("topic", "partition", "offset"))
            kept = [not self.done.has(f"{topic}/{part}", offset) for topic, part, offset in zip(*columns, strict=True)]
            yield batch.filter(pa.array(kept, pa.bool_()))
