"""The kernel of the transform `parse`: `parse_batch`.

Knows which rule reads which rows, and combines their events into one batch. Must not know the meaning of a format or a
field.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from logboom.pipeline.errors import working_on
from logboom.pipeline.event.decoding import KEPT_WHEN_DEAD
from logboom.pipeline.event.schema import EVENT_SCHEMA
from logboom.pipeline.normalise.columns import NormalisedColumns, normalise_columns
from logboom.pipeline.normalise.event import normalise
from logboom.pipeline.normalise.mapping import EventMapping
from logboom.pipeline.normalise.memory import no_collections
from logboom.pipeline.normalise.origin import Origins
from logboom.pipeline.normalise.rows import Row
from logboom.pipeline.parse.bodies import open_bodies
from logboom.pipeline.parse.lines import EMPTY, NO_VALUE, text_lines
from logboom.pipeline.parse.rule import ParseRule
from logboom.pipeline.plan.nodes import DEAD_COLUMNS, DROPPED, RAW_COLUMNS

Rows = npt.NDArray[np.int64]

_FROM_LINE: Final = (
    "time",
    "severity_number",
    "severity_text",
    "service",
    "host",
    "body",
    "attributes",
    "trace_id",
    "span_id",
)
_NO_RULE: Final = "no rule applies to it"

_AS_TEXT: Final = EventMapping()
"""Settings for lines that no rule reads: only a body, without time or severity."""


@dataclass(frozen=True, slots=True)
class LeftOver:
    """What happens to rows that no rule reads."""

    lines: Literal["dead", "keep"] = "dead"
    """`keep`: such a line becomes an event whose body is the line."""
    blank_lines: Literal["dead", "drop", "keep"] = "dead"
    """Lines of white space only: treated as other lines that no rule reads, dropped, or events with an empty body."""


def parse_batch(
    rules: Sequence[ParseRule],
    left_over: LeftOver,
    stage: str,
    batch: pa.RecordBatch,
    drop_columns: Sequence[str] = (),
) -> pa.RecordBatch:
    """Parse a batch of RAW_COLUMNS (plus the rules' `when` columns): returns EVENT_COLUMNS + DEAD_COLUMNS + the rest.

    Returns as many rows as it gets, in order. A row that no rule reads has `dead_reason`, `stage` as `dead_stage` and
    its original record; for every other row these are null.

    `drop_columns`: boolean columns, one for each rule that drops records before parsing. With these, or if blank lines
    are dropped, the column DROPPED has the number of the dropping rule for each row, or 0: blank lines are first.
    Batches of more than about 256 MB should be split before.
    """
    with no_collections():
        return _parse(rules, left_over, stage, batch, drop_columns)


def _parse(
    rules: Sequence[ParseRule], left_over: LeftOver, stage: str, batch: pa.RecordBatch, drop_columns: Sequence[str]
) -> pa.RecordBatch:
    pieces: list[tuple[Rows, dict[str, pa.Array]]] = []
    reasons: dict[int, list[str]] = {}
    dropped = _dropped(batch, drop_columns, 1 if left_over.blank_lines != "drop" else 2)
    left = np.flatnonzero(dropped == 0)
    if len(left) < batch.num_rows:
        gone = np.flatnonzero(dropped)
        pieces.append((gone, _nothing_read(len(gone))))
    blank = np.zeros(0, np.int64) if left_over.blank_lines == "dead" else _blank_rows(batch)
    blank = np.intersect1d(blank, left, assume_unique=True)
    if len(blank):
        pieces.append((blank, _blank_events(left_over, batch, blank)))
        left = np.setdiff1d(left, blank, assume_unique=True)
    # A rule processes all rows that it applies to and that no earlier rule has read. The result is the same as if the
    # rules were tried on each row in turn.
    for rule in rules:
        if not len(left):
            break
        rows = left[_applies(rule, batch, left)]
        if not len(rows):
            continue
        with working_on(f"rule {rule.label}", f"line {rule.line}"):
            read, piece = _read_rows(rule, batch, rows, reasons)
        if len(read):
            pieces.append((read, piece))
            left = np.setdiff1d(left, read, assume_unique=True)
    if len(left):
        pieces.append((left, _unread(left_over, batch, left)))
    dead = {int(row): "; ".join(reasons.get(int(row), [_NO_RULE])) for row in left} if left_over.lines == "dead" else {}
    answered = {*(rule.when_column for rule in rules), *drop_columns}
    whole = _assemble(_in_order(pieces, batch.num_rows), batch, dead, stage, answered)
    if left_over.blank_lines == "drop":
        dropped[blank] = 1
    elif not drop_columns:
        return whole
    return whole.append_column(DROPPED, pa.array(dropped))


def _dropped(batch: pa.RecordBatch, columns: Sequence[str], first: int) -> npt.NDArray[np.int32]:
    """The number of the first rule that drops each row, counted from `first`; 0 if none does."""
    dropped = np.zeros(batch.num_rows, np.int32)
    for number, column in enumerate(columns, start=first):
        dropped[_true(batch.column(column)) & (dropped == 0)] = number
    return dropped


def _blank_rows(batch: pa.RecordBatch) -> Rows:
    """Rows whose value is only white space. A tombstone has no value and is not one of them."""
    is_blank = pc.equal(pc.binary_length(text_lines(_binary(batch.column("value")))), 0)
    return np.flatnonzero(_true(is_blank))


def _blank_events(left_over: LeftOver, batch: pa.RecordBatch, rows: Rows) -> dict[str, pa.Array]:
    """Events for blank lines, with an empty body; without a body if they will be dropped."""
    if left_over.blank_lines == "drop":
        return _nothing_read(len(rows))
    return normalise(_AS_TEXT, [{"body": ""} for _ in rows], Origins(batch.take(pa.array(rows)))).columns


def _applies(rule: ParseRule, batch: pa.RecordBatch, rows: Rows) -> npt.NDArray[np.bool_]:
    applies = np.ones(len(rows), np.bool_)
    if rule.source is not None:
        applies &= _true(pc.equal(batch.column("source"), rule.source))[rows]
    if rule.when_column is not None:
        applies &= _true(batch.column(rule.when_column))[rows]
    return applies


def _true(column: pa.Array) -> npt.NDArray[np.bool_]:
    """Null is not true."""
    values: npt.NDArray[np.bool_] = pc.fill_null(column.cast(pa.bool_()), False).to_numpy(zero_copy_only=False)
    return values


def _read_rows(
    rule: ParseRule, batch: pa.RecordBatch, rows: Rows, reasons: dict[int, list[str]]
) -> tuple[Rows, dict[str, pa.Array]]:
    """The rows that a rule could read, and their columns. Records the rule's reasons for the others."""
    part = batch if len(rows) == batch.num_rows else batch.take(pa.array(rows))
    # First read whole columns, which costs a fraction of reading rows; then the remaining rows.
    pieces = _read_columns(rule, part)
    done = np.zeros(len(rows), np.bool_)
    for piece in pieces:
        done[piece.rows] = True
    if not done.any():
        return _read_lines(rule, part, rows, reasons)
    whole = [(rows[piece.rows], piece.columns) for piece in pieces]
    if not done.all():
        left = np.flatnonzero(~done)
        whole.append(_read_lines(rule, part.take(pa.array(left)), rows[left], reasons))
    return np.sort(np.concatenate([some for some, _ in whole])), _in_order(whole, len(rows))


def _read_columns(rule: ParseRule, part: pa.RecordBatch) -> list[NormalisedColumns]:
    """Lines that the format can read as columns: most JSON of programs is flat and has few forms."""
    if rule.of_bodies is not None:  # a body in a format is parsed together with its row
        return []
    read = rule.format.read_columns(_binary(part.column("value")))
    pieces = (normalise_columns(rule, columns, part) for columns in read)
    return [piece for piece in pieces if piece is not None and len(piece.rows)]


def _read_lines(
    rule: ParseRule, part: pa.RecordBatch, rows: Rows, reasons: dict[int, list[str]]
) -> tuple[Rows, dict[str, pa.Array]]:
    """Read line by line; `rows` are the positions of these lines in the whole batch."""
    fields = rule.format.read_rows(_binary(part.column("value")))
    open_bodies(rule, fields)
    found = normalise(rule, fields, Origins(part))
    if found.reasons.count(None) == len(rows):
        return rows, found.columns
    failed = np.array([reason is not None for reason in found.reasons], np.bool_)
    for row, reason in zip(rows.tolist(), found.reasons, strict=True):
        if reason is not None:
            # These two are the same for every rule, so they appear once, without the name of a rule.
            text = reason if reason in (NO_VALUE, EMPTY) else f"{rule.label}: {reason}"
            if text not in reasons.setdefault(row, []):
                reasons[row].append(text)
    fine = pa.array(~failed)
    return rows[~failed], {name: column.filter(fine) for name, column in found.columns.items()}


def _binary(values: pa.Array) -> pa.Array:
    return values if pa.types.is_binary(values.type) else values.cast(pa.binary())


def _unread(left_over: LeftOver, batch: pa.RecordBatch, rows: Rows) -> dict[str, pa.Array]:
    """Rows that no rule reads: kept as text, or dead."""
    if left_over.lines == "keep":
        part = batch.take(pa.array(rows))
        lines = text_lines(part.column("value").cast(pa.binary())).to_pylist()
        fields: list[Row] = [{"body": line} if line is not None else {} for line in lines]
        return normalise(_AS_TEXT, fields, Origins(part)).columns
    return _nothing_read(len(rows))


def _nothing_read(count: int) -> dict[str, pa.Array]:
    """The columns of rows that could not be read."""
    columns = {name: pa.nulls(count, EVENT_SCHEMA.field(name).type) for name in _FROM_LINE}
    columns["severity_number"] = pa.array(np.zeros(count, np.int32))
    return columns


def _in_order(pieces: list[tuple[Rows, dict[str, pa.Array]]], count: int) -> dict[str, pa.Array]:
    if len(pieces) == 1:
        return pieces[0][1]
    if not pieces:
        return {name: pa.nulls(count, EVENT_SCHEMA.field(name).type) for name in _FROM_LINE}
    back = pa.array(np.argsort(np.concatenate([rows for rows, _ in pieces]), kind="stable"))
    return {name: pa.concat_arrays([piece[name] for _, piece in pieces]).take(back) for name in _FROM_LINE}


def _assemble(
    columns: dict[str, pa.Array], batch: pa.RecordBatch, dead: dict[int, str], stage: str, answered: set[str | None]
) -> pa.RecordBatch:
    """The columns of the whole batch that depend on lines. `dead`: reasons by row. `answered`: the `when` columns."""
    count = batch.num_rows
    origins = Origins(batch)
    columns = {**columns, "observed_time": origins.observed_time(), "event_id": origins.event_ids()}
    columns["weight"] = pa.array(np.ones(count))
    for name in ("source", "stream", "partition", "offset"):
        columns[name] = batch.column(name)
    columns |= _dead_columns(batch, dead, stage)
    shaped = [_as_type(columns[field.name], field.type) for field in EVENT_SCHEMA]
    names = list(EVENT_SCHEMA.names)
    replaced = {name for name, _ in RAW_COLUMNS} | answered | set(names)
    for field in batch.schema:
        if field.name not in replaced:
            names.append(field.name)
            shaped.append(batch.column(field.name))
    return pa.RecordBatch.from_arrays(shaped, names=names)


def _dead_columns(batch: pa.RecordBatch, dead: dict[int, str], stage: str) -> dict[str, pa.Array]:
    count = batch.num_rows
    columns = {name: pa.nulls(count, EVENT_SCHEMA.field(name).type) for name, _ in DEAD_COLUMNS}
    if not dead:
        return columns
    rows = range(count)
    columns["dead_reason"] = pa.array([dead.get(row) for row in rows], pa.string())
    columns["dead_stage"] = pa.array([stage if row in dead else None for row in rows], pa.string())
    positions = pa.array([row if row in dead else None for row in rows], pa.int64())
    for name in KEPT_WHEN_DEAD:
        index = batch.schema.get_field_index(name)
        if index >= 0:
            columns[name] = batch.column(index).take(positions)
    return columns


def _as_type(column: pa.Array, kind: pa.DataType) -> pa.Array:
    return column if column.type.equals(kind) else column.cast(kind)
