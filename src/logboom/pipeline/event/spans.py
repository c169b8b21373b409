"""The JSON of events cut into columns where the values begin and end, without making an object of any event.

`event.json` writes the members of an event in one order with nothing between them, so the text of a whole Arrow batch
can be read column by column, backwards: the last member is `weight`, before it stand `offset`, `partition` and so on up
to `attributes`, which is the first because it alone may hold any number of quotes. One pass finds the quotes of the
whole batch. After that each member takes one step for all rows: is `,"name":"` before the value that ends here? An
optional member is skipped in the rows that lack it.

A row is taken only if its text is proven to be JSON: the names and punctuation are compared byte by byte, `attributes`
is decoded as one JSON value, texts with escapes are decoded one by one, and texts without have neither quotes nor
control characters. `reading` reads every other row as an object. Both give the same columns.

Knows the JSON form of events and Arrow's buffers. Must not know where events come from or go.
"""

from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from logboom.pipeline.event.schema import LIVE_SCHEMA
from logboom.pipeline.plan.nodes import EVENT_COLUMNS

ROWS_MIN: Final = 32
"""Fewer rows are read faster as objects."""

_QUOTE: Final = ord('"')
_BACKSLASH: Final = ord("\\")
_BLANK: Final = ord(" ")
_ZERO: Final = np.uint8(ord("0"))
_BRACE: Final = ord("}")
_WORD_BYTES: Final = 8
_WHOLE_DIGITS_MAX: Final = 18
"""All whole numbers with this many digits fit into 64 bits."""
_OPENING: Final = b'{"attributes":'
_OPTIONAL: Final = frozenset(
    (
        *("time", "observed_time", "severity_number", "severity_text", "service", "host", "body"),
        *("trace_id", "span_id"),
    )
)

Index = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

_raw_list: Final = msgspec.json.Decoder(list[msgspec.Raw])
_raw: Final = msgspec.json.Decoder(msgspec.Raw)
_text_list: Final = msgspec.json.Decoder(list[str])
_text: Final = msgspec.json.Decoder(str)
_DECODERS: Final[dict[str, msgspec.json.Decoder[Any]]] = {
    "int": msgspec.json.Decoder(int),
    "double": msgspec.json.Decoder(float),
}
_NOT_JSON: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class _Member(NamedTuple):
    """One member behind `attributes`."""

    name: str
    kind: str
    head: bytes
    """The text before its value, from the comma on."""
    quoted: bool
    optional: bool


def _members() -> tuple[_Member, ...]:
    """In the order in which they are written; `weight` comes last."""
    kinds = {name: kind for name, kind in EVENT_COLUMNS if kind != "variant"}
    found = []
    for name in (*(name for name in kinds if name != "weight"), "weight"):
        quoted = kinds[name] in ("string", "timestamp")
        head = f',"{name}":' + '"' * quoted
        found.append(_Member(name, kinds[name], head.encode(), quoted, name in _OPTIONAL))
    return tuple(found)


_MEMBERS: Final = _members()
_SHORTEST: Final = len(_OPENING) + sum(len(member.head) for member in _MEMBERS if not member.optional)
_PARTS: Final = 2 * (len(_MEMBERS) + 1)
"""Offsets in a row: start and end of `attributes` and of each member's value."""


class CutEvents(NamedTuple):
    """Events as columns, and which rows they are."""

    events: pa.RecordBatch
    """Of `LIVE_SCHEMA`."""
    rows: Index


def cut_events(values: pa.Array) -> CutEvents | None:
    """The rows of a binary array that have the form of `event.json`; None if hardly any has."""
    if len(values) < ROWS_MIN:
        return None
    try:
        lines = values.cast(pa.string())  # which checks that all of it is UTF-8
    except pa.ArrowInvalid:
        return None
    text = _Text(lines)
    if text.size < _WORD_BYTES:
        return None
    found = _spans(text)
    if len(found.rows) < ROWS_MIN:
        return None
    try:
        events, readable = _Columns(text, found).events()
    except pa.ArrowInvalid:  # an invalid time: rare enough to decode all rows one by one
        return None
    if readable.all():
        return CutEvents(events, found.rows)
    return CutEvents(events.filter(pa.array(readable)), found.rows[readable])


class _Text:
    """The bytes of all rows, concatenated, and the positions of their quotes."""

    def __init__(self, lines: pa.Array) -> None:
        offsets = np.frombuffer(lines.buffers()[1], np.int32)[lines.offset : lines.offset + len(lines) + 1]
        start, stop = int(offsets[0]), int(offsets[-1])
        self.data = (lines.buffers()[2] or pa.py_buffer(b"")).slice(start, stop - start)
        self.size = stop - start
        self.bytes = np.frombuffer(self.data, np.uint8)
        ends = offsets.astype(np.int64) - start
        self.starts: Index = ends[:-1]
        self.stops: Index = ends[1:]
        self.slashes: Index = np.flatnonzero(self.bytes == _BACKSLASH)
        self.quotes: Index = self._structural(np.flatnonzero(self.bytes == _QUOTE))
        # An item of eight bytes at every byte: literals are compared as a few integers instead of byte by byte.
        self._words = np.ndarray((max(self.size - _WORD_BYTES + 1, 0),), "V8", self.data, strides=(1,))

    def _structural(self, quotes: Index) -> Index:
        """The unescaped quotes: those after an even number of backslashes (RFC 8259, section 7)."""
        if not len(self.slashes):
            return quotes
        number = np.arange(len(self.slashes))
        begins = np.concatenate(([True], np.diff(self.slashes) != 1))
        place_in_run = number - np.maximum.accumulate(np.where(begins, number, 0))
        behind = self.slashes[place_in_run % 2 == 0] + 1  # escaped bytes
        places = np.searchsorted(quotes, behind)
        inside = places < len(quotes)
        escaped = places[inside][quotes[places[inside]] == behind[inside]]
        return quotes if not len(escaped) else np.delete(quotes, escaped)

    def rows_of(self, positions: Index) -> Index:
        """The row of each byte."""
        rows: Index = np.searchsorted(self.stops, positions, side="right")
        return rows

    def has(self, literal: bytes, at: Index) -> Mask:
        """By row: whether the literal, of eight bytes or more, stands at a position."""
        found = np.ones(len(at), np.bool_)
        last = len(literal) - _WORD_BYTES
        for shift in (*range(0, last, _WORD_BYTES), last):
            # For a row that is not an event the position may be arbitrary, but must stay inside the buffer.
            places = np.clip(at + shift, 0, len(self._words) - 1)
            found &= self._words[places].view(np.uint64) == np.frombuffer(literal, np.uint64, 1, shift)[0]
        return found


class _Spans(NamedTuple):
    """The positions of the values of some rows."""

    rows: Index
    offsets: npt.NDArray[np.int32]
    """By row, see `_PARTS`."""
    absent: dict[str, Mask]
    """By row, for each member that some rows lack."""


def _spans(text: _Text) -> _Spans:
    """The rows that have the form of an event."""
    quotes = np.concatenate((np.zeros(1, np.int64), text.quotes))  # so that there is always an element
    count = len(text.starts)
    offsets = np.empty((count, _PARTS), np.int32)
    absent: dict[str, Mask] = {}
    fits: Mask = (text.stops - text.starts >= _SHORTEST) & text.has(_OPENING, text.starts)
    fits &= text.bytes[np.maximum(text.stops - 1, 0)] == _BRACE
    if int(text.bytes.min(initial=_BLANK)) < _BLANK:  # JSON allows whitespace between values; this form has none
        fits[text.rows_of(np.flatnonzero(text.bytes < _BLANK))] = False
    stop = text.stops - 1
    at = np.searchsorted(text.quotes, text.stops)  # the last quote of each row, in the array that is one longer
    for number, member in reversed(tuple(enumerate(_MEMBERS, start=1))):
        if member.quoted:
            begin, end, passed = quotes[np.maximum(at - 1, 0)] + 1, stop - 1, 4
            there = text.has(member.head, begin - len(member.head)) & (quotes[np.maximum(at, 0)] == end)
        else:
            begin, end, passed = quotes[np.maximum(at, 0)] + 2, stop, 2
            there = text.has(member.head, begin - len(member.head))
        before = begin - len(member.head)
        if member.optional and not there.all():
            absent[member.name] = ~there
            # Its value is empty and is placed before the next member: offsets never decrease.
            begin, end, before = (np.where(there, where, stop) for where in (begin, end, before))
            passed = passed * there
        else:
            fits &= there
        offsets[:, 2 * number], offsets[:, 2 * number + 1] = begin, end
        stop, at = before, at - passed
    offsets[:, 0], offsets[:, 1] = text.starts + len(_OPENING), stop
    fits &= offsets[:, 1] > offsets[:, 0]  # else the bytes belong to earlier rows
    rows = np.flatnonzero(fits)
    if len(rows) == count:
        return _Spans(rows, offsets, absent)
    return _Spans(rows, offsets[rows], {name: mask[rows] for name, mask in absent.items()})


class _Columns:
    """Makes the columns of rows whose values have been found. `events` is called once."""

    def __init__(self, text: _Text, spans: _Spans) -> None:
        self._spans = spans
        # Every value and every piece between two values is an element of one array; columns are selected from it.
        flat = spans.offsets.ravel()
        self._parts = pa.StringArray.from_buffers(len(flat) - 1, pa.py_buffer(flat), text.data)
        self._readable = np.ones(len(spans.rows), np.bool_)
        self._may_escape = self._has_slashes(text)

    def _has_slashes(self, text: _Text) -> bool:
        """Whether there is a backslash after the attributes (the attributes themselves are not unescaped)."""
        if not len(text.slashes):
            return False
        ends = np.full(len(text.starts), np.iinfo(np.int64).max)
        ends[self._spans.rows] = self._spans.offsets[:, 1]
        return bool((text.slashes >= ends[text.rows_of(text.slashes)]).any())

    def events(self) -> tuple[pa.RecordBatch, Mask]:
        """The columns, and which rows could be read; the values of other rows are undefined."""
        columns = {"attributes": self._attributes()}
        for number, member in enumerate(_MEMBERS, start=1):
            texts = self._texts(number, self._spans.absent.get(member.name))
            columns[member.name] = self._column(member, texts)
        ordered = [columns[name] for name in LIVE_SCHEMA.names]
        return pa.RecordBatch.from_arrays(ordered, schema=LIVE_SCHEMA), self._readable

    def _texts(self, number: int, absent: Mask | None = None) -> pa.Array:
        """One value by row; null if it is absent."""
        places = np.arange(2 * number, self._spans.offsets.size, _PARTS)
        return self._parts.take(pa.array(places, mask=absent))

    def _attributes(self) -> pa.Array:
        """The attributes as text, after checking that each is one JSON value."""
        texts = self._texts(0)
        lengths = np.diff(self._spans.offsets[:, :2]).ravel().tolist()
        try:
            # Check the lengths too: `{"a":1},"b":2` of one row could compensate for a missing value in another.
            if list(map(len, _raw_list.decode(joined_list(texts)))) == lengths:
                return texts
        except _NOT_JSON:
            pass
        for row, (value, length) in enumerate(zip(texts.cast(pa.binary()).to_pylist(), lengths, strict=True)):
            try:
                self._readable[row] &= len(_raw.decode(value)) == length
            except _NOT_JSON:
                self._readable[row] = False
        return texts

    def _column(self, member: _Member, texts: pa.Array) -> pa.Array:
        if member.kind == "bigint":
            return self._whole_numbers(texts)
        if not member.quoted:
            return self._numbers(texts, member.kind, LIVE_SCHEMA.field(member.name).type)
        if self._may_escape:
            texts = self._unescaped(texts)
        return texts.cast(LIVE_SCHEMA.field(member.name).type)

    def _unescaped(self, texts: pa.Array) -> pa.Array:
        hits = pc.fill_null(pc.match_substring(texts, "\\"), False)
        rows = pc.indices_nonzero(hits).to_numpy()
        if not len(rows):
            return texts
        quoted = pc.binary_join_element_wise('"', texts.take(pa.array(rows)), '"', "")
        try:
            written: list[str] = _text_list.decode(joined_list(quoted))
        except _NOT_JSON:
            written = []
            for row, value in zip(rows.tolist(), quoted.to_pylist(), strict=True):
                try:
                    written.append(_text.decode(value))
                except _NOT_JSON:
                    self._readable[row] = False
                    written.append("")
        return pc.replace_with_mask(texts, hits, pa.array(written, pa.string()))

    def _numbers(self, texts: pa.Array, kind: str, wanted: pa.DataType) -> pa.Array:
        """A column of numbers with few distinct values."""
        coded = texts.dictionary_encode()
        values = [_number(text, kind, wanted) for text in coded.dictionary.to_pylist()]
        numbers = pa.array(values, wanted).take(coded.indices)
        if None in values:
            self._readable &= pc.equal(numbers.is_valid(), texts.is_valid()).to_numpy(zero_copy_only=False)
        return numbers

    def _whole_numbers(self, texts: pa.Array) -> pa.Array:
        """A column of numbers with many distinct values: digits as JSON writes them, without sign and leading zeros."""
        ends = np.frombuffer(texts.buffers()[1], np.int32)[texts.offset : texts.offset + len(texts) + 1]
        lengths = np.diff(ends)
        digits = np.frombuffer(texts.buffers()[2] or b"", np.uint8)[: ends[-1]] - _ZERO
        if (
            (lengths > 0).all()
            and (lengths <= _WHOLE_DIGITS_MAX).all()
            and (digits < 10).all()
            and ((digits[ends[:-1]] > 0) | (lengths == 1)).all()
        ):
            return texts.cast(pa.int64())
        plain = pc.match_substring_regex(texts, f"^(0|[1-9][0-9]{{0,{_WHOLE_DIGITS_MAX - 1}}})$")
        self._readable &= plain.to_numpy(zero_copy_only=False)
        return pc.if_else(plain, texts, "0").cast(pa.int64())


def _number(text: str, kind: str, wanted: pa.DataType) -> Any:
    """The value of a number's text; None if it is not a number, or too large for its column."""
    try:
        return pa.scalar(_DECODERS[kind].decode(text), wanted).as_py()
    except (*_NOT_JSON, pa.ArrowInvalid, OverflowError):
        return None


def joined_list(values: pa.Array) -> memoryview:
    """The JSON of all values as one JSON list, joined without making an object of each."""
    whole = pa.ListArray.from_arrays(pa.array([0, len(values)], pa.int32()), values.cast(pa.binary()))
    joined = pc.binary_join_element_wise(b"[", pc.binary_join(whole, b","), b"]", b"")
    return memoryview(joined[0].as_buffer())
