"""Converts lines that were read as columns to the columns of events, without an object per line.

Knows columns and which of them fill which slot. Must not know formats. Values are converted by the same functions as
those of single lines (`event.slot_columns`). A line with a value that does not match the type of its slot is left out
of the result: `event.normalise` reads it as a row, where the value can become an attribute again.
"""

from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from logboom.pipeline.event.json import escaped, joined
from logboom.pipeline.normalise.event import slot_columns
from logboom.pipeline.normalise.fields import SLOTS, Values, extractor_for
from logboom.pipeline.normalise.mapping import EventMapping
from logboom.pipeline.normalise.origin import LINE_IDENTITY, Origins
from logboom.pipeline.normalise.rows import FieldColumn, Index, LineColumns

_decode: Final = msgspec.json.Decoder().decode
_encode: Final = msgspec.json.Encoder().encode


class NormalisedColumns(NamedTuple):
    """The columns of an event that depend on lines."""

    rows: Index
    """The row numbers in the batch."""
    columns: dict[str, pa.Array]


class _ColumnSlots:
    """The `SlotValues` of lines that were read as columns. Putting a value back marks its row, to be read as a row."""

    def __init__(self, slots: dict[str, FieldColumn], rows: int) -> None:
        self.values: dict[str, Values] = {slot: _values(slots.get(slot), rows) for slot in SLOTS}
        self.unusable = np.zeros(rows, np.bool_)
        """For each row, whether it must be read as a row."""
        for slot in slots:
            values = self.values[slot]
            if isinstance(values, list) and None in values:
                self.unusable |= np.array([value is None for value in values])

    def put_back(self, slot: str, index: int) -> None:
        self.unusable[index] = True


def _values(column: FieldColumn | None, rows: int) -> Values:
    if column is None:
        return [None] * rows
    return column.texts if column.quoted else [_decode(text) for text in column.texts.to_pylist()]


def normalise_columns(rule: EventMapping, lines: LineColumns, batch: pa.RecordBatch) -> NormalisedColumns | None:
    """The event columns of lines with the same fields, which are some rows of a raw batch; None if they must be read as
    rows."""
    extractor = extractor_for(rule)
    slots = extractor.plain_slots(tuple(column.name for column in lines.columns))
    if slots is None or any(map(extractor.may_use, LINE_IDENTITY)):
        return None
    count = len(lines.rows)
    origins = Origins(batch if count == batch.num_rows else batch.take(pa.array(lines.rows)))
    by_name = {column.name: column for column in lines.columns}
    identity = [column for column in origins.line_identity() if column.name not in by_name]
    filled = _ColumnSlots({slot: by_name.pop(name) for slot, name in slots}, count)
    reasons: list[str | None] = [None] * count
    columns = slot_columns(rule, filled, origins, reasons)
    columns["attributes"] = _attributes([*by_name.values()], identity, count)
    if not filled.unusable.any():
        return NormalisedColumns(lines.rows, columns)
    fine = pa.array(~filled.unusable)
    return NormalisedColumns(
        lines.rows[~filled.unusable], {name: column.filter(fine) for name, column in columns.items()}
    )


def _attributes(columns: list[FieldColumn], identity: list[FieldColumn], count: int) -> pa.Array:
    """The remaining fields as JSON objects, written as msgspec writes them.

    `identity`: the collector's fields, appended to them; some rows may lack some of these.
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


def _member(column: FieldColumn, before: str) -> list[Any]:
    """The parts of `"name":value`; null if the column is."""
    quote = '"' if column.quoted else ""
    return [f"{before}{_encode(column.name).decode()}:{quote}", column.texts, quote]


def _escaped(column: FieldColumn) -> FieldColumn:
    return column._replace(texts=escaped(column.texts)) if column.quoted else column
