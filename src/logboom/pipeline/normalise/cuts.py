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
from logboom.pipeline.normalise.event import PATH, slot_columns
from logboom.pipeline.normalise.fields import SLOTS, Values, taker_for
from logboom.pipeline.normalise.origin import Origins
from logboom.pipeline.normalise.rows import Cut, CutColumn, Index
from logboom.pipeline.plan.nodes import ParseRule

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


def normalise_cut(rule: ParseRule, cut: Cut, batch: pa.RecordBatch) -> NormalisedCut | None:
    """The event columns of lines of one form, some rows of a raw batch; None where they have to be read one by one."""
    taker = taker_for(rule)
    slots = taker.plain_slots(tuple(column.name for column in cut.columns))
    if slots is None or taker.looks_for(PATH):
        return None
    count = len(cut.rows)
    origins = Origins(batch if count == batch.num_rows else batch.take(pa.array(cut.rows)))
    by_name = {column.name: column for column in cut.columns}
    path = None if PATH in by_name else origins.header(PATH)
    filled = _Filled({slot: by_name.pop(name) for slot, name in slots}, count)
    reasons: list[str | None] = [None] * count
    columns = slot_columns(rule, filled, origins, reasons)
    columns["attributes"] = _attributes([*by_name.values()], path, count)
    if not filled.left.any():
        return NormalisedCut(cut.rows, columns)
    fine = pa.array(~filled.left)
    return NormalisedCut(cut.rows[~filled.left], {name: column.filter(fine) for name, column in columns.items()})


def _attributes(columns: list[CutColumn], path: pa.Array | None, count: int) -> pa.Array:
    """The remaining fields as one JSON object each, written as msgspec writes it; `path`: the collector's, which stands
    behind them where there is one."""
    if path is not None and path.null_count:
        without = _attributes(columns, None, count)
        return pc.if_else(path.is_valid(), _attributes(columns, pc.fill_null(path, ""), count), without)
    if path is not None:
        columns = [*columns, CutColumn(PATH, escaped(path), quoted=True)]
    if not columns:
        return pa.repeat(pa.scalar("{}"), count)
    parts: list[Any] = []
    for number, column in enumerate(columns):
        quote = '"' if column.quoted else ""
        parts += [f"{',' if number else '{'}{_encode(column.name).decode()}:{quote}", column.texts, quote]
    return joined([*parts, "}"])
