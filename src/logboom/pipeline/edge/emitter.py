"""Emits the rows of a task as records of the log, and waits until all are committed.

Knows the executor it runs on. Must not know Spark, how a record is encoded, or how the log is written to.

Records of one partition are written in the given order and retried until they are committed, so every attempt at a
batch leaves a prefix of its records in each partition. Readers that drop repeats rely on it: later records could hide a
gap from them.
"""

from dataclasses import dataclass

import numpy as np

from logboom.pipeline.edge.log_writer import LogWriter
from logboom.pipeline.edge.record_encoder import RecordEncoder
from logboom.pipeline.execute.stages import BYTES_OUT, PLACE, Counts, count, counts_report
from logboom.pipeline.route.rows import Rows


@dataclass(frozen=True, slots=True)
class LogTaskEmitter:
    """What a task needs to emit; it is serialised to the executors and called there."""

    encoder: RecordEncoder
    bootstrap: str

    def __call__(self) -> "_Emitter":
        return _Emitter(self.encoder, self.bootstrap)


class _Emitter:
    """Sends the rows of one task."""

    def __init__(self, encoder: RecordEncoder, bootstrap: str) -> None:
        self._encoder = encoder
        self._writer = writer_for(bootstrap)

    def send(self, rows: Rows, counts: Counts) -> None:
        for code, encoded in self._encoder.encoded(rows):
            for slot, packed in encoded.pieces:
                self._writer.put(slot, packed)
            count(counts, f"{PLACE}:{code}", encoded.count)
            count(counts, BYTES_OUT, encoded.bytes_out)
            count(counts, f"{BYTES_OUT}:{code}", encoded.bytes_out)
        dropped, many = np.unique(rows.at[rows.at < 0], return_counts=True)
        for code, rows_dropped in zip(dropped.tolist(), many.tolist(), strict=True):
            count(counts, f"{PLACE}:{code}", rows_dropped)

    def finish(self, counts: Counts) -> bytes:
        self._writer.settle()
        return counts_report(counts)


_writers: dict[str, LogWriter] = {}
"""One writer per executor process and log, reused by later tasks; a process runs one task at a time."""


def writer_for(bootstrap: str) -> LogWriter:
    """The log writer of this process; a new one if the last one failed."""
    writer = _writers.get(bootstrap)
    if writer is not None and writer.failed:
        writer.close()
        writer = None
    if writer is None:
        writer = _writers[bootstrap] = LogWriter(bootstrap)
    return writer
