"""The courier: takes the rows of a task out of the pipeline as records of the log, and waits until all are committed.

Knows the executor it runs on. Must not know Spark, how a record is dressed, or how the log is written to.

Records of one partition are written in the order in which they are given and never given up, so what any attempt at a
batch leaves in a partition is a prefix of the whole. The readers that drop repeats rely on it: a gap could be hidden
from them by the records behind it.
"""

from dataclasses import dataclass

import numpy as np

from logboom.pipeline.edge.log_writer import LogWriter
from logboom.pipeline.edge.record_encoder import Envelope
from logboom.pipeline.execute.stages import BYTES_OUT, PLACE, Counts, count
from logboom.pipeline.route.rows import Rows


@dataclass(frozen=True, slots=True)
class LogCourier:
    """What a task needs to send: it travels to the executors, and is called there."""

    envelope: Envelope
    bootstrap: str

    def __call__(self) -> "_Courier":
        return _Courier(self.envelope, self.bootstrap)


class _Courier:
    """Sends the rows of one task."""

    def __init__(self, envelope: Envelope, bootstrap: str) -> None:
        self._envelope = envelope
        self._writer = _writer(bootstrap)

    def send(self, rows: Rows, counts: Counts) -> None:
        for code, parcel in self._envelope.parcels(rows):
            for slot, packed in parcel.pieces:
                self._writer.put(slot, packed)
            count(counts, f"{PLACE}:{code}", parcel.count)
            count(counts, BYTES_OUT, parcel.bytes_out)
        dropped, many = np.unique(rows.at[rows.at < 0], return_counts=True)
        for code, rows_dropped in zip(dropped.tolist(), many.tolist(), strict=True):
            count(counts, f"{PLACE}:{code}", rows_dropped)

    def finish(self) -> None:
        self._writer.settle()


_writers: dict[str, LogWriter] = {}
"""One per executor process and log, kept from task to task; a process runs one task at a time."""


def _writer(bootstrap: str) -> LogWriter:
    writer = _writers.get(bootstrap)
    if writer is not None and writer.failed:
        writer.close()
        writer = None
    if writer is None:
        writer = _writers[bootstrap] = LogWriter(bootstrap)
    return writer
