"""The JSON of events read back: columns for those that are events, a reason for each of the others.

Nearly all rows are cut into columns (`spans`). Rows that do not have the form that `event.json` writes, and all rows of
a batch that is too small to benefit, are decoded into objects. A batch is processed in pieces of bounded size, so that
the additional memory does not grow with the batch.

Knows the JSON form of events. Must not know where events come from or go.
"""

from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import Final, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from logboom.base.units import MIB
from logboom.pipeline.event.record import NOT_JSON, EventRecord
from logboom.pipeline.event.schema import LIVE_SCHEMA, MICROSECONDS
from logboom.pipeline.event.spans import Index, cut_events, joined_list

PIECE_MAX_BYTES: Final = 2 * MIB
"""How much JSON is read at once; a single event may be larger. Intermediate results then fit into the processor's
caches."""


_ONE: Final = msgspec.json.Decoder(EventRecord)
_MANY: Final = msgspec.json.Decoder(list[EventRecord])
_NO_COLUMN: Final = (pa.ArrowInvalid, OverflowError)
"""A value that its column cannot hold: an invalid time, or a number that is too large."""
_COLUMNS: Final = tuple((field.name, field.type, attrgetter(field.name)) for field in LIVE_SCHEMA)


class EventRows(NamedTuple):
    """Events of a piece of a batch, in the order of its rows."""

    events: pa.Table
    """Of `LIVE_SCHEMA`."""
    rows: Index
    """Which row of the batch each was."""
    unreadable: list[tuple[int, str]]
    """Row and reason of those that are not events."""


def read_events(values: pa.Array) -> Iterator[EventRows]:
    """All rows of a binary array, piece by piece."""
    start = 0
    for stop in _piece_ends(values):
        found = _read_piece(values.slice(start, stop - start))
        unreadable = [(row + start, reason) for row, reason in found.unreadable]
        yield EventRows(found.events, found.rows + start, unreadable)
        start = stop


def _piece_ends(values: pa.Array) -> Iterator[int]:
    lengths = pc.fill_null(pc.binary_length(values), 0).to_numpy(zero_copy_only=False)
    ends = np.cumsum(lengths, dtype=np.int64)
    start = 0
    while start < len(values):
        before = int(ends[start - 1]) if start else 0
        start = max(int(np.searchsorted(ends, before + PIECE_MAX_BYTES, side="right")), start + 1)
        yield start


def _read_piece(values: pa.Array) -> EventRows:
    cut = cut_events(values)
    if cut is None:
        return read_objects(values)
    events = pa.Table.from_batches([cut.events])
    if len(cut.rows) == len(values):
        return EventRows(events, cut.rows, [])
    left = np.setdiff1d(np.arange(len(values)), cut.rows, assume_unique=True)
    others = read_objects(values.take(pa.array(left)))
    rows = np.concatenate((cut.rows, left[others.rows]))
    order = np.argsort(rows)
    whole = pa.concat_tables((events, others.events)).take(pa.array(order))
    return EventRows(whole, rows[order], [(int(left[row]), reason) for row, reason in others.unreadable])


def read_objects(values: pa.Array) -> EventRows:
    """The same for all rows, by decoding an object for each event."""
    if not values.null_count:
        try:
            events = _MANY.decode(joined_list(values))
            # A row may hold the end of one event and the beginning of another.
            if len(events) == len(values):
                return EventRows(_table(events), np.arange(len(values)), [])
        except (*NOT_JSON, *_NO_COLUMN):  # one of them is not an event: find out which
            pass
    return _read_singly(values.to_pylist())


def _read_singly(values: Sequence[bytes | None]) -> EventRows:
    tables, rows, unreadable = [LIVE_SCHEMA.empty_table()], [], []
    for row, value in enumerate(values):
        try:
            tables.append(_table([_ONE.decode(value or b"")]))
            rows.append(row)
        except (*NOT_JSON, *_NO_COLUMN) as error:
            unreadable.append((row, str(error)))
    return EventRows(pa.concat_tables(tables).combine_chunks(), np.array(rows, np.int64), unreadable)


def _table(events: Sequence[EventRecord]) -> pa.Table:
    columns: dict[str, pa.Array] = {}
    for name, kind, value_of in _COLUMNS:
        # A column is read by one C loop over the events: a comprehension costs more than all the rest of the table.
        values = list(map(value_of, events))
        if name == "attributes":
            column = pa.array(list(map(bytes, values)), pa.binary()).cast(pa.string())
        elif kind == MICROSECONDS:
            column = pa.array(values, pa.string()).cast(MICROSECONDS)
        else:
            column = pa.array(values, kind)
        columns[name] = column
    return pa.Table.from_pydict(columns, schema=LIVE_SCHEMA)
