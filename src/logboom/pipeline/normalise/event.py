"""Converts the fields of lines to the columns of events, a whole batch at a time.

Knows those columns and how raw values are converted. Must not know formats or the graph. A value that cannot be
converted to its column's type (a time, a trace id) stays an attribute under its own name. There is one exception: if a
rule has time formats and a line's time has none of them, the rule does not read the line.
"""

import re
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from logboom.pipeline.event.schema import MICROSECONDS
from logboom.pipeline.normalise.fields import SlotValues, Values, extractor_for
from logboom.pipeline.normalise.mapping import EventMapping
from logboom.pipeline.normalise.origin import Origins
from logboom.pipeline.normalise.rows import Fields, Row
from logboom.pipeline.normalise.severity import SeverityReader
from logboom.pipeline.normalise.times import read_times

_NEWLINE: Final = 10
_TRACE_ID: Final = re.compile(r"[0-9a-f]{32}|[0-9a-f]{16}")
_SPAN_ID: Final = re.compile(r"[0-9a-f]{16}")
_TRACEPARENT: Final = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}(?:-.*)?")
_encode_lines = msgspec.json.Encoder().encode_lines


class Normalised(NamedTuple):
    """The columns of an event that depend on a line, and the reason for each row that is not an event (None: it is
    one)."""

    columns: dict[str, pa.Array]
    reasons: list[str | None]


def normalise(rule: EventMapping, rows: list[Row], origins: Origins) -> Normalised:
    """The event columns of a batch's rows. The rows are modified: values of slots are removed from them."""
    reasons: list[str | None] = [row if type(row) is str else None for row in rows]
    _join_headers(rows, origins)
    taken = extractor_for(rule).take(rows)
    columns = slot_columns(rule, taken, origins, reasons)
    columns["attributes"] = attributes_column(rows)
    return Normalised(columns, reasons)


def slot_columns(
    rule: EventMapping, taken: SlotValues, origins: Origins, reasons: list[str | None]
) -> dict[str, pa.Array]:
    """The columns for the slots. Reasons of rows that are not events are added to `reasons`."""
    time = _times(rule, taken, origins, reasons)
    number, text = _severities(rule, taken)
    trace_id, span_id = _traces(taken, origins)
    return {
        "time": time,
        "severity_number": number,
        "severity_text": text,
        "service": _texts(taken.values["service"], origins.header("service.name"), _default(rule, "service")),
        "host": _texts(taken.values["host"], origins.header("host.name"), _default(rule, "host")),
        "body": _texts(taken.values["body"], None, None),
        "trace_id": trace_id,
        "span_id": span_id,
    }


def attributes_column(rows: Sequence[Row]) -> pa.Array:
    """One JSON object per row; an empty one for rows without fields."""
    empty: Fields = {}
    text = _encode_lines([empty if type(row) is str else row for row in rows])
    data = np.frombuffer(text, np.uint8)
    ends = np.flatnonzero(data == _NEWLINE)  # the encoder writes newlines inside texts as \n
    if ends[-1:] - np.arange(len(ends))[-1:] > np.iinfo(np.int32).max:
        raise OverflowError("attributes of one batch exceed 2 GiB; give smaller batches")
    offsets = np.zeros(len(ends) + 1, np.int32)
    offsets[1:] = ends - np.arange(len(ends))
    joined = pa.py_buffer(data[data != _NEWLINE])
    return pa.StringArray.from_buffers(len(ends), pa.py_buffer(offsets), joined)


def _default(rule: EventMapping, field: str) -> str | None:
    return next((text for name, text in rule.defaults if name == field), None)


def _join_headers(rows: list[Row], origins: Origins) -> None:
    """Add the collector's headers about a line, unless the line has a field with that name."""
    for name, texts, quoted in origins.line_identity():
        for row, text in zip(rows, texts.to_pylist(), strict=True):
            if text is not None and type(row) is dict:
                row.setdefault(name, text if quoted else int(text))


# --- time -------------------------------------------------------------------------------------------------------


def _times(rule: EventMapping, taken: SlotValues, origins: Origins, reasons: list[str | None]) -> pa.Array:
    values = taken.values["time"]
    times = read_times(values, rule.time_formats, rule.timezone, origins.reference_us)
    for index in np.flatnonzero(~times.read).tolist():
        value = values[index].as_py() if isinstance(values, pa.Array) else values[index]
        if value is None:
            continue
        if rule.time_formats and reasons[index] is None:
            reasons[index] = f"the time {_short(value)} does not have the format {' or '.join(rule.time_formats)}"
        taken.put_back("time", index)
    micros = pa.array(times.micros, mask=~times.read)
    return pc.coalesce(micros.cast(MICROSECONDS), origins.arrival)


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


# --- severity ---------------------------------------------------------------------------------------------------


def _severities(rule: EventMapping, taken: SlotValues) -> tuple[pa.Array, pa.Array]:
    reader = SeverityReader(rule.severity_texts, rule.severity_scale)
    numbers, texts = _read_severities(reader, taken.values["severity"], _default(rule, "severity"))
    more_texts, more_numbers = _present(taken.values["severity_text"]), _present(taken.values["severity_number"])
    if not more_texts and not more_numbers:
        return numbers, texts
    number_list, text_list = numbers.to_pylist(), texts.to_pylist()
    for index, value in more_texts:
        text_list[index] = _as_text(value)
        number_list[index] = number_list[index] or reader.read(value)[0]
    for index, value in more_numbers:
        exact = _otel_number(value)
        if exact is None:
            taken.put_back("severity_number", index)
        else:
            number_list[index] = exact
    return pa.array(number_list, pa.int32()), pa.array(text_list, pa.string())


def _read_severities(reader: SeverityReader, values: Values, default: str | None) -> tuple[pa.Array, pa.Array]:
    """Severity numbers and texts. A column has few different severities, so each distinct one is converted once."""
    words: list[Any]
    column = _strings(values)
    if column is None:
        words, index = list(values), pa.array(range(len(values)))
    else:
        coded = column.dictionary_encode()
        words, index = coded.dictionary.to_pylist(), coded.indices
    pairs = [reader.read(word if word is not None else default) for word in (*words, default)]
    index = pc.fill_null(index, len(words))
    numbers = pa.array([number for number, _ in pairs], pa.int32()).take(index)
    texts = pa.array([None if text is None else _as_text(text) for _, text in pairs], pa.string()).take(index)
    return numbers, texts


def _present(values: Values) -> list[tuple[int, Any]]:
    listed: list[Any] = values.to_pylist() if isinstance(values, pa.Array) else values
    if listed.count(None) == len(listed):
        return []
    return [(index, value) for index, value in enumerate(listed) if value is not None]


def _otel_number(value: object) -> int | None:
    text = str(value)
    number = int(text) if text.isascii() and text.isdigit() and len(text) <= 2 else 0
    return number if 1 <= number <= 24 else None


# --- texts ------------------------------------------------------------------------------------------------------


def _strings(values: Values) -> pa.Array | None:
    """The values as a string array; None if some are not texts."""
    if isinstance(values, pa.Array):
        return values
    try:
        return pa.array(values, pa.string())
    except (pa.ArrowTypeError, pa.ArrowInvalid, UnicodeEncodeError):
        return None


def _texts(values: Values, header: pa.Array | None, default: str | None) -> pa.Array:
    """A string column: the value, else the header, else the default."""
    column = _strings(values)
    if column is None:
        column = pa.array([None if value is None else _as_text(value) for value in values], pa.string())
    if column.null_count and header is not None:
        column = pc.coalesce(column, header)
    if column.null_count and default is not None:
        column = pc.fill_null(column, default)
    return column


def _as_text(value: object) -> str:
    """A text as it is, any other value as JSON."""
    if isinstance(value, str):
        return value.encode(errors="replace").decode()
    return msgspec.json.encode(value).decode()


# --- traces -----------------------------------------------------------------------------------------------------


def _traces(taken: SlotValues, origins: Origins) -> tuple[pa.Array, pa.Array]:
    trace_ids = _valid_ids(taken, "trace_id", 32, _trace_id)
    span_ids = _valid_ids(taken, "span_id", 16, _span_id)
    parents = [(index, value, True) for index, value in _present(taken.values["traceparent"])]
    header = origins.header("traceparent")
    if header is not None:
        parents += [(index, value, False) for index, value in _present(header.to_pylist())]
    if not parents:
        return trace_ids, span_ids
    traces, spans = trace_ids.to_pylist(), span_ids.to_pylist()
    for index, value, is_field in parents:
        found = _parent(value)
        if found is None and is_field:
            taken.put_back("traceparent", index)
        elif found is not None and traces[index] is None:
            traces[index], spans[index] = found[0], spans[index] or found[1]
    return pa.array(traces, pa.string()), pa.array(spans, pa.string())


def _valid_ids(taken: SlotValues, slot: str, digits: int, read: Callable[[object], str | None]) -> pa.Array:
    """Ids of `digits` hexadecimal digits. A column with only valid ids is used as it is; otherwise each is checked."""
    values = taken.values[slot]
    column = _strings(values)
    if column is not None:
        fine = pc.and_(
            pc.equal(pc.binary_length(column), digits),
            pc.match_substring_regex(column, r"\A[0-9a-f]*[1-9a-f][0-9a-f]*\z"),
        )
        if pc.all(fine, min_count=0).as_py():
            return column
    listed: list[Any] = values.to_pylist() if isinstance(values, pa.Array) else values
    result = [read(value) for value in listed]
    for index, (value, raw) in enumerate(zip(result, listed, strict=True)):
        if value is None and raw is not None:
            taken.put_back(slot, index)
    return pa.array(result, pa.string())


def _trace_id(value: object) -> str | None:
    """W3C: 32 hexadecimal digits, not all zero. Ids of 16 digits of older tracers are padded at the start
    (OpenTelemetry, B3)."""
    text = value.lower() if isinstance(value, str) else ""
    if not _TRACE_ID.fullmatch(text) or not text.strip("0"):
        return None
    return text if len(text) == 32 else text.rjust(32, "0")


def _span_id(value: object) -> str | None:
    text = value.lower() if isinstance(value, str) else ""
    return text if _SPAN_ID.fullmatch(text) and text.strip("0") else None


def _parent(value: object) -> tuple[str, str] | None:
    """W3C Trace Context, traceparent: version-trace_id-parent_id-flags."""
    match = _TRACEPARENT.fullmatch(value.strip().lower()) if isinstance(value, str) else None
    if match is None or not match[1].strip("0") or not match[2].strip("0"):
        return None
    return match[1], match[2]
