"""One JSON object per record (RFC 8259).

Knows JSON. Must not know the meaning of a field. Rules: the last of duplicate keys is used; NaN and Infinity are
invalid; integers of any length are kept, other numbers become IEEE doubles, or stay text if a double cannot hold them;
text that is not UTF-8, lone surrogates and anything nested deeper than `DEPTH_MAX` are invalid.
"""

import re
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa

from logboom.pipeline.normalise.rows import Row
from logboom.pipeline.parse.lines import EMPTY, NO_VALUE

DEPTH_MAX: Final = 100
"""Limit for nested objects and lists, which Spark's VARIANT and every later reader support."""

_AT_ONCE: Final = 128
"""Rows that are decoded in one call. If one of them is invalid, the others are decoded a second time."""

_BOM: Final = b"\xef\xbb\xbf"
_OTHER_ESCAPE: Final = re.compile(rb"\\[^u]")
_SURROGATES: Final = re.compile(rb"(?i)\\ud[89ab][0-9a-f]{2}\\ud[c-f][0-9a-f]{2}|\\ud[89a-f][0-9a-f]{2}")
"""A whole surrogate pair, or half of one."""
_PAIR_BYTES: Final = 12
_decode = msgspec.json.Decoder(dict[str, Any]).decode


def _number(text: str) -> float | str:
    number = float(text)
    return number if abs(number) < float("inf") else text


_decode_wide: Final = msgspec.json.Decoder(dict[str, Any], float_hook=_number).decode
"""Far slower: it calls Python for every number with a fraction or an exponent."""


def read_json(values: pa.Array) -> list[Row]:
    """Rows of a binary array."""
    rows: list[Row] = []
    given = values.to_pylist()
    for start in range(0, len(given), _AT_ONCE):
        part = given[start : start + _AT_ONCE]
        try:
            rows += map(_decode, part)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, TypeError):
            del rows[start:]
            rows += map(_read_one, part)
    for index in _deep_rows(values, rows, given):
        row = rows[index]
        if isinstance(row, dict) and not is_shallow(row, DEPTH_MAX):
            rows[index] = f"JSON is nested deeper than {DEPTH_MAX}"
    return rows


def _read_one(value: bytes | None) -> Row:
    try:
        return _decode_any(value)  # type: ignore[arg-type]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, TypeError) as error:
        return _second_look(value, error)


def _decode_any(value: bytes) -> dict[str, Any]:
    try:
        return _decode(value)
    except msgspec.DecodeError as error:
        if "out of range" not in str(error):
            raise
        return _decode_wide(value)


def object_of(value: bytes) -> dict[str, Any] | None:
    """The object a text holds, or None."""
    try:
        found = _decode_any(value)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return found if is_shallow(found, DEPTH_MAX) else None


def is_shallow(value: object, depth: int) -> bool:
    """Whether no value is nested deeper than `depth`."""
    if isinstance(value, dict):
        return depth > 0 and all(is_shallow(inner, depth - 1) for inner in value.values())
    if isinstance(value, list):
        return depth > 0 and all(is_shallow(inner, depth - 1) for inner in value)
    return True


def _second_look(value: bytes | None, error: Exception) -> Row:
    if value is None:
        return NO_VALUE
    if value.startswith(_BOM):
        found = object_of(value[len(_BOM) :])
        if found is not None:
            return found
    if not value.strip():
        return EMPTY
    if isinstance(error, UnicodeDecodeError):
        return "JSON is not UTF-8"
    if isinstance(error, RecursionError):
        return f"JSON is nested deeper than {DEPTH_MAX}"
    if _has_lone_surrogate(value):
        return "JSON has half a surrogate pair (\\uD800 to \\uDFFF), which is not a character"
    reason = str(error).removesuffix(" - at `$[...]`")
    return reason if reason.startswith("JSON") else f"not a JSON object: {reason}"


def _has_lone_surrogate(value: bytes) -> bool:
    """Whether an escape such as `\\ud800` lacks its other half (RFC 8259, section 8.2)."""
    return any(len(escapes) != _PAIR_BYTES for escapes in _SURROGATES.findall(_OTHER_ESCAPE.sub(b"", value)))


def _deep_rows(column: pa.Array, rows: list[Row], values: list[bytes | None]) -> list[int]:
    """Rows with so many opening brackets that they could be nested too deeply; nearly always none.

    For flat lines the total of all brackets shows this: every row that is an object has at least one.
    """
    objects = sum(type(row) is dict for row in rows)
    if _brackets(column) - objects < DEPTH_MAX:
        return []
    return [
        index
        for index, value in enumerate(values)
        if value is not None and value.count(b"{") + value.count(b"[") > DEPTH_MAX
    ]


def _brackets(column: pa.Array) -> int:
    """Opening brackets in all values of a binary array."""
    offsets, data = column.buffers()[1:3]
    if data is None:
        return 0
    ends = np.frombuffer(offsets, np.int32)
    start, end = int(ends[column.offset]), int(ends[column.offset + len(column)])
    whole: bytes = data.slice(start, end - start).to_pybytes()
    return whole.count(b"{") + whole.count(b"[")
