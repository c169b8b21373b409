"""Walking the records of one batch without making an object of any: do the lengths add up?

This is the one loop of the house that runs once per record on the way in, so it is written for the interpreter: the
shapes that nearly all records have (numbers of one or two bytes, no headers) are read inline, any other record goes
to `_walk_record`, and one IndexError stands for a bounds check per byte. An index never goes below zero, so a read
past the end is always that IndexError.
"""

from typing import Final

from logboom.base.errors import CorruptBatchError, InvalidRecordError
from logboom.records.varint import MAX_LONG_BYTES, read_varint, varint

MIN_RECORD_BYTES: Final = 7
"""Length, attributes, two deltas, null key, null value, no headers: one byte each."""

_DELTAS: Final = tuple(varint(delta) for delta in range(8192))
"""The offset deltas as they must stand in the bytes, one after another."""


def walk_records(body: bytes, count: int) -> None:
    """Check that `body` is exactly `count` records whose offset deltas are 0, 1, 2, ...

    CorruptBatchError where a length contradicts another, InvalidRecordError where the deltas or the count do.
    """
    if count * MIN_RECORD_BYTES > len(body):
        raise InvalidRecordError(f"{count} records cannot fit into {len(body)} bytes.")
    try:
        position = _walk_usual(body, count)
        for delta in range(len(_DELTAS), count):
            position = _walk_record(body, position, varint(delta))
    except IndexError:
        raise CorruptBatchError("A record reaches past the end of its batch.") from None
    if position != len(body):
        raise InvalidRecordError(f"The batch says {count} records, but {len(body) - position} bytes follow the last.")


def _walk_usual(body: bytes, count: int) -> int:
    """Walk the first records of a batch; a name for every step would cost more than the step."""
    position = 0
    for expected in _DELTAS[:count]:
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
        if position + 1 != end or body[position] or (value & 1 and value != 1):
            position = _walk_record(body, start, expected)
        else:
            position = end
    return position


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
