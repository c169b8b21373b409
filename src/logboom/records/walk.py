"""Walking the records of one batch without making an object of any: do the lengths add up?

This is the one loop of the house that runs once per record on the way in, so it is written for the interpreter: one
byte numbers inline, everything else in a call, and one IndexError instead of a bounds check per byte. An index never
goes below zero, so a read past the end is always that IndexError.
"""

from logboom.base.errors import CorruptBatchError, InvalidRecordError
from logboom.records.varint import MAX_LONG_BYTES, read_varint

MIN_RECORD_BYTES = 7
"""Length, attributes, two deltas, null key, null value, no headers: one byte each."""


def walk_records(body: bytes, count: int) -> None:
    """Check that `body` is exactly `count` records whose offset deltas are 0, 1, 2, ...

    CorruptBatchError where a length contradicts another, InvalidRecordError where the deltas or the count do.
    """
    if count * MIN_RECORD_BYTES > len(body):
        raise InvalidRecordError(f"{count} records cannot fit into {len(body)} bytes.")
    try:
        position = _walk(body, count)
    except IndexError:
        raise CorruptBatchError("A record reaches past the end of its batch.") from None
    if position != len(body):
        raise InvalidRecordError(f"The batch says {count} records, but {len(body) - position} bytes follow the last.")


def _walk(body: bytes, count: int) -> int:
    position = 0
    for delta in range(count):
        # Length of the record; an odd number would be negative.
        size = body[position]
        if size < 128:
            position += 1
        else:
            high = body[position + 1]
            if high < 128:
                size = size & 127 | high << 7
                position += 2
            else:
                length, position = read_varint(body, position)
                size = length << 1
        if size & 1 or size < 0:
            raise CorruptBatchError("A record has a negative length.")
        end = position + (size >> 1)
        # Behind the attributes, the timestamp delta may be anything.
        position = position + 2 if body[position + 1] < 128 else _skip_long(body, position + 1)
        # The offset delta is known beforehand.
        if delta < 64:
            if body[position] != delta + delta:
                _check_delta(body, position, delta)
            position += 1
        elif delta < 8192 and body[position] == (delta + delta & 127 | 128) and body[position + 1] == delta >> 6:
            position += 2
        else:
            position = _check_delta(body, position, delta)
        # Key, value and headers; 1 is the number -1, null.
        size = body[position]
        position = position + 1 + (size >> 1) if size < 128 and not size & 1 else _skip_field(body, position)
        size = body[position]
        if size < 128 and not size & 1:
            position += 1 + (size >> 1)
        elif size >= 128 and not size & 1 and body[position + 1] < 128:
            position += 2 + ((size & 127 | body[position + 1] << 7) >> 1)
        else:
            position = _skip_field(body, position)
        position = position + 1 if body[position] == 0 else _skip_headers(body, position)
        if position != end:
            raise CorruptBatchError("The fields of a record do not add up to its length.")
    return position


def _skip_long(body: bytes, position: int) -> int:
    return read_varint(body, position, MAX_LONG_BYTES)[1]


def _check_delta(body: bytes, position: int, expected: int) -> int:
    delta, position = read_varint(body, position)
    if delta != expected:
        raise InvalidRecordError(f"Record {expected} of a batch has the offset delta {delta}.")
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
