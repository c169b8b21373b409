"""The JSON form of events, written for whole Arrow batches: what streams and edges carry.

Knows the columns of an event and JSON's rules for texts. Must not know places, records or readers. Texts are put
together column by column; single values are processed only if JSON has to escape something in them.
"""

from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from logboom.pipeline.plan.nodes import EVENT_COLUMNS

_ESCAPED: Final = r'["\\\x00-\x1f]'
_QUOTE, _BACKSLASH, _BLANK = ord('"'), ord("\\"), ord(" ")
_PLAIN: Final = frozenset(("trace_id", "span_id", "event_id", "stream"))
"""Texts that can hold nothing to be escaped: hexadecimal digits, and names a log allows."""
_FIELDS: Final = tuple((name, kind) for name, kind in EVENT_COLUMNS if kind != "variant" and name != "weight")
_encode = msgspec.json.Encoder().encode

Longs = npt.NDArray[np.int64]


def event_texts(events: pa.RecordBatch, weights: npt.NDArray[np.float64] | None) -> pa.Array:
    """One JSON object per row as a string array; columns that are null are left out. `weights`: None for 1 each.

    Attributes are copied as text, without decoding and encoding them again.
    """
    attributes = pc.fill_null(events.column("attributes"), "{}")
    parts: list[Any] = ['{"attributes":', attributes]
    for name, kind in _FIELDS:
        parts += _member(name, kind, events.column(name))
    parts += _weight_parts(weights)
    return joined(parts)


def json_values(events: pa.RecordBatch) -> pa.Array:
    """Events as sinks receive them: JSON as bytes, by row. The batch has the columns of LIVE_SCHEMA, and perhaps
    more."""
    weights = pc.fill_null(events.column("weight"), 1.0).to_numpy(zero_copy_only=False)
    return event_texts(events, weights).cast(pa.binary())


def open_texts(events: pa.RecordBatch) -> pa.Array:
    """The same without the weight and the closing brace, for events of which copies have different weights."""
    attributes = pc.fill_null(events.column("attributes"), "{}")
    parts: list[Any] = ['{"attributes":', attributes]
    for name, kind in _FIELDS:
        parts += _member(name, kind, events.column(name))
    return joined(parts)


def closed_texts(opened: pa.Array, weights: npt.NDArray[np.float64]) -> pa.Array:
    """What `open_texts` gave, with a weight each."""
    return joined([opened, *_weight_parts(weights)])


def _weight_parts(weights: npt.NDArray[np.float64] | None) -> list[Any]:
    if weights is None:
        return [',"weight":1.0}']
    values, index = np.unique(weights, return_inverse=True)
    texts = pa.array([_encode(float(value)).decode() for value in values], pa.string())
    return [',"weight":', texts.take(pa.array(index)), "}"]


def joined(parts: list[Any]) -> pa.Array:
    """Joins neighbouring constants, since each part costs a step per row."""
    merged: list[Any] = []
    for part in parts:
        if isinstance(part, str) and merged and isinstance(merged[-1], str):
            merged[-1] += part
        else:
            merged.append(part)
    return pc.binary_join_element_wise(*merged, "")


def _member(name: str, kind: str, column: pa.Array) -> list[Any]:
    """The parts of `,"name":value`; empty if the column is null."""
    if column.null_count == len(column):
        return []
    head = f',"{name}":'
    parts: list[Any]
    if kind == "string":
        parts = [f'{head}"', column if name in _PLAIN else escaped(column), '"']
    elif kind == "timestamp":
        parts = [f'{head}"', time_texts(column), '"']
    else:
        parts = [head, column.cast(pa.string())]
    if not column.null_count:
        return parts
    return [pc.if_else(column.is_valid(), pc.binary_join_element_wise(*parts, ""), "")]


def escaped(column: pa.Array) -> pa.Array:
    """Texts as they stand between the quotes of a JSON string."""
    if not _has_special(column):
        return column
    hits = pc.fill_null(pc.match_substring_regex(column, _ESCAPED), False)
    rows = pc.indices_nonzero(hits)
    written = [_encode(text)[1:-1].decode() for text in column.take(rows).to_pylist()]
    return pc.replace_with_mask(column, hits, pa.array(written, pa.string()))


def _has_special(column: pa.Array) -> bool:
    """Whether any byte of the column's texts needs an escape; checks the whole buffer at once."""
    offsets, data = column.buffers()[1:3]
    if data is None:
        return False
    ends = np.frombuffer(offsets, np.int32)
    text = np.frombuffer(data, np.uint8)[ends[column.offset] : ends[column.offset + len(column)]]
    return bool((text < _BLANK).any() or (text == _QUOTE).any() or (text == _BACKSLASH).any())


# --- times ------------------------------------------------------------------------------------------------------

_SECOND_US: Final = 1_000_000
_DAY_S: Final = 86_400
_TEMPLATE: Final = np.frombuffer(b"0000-00-00T00:00:00.000000Z", np.uint8)
_FRACTION_AT: Final = 20
_WHOLE_BYTES: Final = 19
_REPEATED: Final = 4
"""From this many rows per time on each time is written once: records arrive many to a millisecond."""


def time_texts(column: pa.Array) -> pa.Array:
    """RFC 3339 in UTC with the digits of the fraction that are needed, of whole microseconds; null stays null."""
    coded = column.dictionary_encode()
    if _REPEATED * len(coded.dictionary) > len(column):
        return _written(column)
    return _written(coded.dictionary).take(coded.indices)


def _written(column: pa.Array) -> pa.Array:
    micros: Longs = pc.fill_null(column.cast(pa.int64()), 0).to_numpy(zero_copy_only=False)
    seconds, fraction = np.divmod(micros, _SECOND_US)
    days, in_day = np.divmod(seconds, _DAY_S)
    dates, date_of = np.unique(days, return_inverse=True)
    digits = np.empty((len(micros), len(_TEMPLATE)), np.uint8)
    digits[:] = _TEMPLATE
    digits[:, :10] = _date_digits(dates)[date_of]
    for at, value in ((11, in_day // 3_600), (14, in_day // 60 % 60), (17, in_day % 60)):
        digits[:, at : at + 2] = _TWO_DIGITS[value]
    for at, value in ((20, fraction // 10_000), (22, fraction // 100 % 100), (24, fraction % 100)):
        digits[:, at : at + 2] = _TWO_DIGITS[value]
    return _cut(digits, fraction, column)


_TWO_DIGITS: Final = np.array([list(f"{number:02d}".encode()) for number in range(100)], np.uint8)


def _date_digits(days: Longs) -> npt.NDArray[np.uint8]:
    texts = np.datetime_as_string(days.astype("datetime64[D]")).astype("S10")
    return np.frombuffer(texts.tobytes(), np.uint8).reshape(-1, 10)


def _cut(digits: npt.NDArray[np.uint8], fraction: Longs, column: pa.Array) -> pa.Array:
    """The texts without trailing zeros of a fraction; without the point too if no digits are left."""
    needed = sum((fraction % 10**power != 0).astype(np.int64) for power in range(1, 7))
    lengths = np.where(needed == 0, _WHOLE_BYTES, _FRACTION_AT + needed)
    digits[np.arange(len(lengths)), lengths] = ord("Z")
    flat = digits[np.arange(digits.shape[1])[None, :] <= lengths[:, None]]
    offsets = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths + 1, out=offsets[1:])
    texts = pa.StringArray.from_buffers(len(lengths), pa.py_buffer(offsets), pa.py_buffer(flat))
    return texts if not column.null_count else pc.if_else(column.is_valid(), texts, None)
