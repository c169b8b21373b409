"""A batch of an edge's records as dead letters of a sink, written by executors. Must not know Spark or sinks."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from logboom.client.messages import TopicPartition
from logboom.pipeline.edge.emitter import writer_for
from logboom.pipeline.edge.letters import Letter, put_letters
from logboom.pipeline.plan import names

COUNT_COLUMN = "count"


@dataclass(frozen=True, slots=True)
class WriteDeadLetters:
    """Writes rows (topic, partition, offset, key, value) as letters; gives one row per task with their count."""

    bootstrap: str
    pipeline: str
    sink: str
    reason: str
    max_message_bytes: int

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        writer, count = writer_for(self.bootstrap), 0
        tp = TopicPartition(names.dead_stream(self.pipeline, self.sink), 0)
        for batch in batches:
            letters = (self._letter(row) for row in batch.to_pylist())
            count += put_letters(writer.put, tp, letters, self.max_message_bytes)
        writer.settle()
        yield pa.RecordBatch.from_pydict({COUNT_COLUMN: pa.array([count], pa.int64())})

    def _letter(self, row: dict[str, Any]) -> Letter:
        return Letter(
            stage=self.sink,
            reason=self.reason,
            form=names.FORM_EVENT,
            origin=names.origin_text(row["topic"], row["partition"], row["offset"]),
            pipeline=self.pipeline,
            key=row["key"],
            value=row["value"],
            edge=row["topic"],
        )
