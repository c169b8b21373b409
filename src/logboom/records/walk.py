"""Walking the records of one batch without making an object of any: do the lengths add up?

This is the one loop of the house that runs once per record on the way in, so it is written for the interpreter. Runs
of records of one size (metrics, fixed messages) are checked a column at a time, by comparing slices. Of the others,
the shapes that nearly all have (numbers of one or two bytes, no headers) are read inline, any other record goes to
`_walk_record`, and one IndexError stands for a bounds check per byte. An index never goes below zero, so a read past
the end is always that IndexError.
"""

from collections.abc import Callable
from operator import itemgetter
from typing import Final

from logboom.base.errors import CorruptBatchError, InvalidRecordError
from logboom.records.varint import MAX_LONG_BYTES, read_varint, varint

MIN_RECORD_BYTES: Final = 7
"""Length, attributes, two deltas, null key, null value, no headers: one byte each."""

_DELTAS: Final = tuple(varint(delta) for delta in range(8192))
"""The offset deltas as they must stand in the bytes, one after another."""

_ONE_BYTE_DELTAS: Final = 64
"""Deltas below this take one byte, the others of `_DELTAS` two."""

_FIRST_BYTES: Final = bytes(delta[0] for delta in _DELTAS)
_SECOND_BYTES: Final = bytes(delta[-1] for delta in _DELTAS)
_FROM_128: Final = bytes(range(128, 256))
_HEADERS_MAX_BYTES: Final = 4096
_LAYOUTS_MAX: Final = 1024
_layouts: Final[dict[tuple[int, bytes], tuple[Callable[[bytes], object], object, int]]] = {}
"""What headers were found right: by their size and first two bytes, where their lengths stand, which they are, and
where the last value begins.

Producers send the same headers again and again with values of few sizes. Equal bytes at these places are read alike,
so what is remembered never changes a verdict; it is only a short cut, and bounded.
"""

_fronts: Final[dict[int, bytes]] = {}
"""By the size of headers, the last that were found right, up to their last value: others often differ in that alone."""

_STRETCH: Final = 64
"""So many records are walked one by one before a run is looked for again."""

_RUN_MIN: Final = 8
"""Below so many records of one size, looking at columns costs more than it saves."""


def walk_records(body: bytes, count: int) -> None:
    """Check that `body` is exactly `count` records whose offset deltas are 0, 1, 2, ...

    CorruptBatchError where a length contradicts another, InvalidRecordError where the deltas or the count do.
    """
    if count * MIN_RECORD_BYTES > len(body):
        raise InvalidRecordError(f"{count} records cannot fit into {len(body)} bytes.")
    try:
        position = delta = 0
        if count < _RUN_MIN:
            position, delta = _walk_usual(body, 0, 0, count), count
        while delta < min(count, len(_DELTAS)):
            run = _run_of_one_size(body, position, delta, count)
            if run:
                position += run * _size_of(body, position)
                delta += run
            else:
                stop = min(count, delta + _STRETCH)
                position = _walk_usual(body, position, delta, stop)
                delta = stop
        for delta in range(len(_DELTAS), count):
            position = _walk_record(body, position, varint(delta))
    except IndexError:
        raise CorruptBatchError("A record reaches past the end of its batch.") from None
    if position != len(body):
        raise InvalidRecordError(f"The batch says {count} records, but {len(body) - position} bytes follow the last.")


def _size_of(body: bytes, position: int) -> int:
    """Bytes of the record at `position`, its length included; right for lengths of one or two bytes."""
    size = body[position]
    return 1 + (size >> 1) if size < 128 else 2 + (size >> 1 & 63 | body[position + 1] << 6)


def _run_of_one_size(body: bytes, position: int, delta: int, count: int) -> int:
    """How many records from `position` on are surely right because each is shaped as the first; 0 where few are.

    One shape: the same length, the same lengths of key and value, a timestamp delta of as many bytes, no headers.
    """
    step = _size_of(body, position)
    most = min(count, _ONE_BYTE_DELTAS if delta < _ONE_BYTE_DELTAS else len(_DELTAS)) - delta
    run = min(most, (len(body) - position) // step)
    if run < _RUN_MIN or body[position + step] != body[position]:
        return 0
    at = position + (1 if body[position] < 128 else 2) + 1
    stamps = 1 if body[at] < 128 else 2
    key_at = at + stamps + len(_DELTAS[delta])
    key = body[key_at]
    value_at = key_at + 1 + (key >> 1)
    last = position + step - 1
    if value_at >= last:
        return 0  # no such shape; what it really is may end before the byte that would be looked at next
    value = body[value_at]
    value_bytes, behind = (1, value >> 1) if value < 128 else (2, value >> 1 & 63 | body[value_at + 1] << 6)
    if value_at + value_bytes + behind != last or key > 127 or body[last] or (key & 1 and key != 1):
        return 0
    if (value & 1 and value != 1) or behind > 8191 or body[position] & 1 or step > 8193:
        return 0
    fixed = (*range(position, at - 1), key_at, *range(value_at, value_at + value_bytes), last)
    while run >= _RUN_MIN:
        if _columns_agree(body, run, step, fixed) and _counting(body, run, step, at, stamps, delta):
            return run
        run //= 2
    return 0


def _columns_agree(body: bytes, run: int, step: int, fixed: tuple[int, ...]) -> bool:
    """Whether each of the bytes at `fixed` is the same in all records of the run."""
    reach = (run - 1) * step + 1
    return all(body[at : at + reach : step] == body[at : at + 1] * run for at in fixed)


def _counting(body: bytes, run: int, step: int, at: int, stamps: int, delta: int) -> bool:
    """Whether the timestamp deltas have `stamps` bytes each, and the offset deltas behind them count up by one."""
    reach = (run - 1) * step + 1
    if stamps == 2 and body[at : at + reach : step].translate(None, _FROM_128):
        return False
    end = at + stamps
    if not body[end - 1 : end - 1 + reach : step].isascii():
        return False
    if body[end : end + reach : step] != _FIRST_BYTES[delta : delta + run]:
        return False
    if delta < _ONE_BYTE_DELTAS:
        return True
    return body[end + 1 : end + 1 + reach : step] == _SECOND_BYTES[delta : delta + run]


def _walk_usual(body: bytes, position: int, first: int, stop: int) -> int:
    """Walk records `first` to `stop` of a batch; a name for every step would cost more than the step."""
    for expected in _DELTAS[first:stop]:
        start = position
        # Length of the record.
        size = body[position]
        if size < 128:
            position += 1
        else:
            size = size & 127 | body[position + 1] << 7
            position += 2
        end = position + (size >> 1)
        # Attributes may be anything, and the timestamp delta too.
        if body[position + 1] < 128:
            at = position + 2
        elif body[position + 2] < 128:
            at = position + 3
        else:
            position = _walk_record(body, start, expected)
            continue
        # Offset delta, then the key: 1 is the number -1, null.
        position = at + len(expected)
        key = body[position]
        if size > 16383 or size & 1 or key > 127 or body[at:position] != expected or (key & 1 and key != 1):
            position = _walk_record(body, start, expected)
            continue
        position += 1 + (key >> 1)
        # Value, and no headers.
        value = body[position]
        if value < 128:
            position += 1 + (value >> 1)
        else:
            high = body[position + 1]
            position += 2 + (value >> 1 & 63 | high << 6)
            if high > 127:
                position = end
        if value & 1 and value != 1:
            position = _walk_record(body, start, expected)
        elif (position + 1 == end and not body[position]) or (
            position < end <= len(body) and _known_headers(body, position, end)
        ):
            position = end
        else:
            headers = position
            position = _walk_record(body, start, expected)
            if headers < end == position:
                _learn_headers(body[headers:end])
    return position


def _known_headers(body: bytes, position: int, end: int) -> bool:
    """Whether the headers between have the lengths, at the places, of headers that were found right before."""
    size = end - position
    if size > _HEADERS_MAX_BYTES:
        return False
    front = _fronts.get(size)
    if front is not None and body.startswith(front, position):
        return True
    block = body[position:end]
    layout = _layouts.get((len(block), block[:2]))
    if layout is None or layout[0](block) != layout[1]:
        return False
    _fronts[size] = block[: layout[2]]
    return True


def _learn_headers(block: bytes) -> None:
    """Remember where the lengths stand in headers that were walked and found right, and which they are."""
    if not 2 < len(block) <= _HEADERS_MAX_BYTES:
        return
    places: list[int] = []

    def number(position: int) -> tuple[int, int]:
        value, behind = read_varint(block, position)
        places.extend(range(position, behind))
        return value, behind

    length, (count, position) = 0, number(0)
    for _ in range(2 * count):
        length, position = number(position)
        position += max(length, 0)
    if len(_layouts) >= _LAYOUTS_MAX:
        _layouts.clear()
        _fronts.clear()
    # Everything up to the last value: what follows is that value, of a length that stands in here.
    front = len(block) - max(length, 0)
    getter = itemgetter(*places)
    _layouts[len(block), block[:2]] = (getter, getter(block), front)


def _walk_record(body: bytes, position: int, expected: bytes) -> int:
    """Behind the record at `position`, whatever its shape."""
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
    position = _skip_headers(body, position)
    if position != end:
        raise CorruptBatchError("The fields of a record do not add up to its length.")
    return position


def _skip_field(body: bytes, position: int) -> int:
    """Behind a key or value; its length is -1 for null."""
    length, position = read_varint(body, position)
    if length < -1:
        raise CorruptBatchError("A key or value has a negative length.")
    return position + max(length, 0)


def _skip_headers(body: bytes, position: int) -> int:
    count, position = read_varint(body, position)
    if count < 0 or 2 * count > len(body) - position:
        raise CorruptBatchError(f"A record cannot have {count} headers.")
    for _ in range(count):
        length, position = read_varint(body, position)
        if length < 0:
            raise CorruptBatchError("The name of a header has a negative length.")
        position = _skip_field(body, position + length)
    return position
