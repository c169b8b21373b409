"""Parsing of whole Arrow batches: raw records in, events out, a malformed line being its own row's affair.

`parse_batch` is the way in. It knows which rule reads which rows and how their events become one batch again. It must
not know what a format or a field means.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from logboom.pipeline.errors import working_on
from logboom.pipeline.event.schema import EVENT_SCHEMA
from logboom.pipeline.normalise.cuts import NormalisedCut, normalise_cut
from logboom.pipeline.normalise.event import normalise
from logboom.pipeline.normalise.memory import no_collections
from logboom.pipeline.normalise.origin import Origins
from logboom.pipeline.normalise.rows import Row
from logboom.pipeline.parse.bodies import open_bodies
from logboom.pipeline.parse.csv_lines import read_csv
from logboom.pipeline.parse.json_lines import read_json
from logboom.pipeline.parse.json_spans import cut_json
from logboom.pipeline.parse.lines import EMPTY, NO_VALUE, text_lines
from logboom.pipeline.parse.pairs import read_key_value, read_logfmt
from logboom.pipeline.parse.patterns import read_pattern
from logboom.pipeline.parse.syslog import read_syslog
from logboom.pipeline.plan.nodes import (
    DEAD_COLUMNS,
    RAW_COLUMNS,
    CsvFormat,
    Format,
    JsonFormat,
    KeyValueFormat,
    LogfmtFormat,
    ParseRule,
    ParseTransform,
    PatternFormat,
    SyslogFormat,
    TextFormat,
)

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
_KEPT_WHEN_DEAD: Final = ("timestamp", "key", "value", "headers")
_NO_RULE: Final = "no rule applies to it"

DROPPED: Final = "dropped"
"""A column of true and false beside the events of a transform that drops blank lines."""


def parse_batch(transform: ParseTransform, batch: pa.RecordBatch) -> pa.RecordBatch:
    """Events of a batch of RAW_COLUMNS (plus the rules' `when` columns): EVENT_COLUMNS + DEAD_COLUMNS + the rest.

    As many rows as came in, in their order. A row no rule reads has `dead_reason`, `dead_stage` and its original
    record; every other row has null there. Batches of more than some 256 MB should be cut before.
    """
    with no_collections():
        return _parse(transform, batch)


def _parse(transform: ParseTransform, batch: pa.RecordBatch) -> pa.RecordBatch:
    left = np.arange(batch.num_rows)
    pieces: list[tuple[Rows, dict[str, pa.Array]]] = []
    reasons: dict[int, list[str]] = {}
    blank = np.zeros(0, np.int64) if transform.blank_lines == "dead" else _blank_rows(batch)
    if len(blank):
        pieces.append((blank, _blank_events(transform, batch, blank)))
        left = np.setdiff1d(left, blank, assume_unique=True)
    for rule in transform.rules:
        if not len(left):
            break
        rows = left[_applies(rule, batch, left)]
        if not len(rows):
            continue
        with working_on(f"rule {rule.label}", rule.line):
            read, piece = _read_rows(rule, batch, rows, reasons)
        if len(read):
            pieces.append((read, piece))
            left = np.setdiff1d(left, read, assume_unique=True)
    if len(left):
        pieces.append((left, _left_over(transform, batch, left)))
    told = (
        {int(row): "; ".join(reasons.get(int(row), [_NO_RULE])) for row in left}
        if transform.otherwise == "dead"
        else {}
    )
    whole = _assemble(transform, batch, _in_order(pieces, batch.num_rows), told)
    if transform.blank_lines != "drop":
        return whole
    return whole.append_column(DROPPED, pa.array(np.isin(np.arange(batch.num_rows), blank)))


def _blank_rows(batch: pa.RecordBatch) -> Rows:
    """Rows with a value of blanks alone. A tombstone has no value and is none of them."""
    is_blank = pc.equal(pc.binary_length(text_lines(_binary(batch.column("value")))), 0)
    return np.flatnonzero(_true(is_blank))


def _blank_events(transform: ParseTransform, batch: pa.RecordBatch, rows: Rows) -> dict[str, pa.Array]:
    """Blank lines as events with an empty body; without one where they are to be dropped."""
    if transform.blank_lines == "drop":
        return _nothing_read(len(rows))
    return normalise(_text_rule(), [{"body": ""} for _ in rows], Origins(batch.take(pa.array(rows)))).columns


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
    """The rows a rule could read and their columns; for the others its reasons are noted."""
    part = batch if len(rows) == batch.num_rows else batch.take(pa.array(rows))
    pieces = _read_columns(rule, part)
    done = np.zeros(len(rows), np.bool_)
    for cut in pieces:
        done[cut.rows] = True
    if not done.any():
        return _read_lines(rule, part, rows, reasons)
    whole = [(rows[cut.rows], cut.columns) for cut in pieces]
    if not done.all():
        left = np.flatnonzero(~done)
        whole.append(_read_lines(rule, part.take(pa.array(left)), rows[left], reasons))
    return np.sort(np.concatenate([some for some, _ in whole])), _in_order(whole, len(rows))


def _read_columns(rule: ParseRule, part: pa.RecordBatch) -> list[NormalisedCut]:
    """The lines that can be read by columns; nearly all JSON of programs is flat and of few forms."""
    if not isinstance(rule.format, JsonFormat) or rule.body_format is not None:
        return []
    cuts = (normalise_cut(rule, cut, part) for cut in cut_json(_binary(part.column("value"))))
    return [cut for cut in cuts if cut is not None and len(cut.rows)]


def _read_lines(
    rule: ParseRule, part: pa.RecordBatch, rows: Rows, reasons: dict[int, list[str]]
) -> tuple[Rows, dict[str, pa.Array]]:
    """The same line by line; `rows` says which rows of the batch these are."""
    fields = read_fields(rule.format, part.column("value"))
    open_bodies(rule, fields)
    found = normalise(rule, fields, Origins(part))
    if found.reasons.count(None) == len(rows):
        return rows, found.columns
    failed = np.array([reason is not None for reason in found.reasons], np.bool_)
    for row, reason in zip(rows.tolist(), found.reasons, strict=True):
        if reason is not None:
            several = reason in (NO_VALUE, EMPTY)
            text = reason if several else f"{rule.label}: {reason}"
            if text not in reasons.setdefault(row, []):
                reasons[row].append(text)
    fine = pa.array(~failed)
    return rows[~failed], {name: column.filter(fine) for name, column in found.columns.items()}


def read_fields(form: Format, values: pa.Array) -> list[Row]:
    """The fields of each value (a binary array), or why it has none."""
    values = _binary(values)
    match form:
        case JsonFormat():
            return read_json(values)
        case LogfmtFormat():
            return read_logfmt(text_lines(values))
        case KeyValueFormat():
            return read_key_value(text_lines(values), form.pair_separator, form.key_value_separator)
        case CsvFormat():
            return read_csv(text_lines(values), form.columns, form.delimiter)
        case SyslogFormat():
            return read_syslog(text_lines(values), form.rfc)
        case PatternFormat():
            return read_pattern(text_lines(values), form)
        case TextFormat():
            return _read_text(text_lines(values))


def _binary(values: pa.Array) -> pa.Array:
    return values if pa.types.is_binary(values.type) else values.cast(pa.binary())


def _read_text(lines: pa.Array) -> list[Row]:
    return [{"body": line} if line else NO_VALUE if line is None else EMPTY for line in lines.to_pylist()]


@lru_cache(maxsize=1)
def _text_rule() -> ParseRule:
    return ParseRule(label="text", line=0, format=TextFormat())


def _left_over(transform: ParseTransform, batch: pa.RecordBatch, rows: Rows) -> dict[str, pa.Array]:
    """Rows no rule reads: as text where the transform keeps them, else dead ones."""
    if transform.otherwise == "keep":
        part = batch.take(pa.array(rows))
        lines = text_lines(part.column("value").cast(pa.binary())).to_pylist()
        fields: list[Row] = [{"body": line} if line is not None else {} for line in lines]
        return normalise(_text_rule(), fields, Origins(part)).columns
    return _nothing_read(len(rows))


def _nothing_read(count: int) -> dict[str, pa.Array]:
    """The columns of rows of which nothing was read."""
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
    transform: ParseTransform, batch: pa.RecordBatch, columns: dict[str, pa.Array], dead: dict[int, str]
) -> pa.RecordBatch:
    count = batch.num_rows
    origins = Origins(batch)
    columns = {**columns, "observed_time": origins.observed_time(), "event_id": origins.event_ids()}
    columns["weight"] = pa.array(np.ones(count))
    for name in ("source", "stream", "partition", "offset"):
        columns[name] = batch.column(name)
    columns |= _dead_columns(transform, batch, dead)
    shaped = [_as_type(columns[field.name], field.type) for field in EVENT_SCHEMA]
    names = list(EVENT_SCHEMA.names)
    gone = {name for name, _ in RAW_COLUMNS} | {rule.when_column for rule in transform.rules} | set(names)
    for field in batch.schema:
        if field.name not in gone:
            names.append(field.name)
            shaped.append(batch.column(field.name))
    return pa.RecordBatch.from_arrays(shaped, names=names)


def _dead_columns(transform: ParseTransform, batch: pa.RecordBatch, dead: dict[int, str]) -> dict[str, pa.Array]:
    count = batch.num_rows
    columns = {name: pa.nulls(count, EVENT_SCHEMA.field(name).type) for name, _ in DEAD_COLUMNS}
    if not dead:
        return columns
    rows = range(count)
    columns["dead_reason"] = pa.array([dead.get(row) for row in rows], pa.string())
    columns["dead_stage"] = pa.array([transform.name if row in dead else None for row in rows], pa.string())
    positions = pa.array([row if row in dead else None for row in rows], pa.int64())
    for name in _KEPT_WHEN_DEAD:
        index = batch.schema.get_field_index(name)
        if index >= 0:
            columns[name] = batch.column(index).take(positions)
    return columns


def _as_type(column: pa.Array, kind: pa.DataType) -> pa.Array:
    return column if column.type.equals(kind) else column.cast(kind)


__all__: Sequence[str] = ("DROPPED", "parse_batch", "read_fields")
