"""Reshaping of whole Arrow batches: `reshape_batch` is the kernel of the transform `reshape`.

Knows an event's columns. Must not know how the values of `set` were computed. Rows keep their places; an event whose
value could not be computed, or is not what its field holds, gets a reason.
"""

import re
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from logboom.pipeline.event.attributes import rows_with_attribute
from logboom.pipeline.event.record_batch import with_column
from logboom.pipeline.event.schema import MICROSECONDS
from logboom.pipeline.normalise.memory import no_collections
from logboom.pipeline.plan.outcomes import shown_sql
from logboom.pipeline.reshape.edits import CASTS, cast, flatten, remove, take, to_text
from logboom.pipeline.reshape.shown_values import shortened

PREFIX: Final = "attributes."
TEXT_FIELDS: Final = ("body", "service", "host", "severity_text")
"""Fields that are any text: what can be renamed, to an attribute and from one."""
FORMED_FIELDS: Final = ("time", "severity_number", "trace_id", "span_id")
"""Fields that do not hold every value."""
SET_FIELDS: Final = (*TEXT_FIELDS, *FORMED_FIELDS)
"""Fields that can be set or removed."""

_IDS: Final = {"trace_id": re.compile(r"[0-9a-f]{32}"), "span_id": re.compile(r"[0-9a-f]{16}")}
_SEVERITY_MAX: Final = 24
_CONSTANT: Final = re.compile(r"(?P<number>-?\d{1,30})|'(?P<text>[^'\\]*)'")
_decode = msgspec.json.Decoder(dict[str, Any]).decode
_encode = msgspec.json.Encoder().encode


class SetValues(NamedTuple):
    """What a field is set to."""

    target: str
    sql: str
    values: Sequence[Any]
    """By row: plain data, None if the value is null."""
    failed: Sequence[int]
    """The rows for which it could not be computed."""
    counted_as: str = ""
    """The column that counts, by row, these and values that the field cannot hold; without a name there is none."""


class Edits(NamedTuple):
    """What a reshape does, in this order; fields are named as in a pipeline's file, attributes with PREFIX."""

    rename: tuple[tuple[str, str], ...] = ()
    remove: tuple[str, ...] = ()
    cast: tuple[tuple[str, str], ...] = ()
    flatten: tuple[str, ...] = ()
    """Attributes, or `attributes` for all."""


def reshape_batch(edits: Edits, sets: Sequence[SetValues], stage: str, batch: pa.RecordBatch) -> pa.RecordBatch:
    """The events of a batch with the edits applied, and then the fields set to values that were computed before
    them."""
    with no_collections():
        return _Reshaping(edits, sets, batch).run(stage)


class _Reshaping:
    def __init__(self, edits: Edits, sets: Sequence[SetValues], batch: pa.RecordBatch) -> None:
        self._edits = edits
        self._batch = batch
        self._reasons: dict[int, str] = {}
        self._columns: dict[str, list[Any]] = {}
        """Fields that change, as plain data."""
        self._unset = {one.counted_as: set(one.failed) for one in sets if one.counted_as}
        """By count: the rows for which a field could not be set."""
        self._attribute_sets = [one for one in sets if one.target.startswith(PREFIX)]
        self._field_sets = [one for one in sets if not one.target.startswith(PREFIX)]
        for one in sets:
            for row in one.failed:
                self._reasons.setdefault(row, _failure(one))

    def run(self, stage: str) -> pa.RecordBatch:
        attributes = self._attributes()
        for name in self._edits.remove:
            if not name.startswith(PREFIX):
                self._columns[name] = [0 if name == "severity_number" else None] * self._batch.num_rows
        for one in self._field_sets:
            self._set_field(one)
        batch = with_column(self._batch, "attributes", attributes)
        for name, values in self._columns.items():
            kind = batch.schema.field(name).type
            batch = with_column(batch, name, pa.array(values, kind))
        batch = batch if not self._reasons else self._with_reasons(batch, stage)
        for name, rows in self._unset.items():
            counted = pa.array([int(row in rows) for row in range(batch.num_rows)], pa.int32())
            batch = with_column(batch, name, counted)
        return batch

    # --- attributes --------------------------------------------------------------------------------------------------

    def _attributes(self) -> pa.Array:
        column = self._batch.column("attributes")
        rows = self._touched(column)
        if not len(rows):
            return column
        texts: list[str | None] = column.to_pylist()
        changed = False
        for row in rows.tolist():
            text = texts[row]
            tree = {} if text is None else _decode(text)
            if self._edit(tree, row):
                texts[row] = _encode(tree).decode()
                changed = True
        return pa.array(texts, pa.string()) if changed else column

    def _touched(self, column: pa.Array) -> Any:
        """The rows whose attributes may change: all where one is made, else those that have one of the names."""
        edits = self._edits
        makes = any(target.startswith(PREFIX) and not name.startswith(PREFIX) for name, target in edits.rename)
        removed = [name for name in edits.remove if name.startswith(PREFIX)]
        if makes or self._attribute_sets or edits.flatten or any("*" in name for name in removed):
            return np.arange(len(column))
        names = [*(name for name, _ in edits.rename), *removed, *(name for name, _ in edits.cast)]
        found = [rows_with_attribute(column, name.removeprefix(PREFIX)) for name in names if name.startswith(PREFIX)]
        return np.unique(np.concatenate([rows.to_numpy() for rows in found])) if found else np.zeros(0, np.int64)

    def _edit(self, tree: dict[str, Any], row: int) -> bool:
        """Changes the attributes of one event; whether there was anything to change."""
        changed = False
        for name, target in self._edits.rename:
            changed |= self._rename(tree, row, name, target)
        removed = [name.removeprefix(PREFIX) for name in self._edits.remove if name.startswith(PREFIX)]
        if removed:
            changed |= remove(tree, removed)
        for name, kind in self._edits.cast:
            changed |= cast(tree, name.removeprefix(PREFIX), CASTS[kind])
        for name in self._edits.flatten:
            changed |= flatten(tree, name.removeprefix(PREFIX) if name.startswith(PREFIX) else None)
        for one in self._attribute_sets:
            name, value = one.target.removeprefix(PREFIX), one.values[row]
            there, _ = take(tree, name)
            if value is not None:
                tree[name] = value
            changed |= there or value is not None
        return changed

    def _rename(self, tree: dict[str, Any], row: int, name: str, target: str) -> bool:
        """Moves a value; an attribute of the new name is replaced."""
        if name.startswith(PREFIX):
            there, value = take(tree, name.removeprefix(PREFIX))
            if not there:
                return False
        else:
            value = self._column(name)[row]
            if value is None:
                return False
            self._column(name)[row] = None
        if target.startswith(PREFIX):
            take(tree, target.removeprefix(PREFIX))
            tree[target.removeprefix(PREFIX)] = value
        else:
            self._column(target)[row] = to_text(value)
        return True

    # --- fields ------------------------------------------------------------------------------------------------------

    def _column(self, name: str) -> list[Any]:
        if name not in self._columns:
            self._columns[name] = self._batch.column(name).to_pylist()
        return self._columns[name]

    def _set_field(self, one: SetValues) -> None:
        column: list[Any] = []
        for row, value in enumerate(one.values):
            try:
                column.append(_field_value(one.target, value))
            except ValueError:
                column.append(None)
                reason = f"{one.target} cannot be {shortened(value)}, the value of: {shown_sql(one.sql)}"
                self._reasons.setdefault(row, reason)
                self._unset.get(one.counted_as, set()).add(row)
        if one.target == "severity_number":
            column = [value or 0 for value in column]
        self._columns[one.target] = column

    def _with_reasons(self, batch: pa.RecordBatch, stage: str) -> pa.RecordBatch:
        """The events that failed go to the dead letters as they came."""
        rows = range(batch.num_rows)
        failed = pa.array([row in self._reasons for row in rows])
        for name in ("attributes", *self._columns):
            kept = pc.if_else(failed, self._batch.column(name), batch.column(name))
            batch = with_column(batch, name, kept)
        batch = with_column(batch, "dead_reason", pa.array([self._reasons.get(row) for row in rows], pa.string()))
        stages = pa.array([stage if row in self._reasons else None for row in rows], pa.string())
        return with_column(batch, "dead_stage", stages)


def _failure(one: SetValues) -> str:
    return f"{one.target} cannot be set: its expression fails on this event: {shown_sql(one.sql)}"


def _field_value(target: str, value: Any) -> Any:
    """The value as its field holds it; ValueError if it cannot."""
    if value is None:
        return None
    if target == "time":
        return _time(value)
    if target == "severity_number":
        if not isinstance(value, int) or not 0 <= value <= _SEVERITY_MAX:
            raise ValueError(target)
        return value
    text = to_text(value)
    form = _IDS.get(target)
    if form is None:
        return text
    text = text.lower()
    if not form.fullmatch(text) or not text.strip("0"):
        raise ValueError(target)
    return text


def constant_fault(target: str, sql: str) -> str | None:
    """Why no event could have what is set, where that is a constant number or text.

    >>> constant_fault("severity_number", "17"), constant_fault("severity_number", "99")
    (None, 'severity_number cannot be 99, so every event would be a dead letter')
    """
    found = _CONSTANT.fullmatch(sql.strip())
    if found is None or target not in ("severity_number", *_IDS):
        return None
    value = found["text"] if found["number"] is None else int(found["number"])
    try:
        _field_value(target, value)
    except ValueError:
        return f"{target} cannot be {shortened(value)}, so every event would be a dead letter"
    return None


def _time(value: Any) -> Any:
    try:
        return pa.scalar(value, pa.string()).cast(MICROSECONDS).value
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as error:
        raise ValueError("time") from error
