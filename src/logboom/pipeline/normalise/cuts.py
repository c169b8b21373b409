"""From lines that were cut into columns to the shape of an event: `normalise` without an object for any line.

It knows columns and which of them fill which field. It must not know formats. Every value is read by the same
functions as a single line's; a line of which one cannot be read as what its name says is left to `normalise`.
"""

from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from logboom.pipeline.event.json import escaped, joined
from logboom.pipeline.normalise.event import slot_columns
from logboom.pipeline.normalise.fields import SLOTS, Values, taker_for
from logboom.pipeline.normalise.mapping import EventMapping
from logboom.pipeline.normalise.origin import LINE_IDENTITY, Origins
from logboom.pipeline.normalise.rows import Cut, CutColumn, Index

_decode: Final = msgspec.json.Decoder().decode
_encode: Final = msgspec.json.Encoder().encode


class NormalisedCut(NamedTuple):
    """Columns that lines decide, and of which rows of the batch."""

    rows: Index
    columns: dict[str, pa.Array]


class _Filled:
    """Slots of cut lines; rows of which one has to be put back are only noted."""

    def __init__(self, slots: dict[str, CutColumn], rows: int) -> None:
        self.values: dict[str, Values] = {slot: _values(slots.get(slot), rows) for slot in SLOTS}
        self.left = np.zeros(rows, np.bool_)
        """Rows that have to be read one by one."""
        for slot in slots:
            values = self.values[slot]
            if isinstance(values, list) and None in values:
                self.left |= np.array([value is None for value in values])

    def put_back(self, slot: str, index: int) -> None:
        self.left[index] = True


def _values(column: CutColumn | None, rows: int) -> Values:
    if column is None:
        return [None] * rows
    return column.texts if column.quoted else [_decode(text) for text in column.texts.to_pylist()]


def normalise_cut(rule: EventMapping, cut: Cut, batch: pa.RecordBatch) -> NormalisedCut | None:
    """The event columns of lines of one form, some rows of a raw batch; None where they have to be read one by one."""
    taker = taker_for(rule)
    slots = taker.plain_slots(tuple(column.name for column in cut.columns))
    if slots is None or any(map(taker.looks_for, LINE_IDENTITY)):
        return None
    count = len(cut.rows)
    origins = Origins(batch if count == batch.num_rows else batch.take(pa.array(cut.rows)))
    by_name = {column.name: column for column in cut.columns}
    identity = [column for column in origins.line_identity() if column.name not in by_name]
    filled = _Filled({slot: by_name.pop(name) for slot, name in slots}, count)
    reasons: list[str | None] = [None] * count
    columns = slot_columns(rule, filled, origins, reasons)
    columns["attributes"] = _attributes([*by_name.values()], identity, count)
    if not filled.left.any():
        return NormalisedCut(cut.rows, columns)
    fine = pa.array(~filled.left)
    return NormalisedCut(cut.rows[~filled.left], {name: column.filter(fine) for name, column in columns.items()})


def _attributes(columns: list[CutColumn], identity: list[CutColumn], count: int) -> pa.Array:
    """The remaining fields as one JSON object each, written as msgspec writes it.

    `identity`: the collector's fields, which stand behind them; a row may lack some of these.
    """
    columns = [*columns, *(_escaped(column) for column in identity if not column.texts.null_count)]
    parts: list[Any] = []
    for number, column in enumerate(columns):
        parts += _member(column, "," if number else "{")
    partial = [column for column in identity if column.texts.null_count]
    if not partial:
        return joined([*parts, "}"]) if parts else pa.repeat(pa.scalar("{}"), count)
    more = joined([pc.fill_null(joined(_member(_escaped(column), ",")), "") for column in partial])
    if not parts:
        return joined(["{", pc.utf8_ltrim(more, ","), "}"])
    return joined([*parts, more, "}"])


def _member(column: CutColumn, before: str) -> list[Any]:
    """The parts of `"name":value`; null where the column is."""
    quote = '"' if column.quoted else ""
    return [f"{before}{_encode(column.name).decode()}:{quote}", column.texts, quote]


def _escaped(column: CutColumn) -> CutColumn:
    return column._replace(texts=escaped(column.texts)) if column.quoted else column
