"""Events from records whose values are already events: a replay of an archive uses this instead of a parse.

Knows the JSON form of events and the columns of raw records. Must not know archives.
"""

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from logboom.pipeline.event.reading import read_events
from logboom.pipeline.event.schema import LIVE_SCHEMA

_PLACE: Final = ("source", "stream", "partition", "offset")
KEPT_WHEN_DEAD: Final = ("timestamp", "key", "value", "headers")
"""Columns of a record that are kept in its dead letter."""


def events_of_records(batch: pa.RecordBatch, stage: str) -> pa.RecordBatch:
    """One row for each record, in the same order; columns besides those of a record are passed on.

    A record that holds no event has `dead_reason`, `stage` as `dead_stage` and its original bytes.
    """
    count = batch.num_rows
    found = list(read_events(batch.column("value").cast(pa.binary())))
    events = pa.concat_tables([LIVE_SCHEMA.empty_table(), *(piece.events for piece in found)]).combine_chunks()
    position = np.full(count, -1, np.int64)
    for first, piece in zip(np.cumsum([0, *(len(piece.rows) for piece in found)]).tolist(), found, strict=False):
        position[piece.rows] = first + np.arange(len(piece.rows))
    taken = events.take(pa.array(position, mask=position < 0))
    columns = {name: taken.column(name).combine_chunks() for name in LIVE_SCHEMA.names}
    for name in _PLACE:  # the place of a dead record in its stream
        columns[name] = pc.coalesce(columns[name], batch.column(name).cast(LIVE_SCHEMA.field(name).type))
    reasons = dict(one for piece in found for one in piece.unreadable)
    columns["dead_reason"] = pa.array([reasons.get(row) for row in range(count)], pa.string())
    columns["dead_stage"] = pa.array([stage if row in reasons else None for row in range(count)], pa.string())
    dead = pa.array(np.arange(count), mask=position >= 0)
    columns |= {name: batch.column(name).take(dead) for name in KEPT_WHEN_DEAD}
    columns |= {name: batch.column(name) for name in batch.schema.names if name not in columns}
    return pa.RecordBatch.from_pydict(columns)
