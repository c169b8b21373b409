"""Reads flat JSON objects as columns, by the start and end positions of their values, without an object per line.

Knows JSON and Arrow's buffers. Must not know the meaning of a field.

Programs write their lines with few templates, so most lines of a batch share a form: the same names in the same order,
with the same bytes between the values. The first remaining line determines a form. Lines with the same number of quotes
are then compared with it, all at once: the positions of their quotes determine where values begin and end, and the
bytes between the values must equal those of the form. The values become string columns by their offsets into the
batch's buffer.

The result must equal that of `json_lines`; a property test compares the two. Lines with escapes, with nested objects or
lists, of rare forms, and all unclear ones are left to `json_lines`.
"""

import re
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from logboom.pipeline.normalise.rows import FieldColumn, Index, LineColumns

_QUOTE: Final = ord('"')
_BACKSLASH: Final = ord("\\")
_BLANK: Final = ord(" ")
_ZERO: Final = np.uint8(ord("0"))
_FIELD: Final = re.compile(rb' *"(?P<key>[^"]*)" *: *(?:"(?P<text>[^"]*)"|(?P<plain>[^" ,:{}\[\]]+)) *')
_FORMS_MAX: Final = 8
_ROWS_MIN: Final = 32
"""If there are fewer lines of one form, reading them one by one is faster."""
_INT_DIGITS_MAX: Final = 18

_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode

Offsets = npt.NDArray[np.int32]
Bytes = npt.NDArray[np.uint8]
Mask = npt.NDArray[np.bool_]


class _Form(NamedTuple):
    """The constant part of a line."""

    names: tuple[str, ...]
    quoted: tuple[bool, ...]
    between: tuple[bytes, ...]
    """The bytes before the first value, between two values, and after the last."""

    @property
    def quotes(self) -> int:
        return 2 * len(self.names) + 2 * sum(self.quoted)


def read_json_columns(values: pa.Array) -> list[LineColumns]:
    """Read those rows of a binary array that can be read as columns, by form. Each row is in at most one of the
    results."""
    if len(values) < _ROWS_MIN or not _may_be_columns(values):
        return []
    try:
        lines = values.cast(pa.string())
    except pa.ArrowInvalid:
        return []
    return list(_ColumnReader(lines).read())


def _may_be_columns(values: pa.Array) -> bool:
    """Whether any line of a small sample has a form: if all are nested, no time is spent on the others."""
    some = range(0, len(values), max(len(values) // 4, 1))
    return any(_form_of(line) is not None for row in some if (line := values[row].as_py()) is not None)


def _form_of(line: bytes) -> _Form | None:
    """The form of a flat object without escapes and without duplicate names."""
    if line[:1] != b"{" or b"\\" in line:
        return None
    names: list[bytes] = []
    quoted: list[bool] = []
    between: list[bytes] = []
    before, position = 0, 1
    while (match := _FIELD.match(line, position)) is not None:
        group = "plain" if match["text"] is None else "text"
        names.append(match["key"])
        quoted.append(group == "text")
        between.append(line[before : match.start(group)])
        before, position = match.end(group), match.end()
        if line[position : position + 1] != b",":
            break
        position += 1
    if not names or line[position:].rstrip(b" ") != b"}" or len(set(names)) != len(names):
        return None
    try:
        texts = tuple(name.decode() for name in names)
    except UnicodeDecodeError:
        return None
    return _Form(texts, tuple(quoted), (*between, line[before:]))


class _ColumnReader:
    """The bytes of all lines and the positions of their quotes."""

    def __init__(self, lines: pa.Array) -> None:
        ends = np.frombuffer(lines.buffers()[1], np.int32)[lines.offset : lines.offset + len(lines) + 1]
        self._lines = lines
        self._data = (lines.buffers()[2] or pa.py_buffer(b"")).slice(int(ends[0]), int(ends[-1] - ends[0]))
        self._text: Bytes = np.frombuffer(self._data, np.uint8)
        self._ends: Offsets = ends - ends[0]
        self._quotes: Offsets = np.flatnonzero(self._text == _QUOTE).astype(np.int32)
        self._first: Offsets = np.searchsorted(self._quotes, self._ends).astype(np.int32)

    def read(self) -> Iterator[LineColumns]:
        left = self._plain_rows()
        counts = np.diff(self._first)
        for _ in range(_FORMS_MAX):
            if len(left) < _ROWS_MIN:
                return
            form = _form_of(self._lines[int(left[0])].as_py().encode())
            if form is None:
                left = left[1:]
                continue
            columns = self._columns(form, left[counts[left] == form.quotes])
            if columns is None:
                left = left[1:]
                continue
            yield columns
            left = np.setdiff1d(left, columns.rows, assume_unique=True)

    def _plain_rows(self) -> Index:
        """Rows without escapes and without control characters, which JSON texts must not contain."""
        rows = np.ones(len(self._lines), np.bool_)
        if self._text.min(initial=_BLANK) < _BLANK or (self._text == _BACKSLASH).any():
            odd = (self._text < _BLANK) | (self._text == _BACKSLASH)
            rows[np.searchsorted(self._ends, np.flatnonzero(odd), side="right") - 1] = False
        if self._lines.null_count:
            rows &= self._lines.is_valid().to_numpy(zero_copy_only=False)
        return np.flatnonzero(rows)

    def _columns(self, form: _Form, rows: Index) -> LineColumns | None:
        """Read the rows of this form; None if there are too few."""
        if len(rows) < _ROWS_MIN:
            return None
        offsets = self._offsets(form, rows)
        fine = _lengths_fit(form, offsets)
        if not fine.all():
            rows, offsets = rows[fine], offsets[fine]
        if len(rows) < _ROWS_MIN:
            return None
        parts = pa.StringArray.from_buffers(offsets.size - 1, pa.py_buffer(np.ascontiguousarray(offsets)), self._data)
        fine = _same_between(form, parts, len(rows))
        # A value without quotes may be invalid (`tru`), which is only detected here: its row is removed, and the rest
        # is read again.
        columns = []
        for number, (name, quoted) in enumerate(zip(form.names, form.quoted, strict=True)):
            texts = parts.take(_every(2 * number + 1, offsets))
            if not quoted:
                texts, read = _plain_values(texts)
                fine &= read
            columns.append(FieldColumn(name, texts, quoted))
        if fine.all():
            return LineColumns(rows, tuple(columns))
        return self._columns(form, rows[fine])

    def _offsets(self, form: _Form, rows: Index) -> Offsets:
        """For each row, positions in the text of all rows: its start, the start and end of each value, and its end."""
        quotes = self._quotes_of(rows, form.quotes)
        offsets = np.empty((len(rows), 2 * len(form.names) + 2), np.int32)
        offsets[:, 0], offsets[:, -1] = self._ends[rows], self._ends[rows + 1]
        at = 0
        for number, quoted in enumerate(form.quoted):
            before, behind = form.between[number], form.between[number + 1]
            begin, end = offsets[:, 2 * number + 1], offsets[:, 2 * number + 2]
            if quoted:
                begin[:], end[:] = quotes[:, at + 2] + 1, quotes[:, at + 3]
            else:
                begin[:] = quotes[:, at + 1] + len(before) - before.rindex(b'"')
                last = number + 1 == len(form.names)
                end[:] = offsets[:, -1] - len(behind) if last else quotes[:, at + 2] - behind.index(b'"')
            at += 4 if quoted else 2
        return offsets

    def _quotes_of(self, rows: Index, count: int) -> Offsets:
        """The positions of the quotes in each row; all these rows have `count` of them."""
        if len(rows) * count == len(self._quotes):
            return self._quotes.reshape(len(rows), count)
        quotes: Offsets = self._quotes[self._first[rows][:, None] + np.arange(count, dtype=np.int32)]
        return quotes


def _every(part: int, offsets: Offsets) -> pa.Array:
    """The indices of one part of each row, in an array of the parts of all rows."""
    return pa.array(np.arange(part, offsets.size, offsets.shape[1]))


def _lengths_fit(form: _Form, offsets: Offsets) -> Mask:
    lengths = np.diff(offsets, axis=1)
    fine: Mask = (lengths[:, 0::2] == np.array([len(text) for text in form.between])).all(axis=1)
    for number, quoted in enumerate(form.quoted):
        if not quoted:
            fine &= lengths[:, 2 * number + 1] > 0
    return fine


def _same_between(form: _Form, parts: pa.Array, rows: int) -> Mask:
    """For each row, whether the bytes between its values are those of the form."""
    wide = 2 * len(form.names) + 2
    at = np.arange(rows)[:, None] * wide + np.arange(0, wide, 2)
    found = parts.take(pa.array(at.ravel()))
    expected = np.frombuffer(b"".join(form.between), np.uint8)
    start = int(np.frombuffer(found.buffers()[1], np.int32)[found.offset])
    text = np.frombuffer(found.buffers()[2], np.uint8)[start : start + rows * len(expected)]
    same: Mask = (text.reshape(rows, len(expected)) == expected).all(axis=1)
    return same


# --- values without quotes --------------------------------------------------------------------------------------


def _plain_values(texts: pa.Array) -> tuple[pa.Array, Mask]:
    """Numbers, true, false and null as written in JSON, and which rows have valid ones."""
    if _are_whole_numbers(texts):
        return texts, np.ones(len(texts), np.bool_)
    # Compared as bytes: in a row of another form an offset may be inside a character.
    coded = texts.cast(pa.binary()).dictionary_encode()
    written = pa.array([_written(text) for text in coded.dictionary.to_pylist()], pa.string())
    found = written.take(coded.indices)
    return found, found.is_valid().to_numpy(zero_copy_only=False)


def _are_whole_numbers(texts: pa.Array) -> bool:
    """Whether all are integers in JSON form, without leading zeros: then they are used as written."""
    ends = np.frombuffer(texts.buffers()[1], np.int32)[texts.offset : texts.offset + len(texts) + 1]
    lengths = np.diff(ends)
    if (lengths > _INT_DIGITS_MAX).any():
        return False
    digits = np.frombuffer(texts.buffers()[2], np.uint8)[: ends[-1]] - _ZERO
    return bool((digits[ends[0] :] < 10).all() and ((digits[ends[:-1]] > 0) | (lengths == 1)).all())


def _written(text: bytes) -> str | None:
    """The value as the encoder writes it after `json_lines` has decoded it; None for anything but a simple value."""
    try:
        value: Any = _decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return None if isinstance(value, str | dict | list) else _encode(value).decode()
