"""Walking the records of one batch without making an object of any: do the lengths add up?

This is the one loop of the broker that runs once per record on the way in, so it is written for the interpreter's
speed. There are three ways through it, the fastest first:

1. Runs of records of one shape are checked a column of bytes at a time (`columns`).
2. Records whose numbers have one or two bytes each, and whose headers, if any, are like some seen before, are read
   inline by `_walk_common`: a function call for each number would cost more than reading it.
3. Any other record goes to `_walk_record`, the only place that knows the whole format, and that names errors.

A fast way answers only "right"; whatever it does not recognise is left to the next. So an error is always found by 3,
and so is a record with a condition (`conditions`): the fast ways do not recognise its header. That costs other records
nothing, since a header is looked at by its name only where the name is as long as that one.

Bounds are not checked byte by byte: every read beyond the end raises IndexError, which `walk_records` turns into
CorruptBatchError. That is sound because no position ever goes below zero, where Python would count from the end.
"""

from collections.abc import Callable
from operator import itemgetter
from typing import Final, NamedTuple

from logboom.base.errors import CorruptBatchError, InvalidRecordError, MessageTooLargeError
from logboom.records.columns import DELTAS, ONE_BYTE_DELTAS, TAIL_MAX_BYTES, Shape, behind_run, run_of_one_size
from logboom.records.conditions import EXPECTED_OFFSET
from logboom.records.varint import MAX_LONG_BYTES, read_varint, varint

MIN_RECORD_BYTES: Final = 7
"""Length, attributes, two deltas, null key, null value, no headers: one byte each."""

HEADERS_MAX: Final = 1_000_000
"""Headers that the records of a batch may have together. Empty ones take two bytes and compress to nothing, so a
request of some kilobytes could have tens of millions, and keep the broker busy for half a minute."""

_HEADERS_MAX_BYTES: Final = 4096
_LAYOUTS_MAX: Final = 1024


class _Layout(NamedTuple):
    """The numbers of a record's headers (their count, and the length of each name and value)."""

    places: tuple[int, ...]
    """Where the bytes of these numbers stand."""
    lengths_in: Callable[[bytes], int | tuple[int, ...]]
    """Takes these bytes out of other headers, to be compared with `lengths`."""
    lengths: int | tuple[int, ...]
    headers: int
    """How many these are."""
    front: int
    """Where the last value begins."""
    may_be_condition: bool
    """Whether a name is as long as that of a condition's header. The lengths alone do not tell the two apart."""


_layouts: Final[dict[tuple[int, bytes], _Layout]] = {}
"""A cache of headers that were found right, by their size and first two bytes.

Producers send the same headers again and again, with values of few sizes. Headers with equal bytes at all places of
numbers are parsed alike, so the cache never changes the result. It is bounded by `_LAYOUTS_MAX`.
"""

_COUNT_ALONE: Final = (0,)
"""Where the numbers stand in no headers: their count is all there is."""
_NO_HEADERS: Final = _Layout(_COUNT_ALONE, itemgetter(0), 0, 0, 1, may_be_condition=False)

_fronts: Final[dict[int, tuple[bytes, int]]] = {}
"""By their size, the last headers found right, up to their last value, and how many those are: the next ones often
differ in that value alone."""
_NO_FRONT: Final = (b"", 0)

_RUNS_BEGIN_AT: Final = (0, ONE_BYTE_DELTAS)
_NO_RUN_START: Final[tuple[bytes, Shape | None]] = (b"", None)
_run_starts: Final[dict[int, tuple[bytes, Shape | None]]] = {}
"""How the last run of one size without headers began, up to its first value, and its shape. The next batch's first
run often begins with the same bytes, and then has the same shape."""

_STRETCH: Final = 64
"""Records that are walked one by one before a run is looked for again; twice as many each time there is none."""

_RUN_MIN: Final = 8
"""Below this many records of one size, looking at columns costs more than it saves."""

_SHAPED_MIN: Final = 32
"""The same of records of one shape and any size."""

_CHUNK_MIN: Final = 64
_CHUNK_MAX: Final = 1024
"""Records of any size that are laid side by side at once; twice as many after each success, up to the maximum."""


class FoundHeaders:
    """What was found of the headers of a batch so far."""

    __slots__ = ("conditions", "count")

    def __init__(self) -> None:
        self.conditions: list[int] = []
        """Where the names of those stand that are conditions."""
        self.count = 0

    def add(self, count: int) -> None:
        """So many more. Raises MessageTooLargeError where they are too many, whichever way the records are walked."""
        self.count += count
        if self.count > HEADERS_MAX:
            raise MessageTooLargeError(f"The records of a batch have more than {HEADERS_MAX} headers.")


def walk_records(body: bytes, count: int) -> bool:
    """Check that `body` is exactly `count` records whose offset deltas are 0, 1, 2, ...; whether any has a condition.

    CorruptBatchError where a length contradicts another, InvalidRecordError where the deltas or the count do,
    MessageTooLargeError where they have more than HEADERS_MAX headers.
    """
    if count * MIN_RECORD_BYTES > len(body):
        raise InvalidRecordError(f"{count} records cannot fit into {len(body)} bytes.")
    stretch, chunk = _STRETCH, _CHUNK_MIN
    headers = FoundHeaders()
    try:
        position = delta = 0
        if count < _RUN_MIN:
            position, delta = _walk_common(body, 0, 0, count, headers), count
        while delta < min(count, len(DELTAS)):
            run, behind, headers_of_each = _walk_columns(body, position, delta, count, chunk)
            if run:
                headers.add(run * headers_of_each)
                position = behind
                delta += run
                stretch, chunk = max(_STRETCH, stretch // 2), min(2 * chunk, _CHUNK_MAX)
            else:
                stop = min(count, delta + stretch)
                position = _walk_common(body, position, delta, stop, headers)
                delta = stop
                stretch, chunk = 2 * stretch, _CHUNK_MIN
        for delta in range(len(DELTAS), count):
            position = _walk_record(body, position, varint(delta), headers)
    except IndexError:
        raise CorruptBatchError("A record reaches past the end of its batch.") from None
    if position != len(body):
        raise InvalidRecordError(f"The batch says {count} records, but {len(body) - position} bytes follow the last.")
    return bool(headers.conditions)


def _walk_columns(body: bytes, position: int, delta: int, count: int, chunk: int) -> tuple[int, int, int]:
    """How many records from `position` on are certainly right because each has the shape of the first, the position
    after them, and the headers that each has; 0 where too few are.
    """
    # A first look at two bytes: the next record most likely has the same size where its length is the same.
    step = _size_of(body, position)
    most = min(count, ONE_BYTE_DELTAS if delta < ONE_BYTE_DELTAS else len(DELTAS)) - delta
    following = position + step
    of_one_size = most >= _RUN_MIN and body[following : following + 2] == body[position : position + 2]
    if not of_one_size and most < _SHAPED_MIN:
        return 0, position, 0
    shape = _shape(body, position, delta)
    if shape is None or shape.step != step:
        return 0, position, 0
    # The length of a record of any size is hopped over by two bytes, so it must have two.
    of_any_size = most >= _SHAPED_MIN and shape.size_bytes == 2 and shape.tail <= TAIL_MAX_BYTES
    if of_one_size:
        shape = shape.with_fixed()
        least = _SHAPED_MIN if of_any_size else _RUN_MIN
        run = run_of_one_size(body, position, shape, delta, most, least)
        if run and not _holds_condition(body, shape, position, position + run * step):
            if shape.places == _COUNT_ALONE and delta in _RUNS_BEGIN_AT:
                _run_starts[delta] = body[position : position + shape.value_end], shape
            return run, position + run * step, shape.headers
    if of_any_size and (other := _shape(body, following, delta + 1)) is not None:
        run = min(most, chunk)
        behind = behind_run(body, position, shape, delta, run) if other.is_like(shape) else 0
        if behind and not _holds_condition(body, shape, position, behind):
            return run, behind, shape.headers
    return 0, position, 0


def _holds_condition(body: bytes, shape: Shape, start: int, end: int) -> bool:
    """Whether a condition's header may be among these records of one shape: the slower ways look at each."""
    return shape.may_be_condition and body.find(EXPECTED_OFFSET, start, end) >= 0


def _size_of(body: bytes, position: int) -> int:
    """Bytes of the record at `position`, its length included; right for lengths of one or two bytes."""
    size = body[position]
    return 1 + (size >> 1) if size < 128 else 2 + (size >> 1 & 63 | body[position + 1] << 6)


def _shape(body: bytes, position: int, delta: int) -> Shape | None:
    """The shape of the record at `position`; None where it is not right."""
    start, known = _run_starts.get(delta, _NO_RUN_START)
    if known is not None and body.startswith(start, position):
        end = position + known.step
        if end <= len(body) and not body[end - 1]:
            return known
    try:
        size, at = read_varint(body, position)
        end = at + size
        _, delta_at = read_varint(body, at + 1, MAX_LONG_BYTES)
        key_at = delta_at + len(DELTAS[delta])
        key_size, key_end = read_varint(body, key_at)
        value_at = key_end + key_size if key_size > 0 else key_end
        value_size, value_end = read_varint(body, value_at)
    except (IndexError, CorruptBatchError):
        return None
    tail_at = value_end + value_size if value_size > 0 else value_end
    if key_size < -1 or value_size < -1 or body[delta_at:key_at] != DELTAS[delta] or not tail_at < end <= len(body):
        return None
    layout = _NO_HEADERS if end - tail_at == 1 and not body[tail_at] else _layout_of(body[tail_at:end])
    if layout is None:
        return None
    return Shape(
        size_bytes=at - position,
        step=end - position,
        stamp_bytes=delta_at - at - 1,
        key_at=key_at - position,
        key_end=key_end - position,
        value_at=value_at - position,
        value_end=value_end - position,
        tail=end - tail_at,
        headers=layout.headers,
        places=layout.places,
        may_be_condition=layout.may_be_condition,
    )


def _layout_of(block: bytes) -> _Layout | None:
    """Where the numbers stand in headers; None where they are not right."""
    if len(block) > _HEADERS_MAX_BYTES:
        return None
    layout = _layouts.get((len(block), block[:2]))
    if layout is None or layout.lengths_in(block) != layout.lengths:
        try:
            if _skip_headers(block, 0, FoundHeaders()) != len(block):
                return None
        except (IndexError, CorruptBatchError):
            return None
        layout = _learn_headers(block)
    return layout


def _walk_common(body: bytes, position: int, first: int, stop: int, headers: FoundHeaders) -> int:
    """The position after records `first` to `stop` of a batch. Inline on purpose: a call costs more than its step.

    The lengths are zigzag varints read without decoding the sign: a length n is stored as 2n, so an odd number is a
    negative length, of which only 1 (-1, null) is allowed, for a key and a value.
    """
    found = 0
    for expected in DELTAS[first:stop]:
        start = position
        # Length of the record.
        size = body[position]
        if size < 128:
            position += 1
        else:
            size = size & 127 | body[position + 1] << 7
            position += 2
        end = position + (size >> 1)
        # Attributes may be anything, and the timestamp delta too: only where it ends matters.
        if body[position + 1] < 128:
            at = position + 2
        elif body[position + 2] < 128:
            at = position + 3
        else:
            position = _walk_record(body, start, expected, headers)
            continue
        # Offset delta, then the key: 1 is the number -1, null.
        position = at + len(expected)
        key = body[position]
        if size > 16383 or size & 1 or key > 127 or body[at:position] != expected or (key & 1 and key != 1):
            position = _walk_record(body, start, expected, headers)
            continue
        position += 1 + (key >> 1)
        # Value, and no headers.
        value = body[position]
        if value < 128:
            position += 1 + (value >> 1)
        else:
            high = body[position + 1]
            position += 2 + (value >> 1 & 63 | high << 6)
            if high > 127:  # a third byte: not a common record; `end` fails the test below
                position = end
        if value & 1 and value != 1:
            position = _walk_record(body, start, expected, headers)
        elif position + 1 == end and not body[position]:
            position = end
        elif position < end <= len(body) and (known := _known_headers(body, position, end)):
            found += known
            position = end
        else:
            # Something is unusual, or wrong. If it was only headers not seen before, they are remembered.
            at = position
            position = _walk_record(body, start, expected, headers)
            if at < end == position:
                _learn_headers(body[at:end])
    headers.add(found)
    return position


def _known_headers(body: bytes, position: int, end: int) -> int:
    """How many headers are between two positions, where they have the same lengths at the same places as ones found
    right before, and none is that of a condition; else 0."""
    size = end - position
    if size > _HEADERS_MAX_BYTES:
        return 0
    front, count = _fronts.get(size, _NO_FRONT)
    if count and body.startswith(front, position):
        return count
    block = body[position:end]
    layout = _layouts.get((len(block), block[:2]))
    if layout is None or layout.lengths_in(block) != layout.lengths:
        return 0
    if layout.may_be_condition and EXPECTED_OFFSET in block:
        return 0
    _fronts[size] = block[: layout.front], layout.headers
    return layout.headers


def _learn_headers(block: bytes) -> _Layout | None:
    """Remember where the lengths stand in headers that were walked and found right, and which they are."""
    if not 2 < len(block) <= _HEADERS_MAX_BYTES:
        return None
    places: list[int] = []

    def number(position: int) -> tuple[int, int]:
        value, behind = read_varint(block, position)
        places.extend(range(position, behind))
        return value, behind

    length, (count, position) = 0, number(0)
    may_be_condition = False
    for _ in range(count):
        length, position = number(position)
        may_be_condition |= length == len(EXPECTED_OFFSET)
        length, position = number(position + length)
        position += max(length, 0)
    if len(_layouts) >= _LAYOUTS_MAX:
        _layouts.clear()
        _fronts.clear()
    # Everything up to the last value: what follows is that value, of a length that stands in here.
    front = len(block) - max(length, 0)
    getter = itemgetter(*places)
    layout = _Layout(tuple(places), getter, getter(block), count, front, may_be_condition)
    _layouts[len(block), block[:2]] = layout
    return layout


def _walk_record(body: bytes, position: int, expected: bytes, headers: FoundHeaders) -> int:
    """The position after the record at `position`, of any shape. Raises what `walk_records` does, and IndexError.

    Its headers are counted in `headers`.
    """
    length, position = read_varint(body, position)
    if length < 0:
        raise CorruptBatchError("A record has a negative length.")
    end = position + length
    _, position = read_varint(body, position + 1, MAX_LONG_BYTES)
    delta, position = read_varint(body, position)
    if varint(delta) != expected:
        raise InvalidRecordError(f"A record of a batch has the offset delta {delta}, which is not its place.")
    position = _skip_field(body, position)
    position = _skip_field(body, position)
    position = _skip_headers(body, position, headers)
    if position != end:
        raise CorruptBatchError("The fields of a record do not add up to its length.")
    return position


def _skip_field(body: bytes, position: int) -> int:
    """The position after a key or value; its length is -1 for null."""
    length, position = read_varint(body, position)
    if length < -1:
        raise CorruptBatchError("A key or value has a negative length.")
    return position + max(length, 0)


def _skip_headers(body: bytes, position: int, headers: FoundHeaders) -> int:
    count, position = read_varint(body, position)
    if count < 0 or 2 * count > len(body) - position:
        raise CorruptBatchError(f"A record cannot have {count} headers.")
    headers.add(count)
    for _ in range(count):
        length, position = read_varint(body, position)
        if length < 0:
            raise CorruptBatchError("The name of a header has a negative length.")
        if length == len(EXPECTED_OFFSET) and body.startswith(EXPECTED_OFFSET, position):
            headers.conditions.append(position)
        position = _skip_field(body, position + length)
    return position
