"""One attribute of many events, cut out of their JSON as a column, for JSON without nested objects.

Attributes are written without blanks, each name once. In such a text `"name":` after `{` or `,` is always a name, since
a quote inside a string has a backslash before it; and if the text has a single `{`, it is a name of the outermost
object. So the value begins after it, and ends at the next quote, comma or brace. Other cases (a backslash in a string,
a list, a number with an exponent) are left to the JSON reader.

Knows Arrow's buffers. Must not know what an attribute is for.
"""

import re
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Mask = npt.NDArray[np.bool_]
_Longs = npt.NDArray[np.int64]
_Bytes = npt.NDArray[np.uint8]

_QUOTE, _BACKSLASH, _COMMA, _OPEN, _CLOSE, _DOT, _ZERO, _NULL, _BLANK = (ord(one) for one in '"\\,{}.0n ')
_WORDS: Final = np.frombuffer(b"-0123456789tfn", np.uint8)
"""First characters of numbers, true, false and null."""
_POWERS: Final = (ord("e"), ord("E"))
_WORD_MAX: Final = 20
"""Longer numbers are left to the JSON reader."""


class Found(NamedTuple):
    """The result of cutting out values."""

    texts: pa.Array
    """By row; null if there is no value, or if it is not known."""
    known: Mask
    """The rows for which the result is complete: they have this value, or none."""


def flat_texts(attributes: pa.Array, key: bytes) -> Found:
    """The values of a name as texts. `attributes`: JSON objects, or null. `key`: the name as JSON, and a colon."""
    _, offsets_buffer, data_buffer = attributes.buffers()
    known = np.ones(len(attributes), np.bool_)
    if data_buffer is None or not len(attributes):
        return Found(pa.nulls(len(attributes), pa.string()), known)
    offsets = np.frombuffer(offsets_buffer, np.int32)[attributes.offset : attributes.offset + len(attributes) + 1]
    begin, data = int(offsets[0]), np.frombuffer(data_buffer, np.uint8)[: offsets[-1]]
    names = np.array([hit.start() for hit in re.finditer(re.escape(key), data[begin:].data)], np.int64) + begin
    rows = np.searchsorted(offsets, names, side="right") - 1
    known[_nested(data, begin, offsets)] = False
    if not len(rows):
        return Found(pa.nulls(len(attributes), pa.string()), known)
    is_own = names + len(key) < offsets[rows + 1]
    known[rows[~is_own | np.append(rows[1:] == rows[:-1], False)]] = False
    plain = known[rows]
    rows, names = rows[plain], names[plain]
    starts, ends, sure = _values(data, begin, names - 1, names + len(key))
    known[rows[~sure]] = False
    return Found(_cut(data, len(attributes), rows[sure], starts[sure], ends[sure]), known)


def _nested(data: _Bytes, begin: int, offsets: npt.NDArray[np.int32]) -> _Longs:
    """The rows with more than one brace."""
    braces = np.flatnonzero(data[begin:] == _OPEN) + begin
    if len(braces) <= np.count_nonzero(offsets[1:] > offsets[:-1]):  # each that is not empty has one
        return np.zeros(0, np.int64)
    of = np.searchsorted(offsets, braces, side="right") - 1
    found: _Longs = of[1:][of[1:] == of[:-1]]
    return found


def _values(data: _Bytes, begin: int, before: _Longs, starts: _Longs) -> tuple[_Longs, _Longs, Mask]:
    """The positions of the texts of values that begin at `starts`, and which of them are plain. `before`: positions
    before each name; `begin`: position of the first row."""
    sure: Mask = (data[before] == _OPEN) | (data[before] == _COMMA)
    first = data[starts]
    ends = np.zeros(len(starts), np.int64)
    quoted = np.flatnonzero(sure & (first == _QUOTE))
    if len(quoted):
        ends[quoted] = _next(data, begin, _QUOTE, starts[quoted] + 1)
        starts[quoted] += 1
        sure[quoted] &= _next(data, begin, _BACKSLASH, starts[quoted]) > ends[quoted]
    words = np.flatnonzero(sure & np.isin(first, _WORDS))
    if len(words):
        ends[words], is_plain = _words(data, starts[words])
        sure[words] &= is_plain
        nulls = words[first[words] == _NULL]
        ends[nulls] = -1
    sure[np.isin(first, _WORDS, invert=True) & (first != _QUOTE)] = False
    return starts, ends, sure


def _next(data: _Bytes, begin: int, what: int, starts: _Longs) -> _Longs:
    """The next position of this byte from each start on; past the end if there is none."""
    places = np.append(np.flatnonzero(data[begin:] == what) + begin, len(data))
    found: _Longs = places[np.searchsorted(places, starts)]
    return found


def _words(data: _Bytes, starts: _Longs) -> tuple[_Longs, Mask]:
    """The ends of numbers and words, and which of them are used as they are."""
    window = data[np.minimum(starts[:, None] + np.arange(_WORD_MAX), len(data) - 1)]
    is_end = (window == _COMMA) | (window == _CLOSE)
    lengths = is_end.argmax(axis=1)
    inside = np.arange(_WORD_MAX) < lengths[:, None]
    has_dot = ((window == _DOT) & inside).any(axis=1)
    rows = np.arange(len(starts))
    last_is_zero = window[rows, np.maximum(lengths - 1, 0)] == _ZERO
    has_power = ((window[:, 1:] == _POWERS[0]) | (window[:, 1:] == _POWERS[1])) & inside[:, 1:]
    is_number = window[:, 0] < ord("f")
    has_blank = ((window <= _BLANK) & inside).any(axis=1)
    is_plain = is_end.any(axis=1) & ~has_blank & ~(has_dot & last_is_zero) & ~(is_number & has_power.any(axis=1))
    return starts + lengths, is_plain


def _cut(data: _Bytes, count: int, rows: _Longs, starts: _Longs, ends: _Longs) -> pa.Array:
    """The texts of some rows; null for all others, and where the end is -1."""
    lengths = np.zeros(count, np.int64)
    there = ends >= 0
    rows, starts = rows[there], starts[there]
    lengths[rows] = ends[there] - starts
    offsets = np.concatenate(([0], np.cumsum(lengths)))
    taken = np.repeat(starts - offsets[rows], lengths[rows]) + np.arange(offsets[-1])
    is_there = np.zeros(count, np.bool_)
    is_there[rows] = True
    validity = pa.py_buffer(np.packbits(is_there, bitorder="little").tobytes())
    buffers = [validity, pa.py_buffer(offsets.astype(np.int32).tobytes()), pa.py_buffer(data[taken].tobytes())]
    return pa.Array.from_buffers(pa.string(), count, buffers)
