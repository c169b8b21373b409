"""The keys of a batch's records, all at once: what `keys` finds record by record, in a tenth to a third of the time.

The records of one producer mostly begin alike: their length, timestamp delta, offset delta and key's length take as
many bytes each as those of the record before. Where that is so, the beginnings are laid side by side, and each of their
numbers is a column of bytes in equal steps (as in `columns`). A run ends with the first record that begins in another
way. Records whose runs are short, and what may be damaged, are left to `keyed_records`, which also finds every error.
"""

from collections.abc import Sequence
from itertools import repeat
from operator import ge
from typing import Final, NamedTuple

from logboom.records.keys import keyed_records
from logboom.records.varint import CONTINUES

_RUN_MIN: Final = 8
"""Below this many records, looking at columns costs more than it saves."""
_RUN_MAX: Final = 1024
"""Records whose beginnings are laid side by side at once."""
_RUN_FIRST: Final = 64
"""The same of the first run: offset deltas above 63 take two bytes."""
_STAMP_BYTES_MAX: Final = 5
_LONE_BYTES_MIN: Final = 7
"""Bytes of a record at least, and as many as are looked at before its length is known to be right."""
_NO_DELTAS: Final = bytes(2)

_LAST: Final = bytes(range(128))
_MORE: Final = bytes(range(128, 256))
_ONLY_EVEN: Final = _LAST[::2]
_MORE_EVEN: Final = _MORE[::2]

# How far the next record is, by the first byte of a length that has one byte, and by both of one that has two.
_STEPS: Final = [1 + (byte >> 1) for byte in range(256)]
_STEPS_OF_TWO: Final = [2 + (byte >> 1 & 63) for byte in range(256)]
_STEPS_MORE: Final = [byte << 6 for byte in range(256)]


class KeyColumns(NamedTuple):
    """Of each record of a batch, in their order."""

    deltas: list[int]
    """The offset deltas."""
    keys: list[bytes | None]
    bounds: list[int]
    """Where each begins in the plain records of its batch, and at last where these end."""
    tombstones: list[int]
    """The places of those without a value."""


class _Head(NamedTuple):
    """How a record begins: the bytes of its first numbers."""

    length_bytes: int
    stamp_bytes: int
    delta_bytes: int
    size_bytes: int
    """Of all up to and with the key's length, which has one byte."""


def key_columns(body: bytes, count: int) -> KeyColumns:
    """The `count` records that `body` consists of. Raises as `keyed_records`."""
    if count == 1:
        ((delta, key, has_value, start, end),) = keyed_records(body, 1)
        return KeyColumns([delta], [key], [start, end], [] if has_value else [0])
    found = KeyColumns([], [], [], [])
    at, left, most = 0, count, _RUN_FIRST
    while left >= _RUN_MIN:
        head = _head_at(body, at)
        behind = None if head is None else _take_run(body, at, head, min(most, left), found)
        if behind is None:
            break
        at, left, most = behind, count - len(found.deltas), _RUN_MAX
    for delta, key, has_value, start, _ in keyed_records(body, left, at):
        if not has_value:
            found.tombstones.append(len(found.deltas))
        found.deltas.append(delta)
        found.keys.append(key)
        found.bounds.append(start)
    found.bounds.append(len(body))
    return found


def lone_key(buffer: bytes, start: int, end: int) -> tuple[bytes, bool] | None:
    """Key of the only record between two positions of a buffer, its offset delta zero, and whether it has a value.

    None where the record is not written in the fewest bytes with a key of up to 63, which may be damage: `key_columns`
    says what it is then. In a third of its time, since most producers that wait for each record send batches of one.
    """
    if end - start < _LONE_BYTES_MIN:
        return None
    first = buffer[start]
    at = start + 1
    length = first
    if first >= CONTINUES:
        second = buffer[at]
        at += 1
        length = first & 0x7F | second << 7
        if second >= CONTINUES:
            third = buffer[at]
            at += 1
            length = first & 0x7F | (second & 0x7F) << 7 | third << 14
            if third >= CONTINUES:
                return None
    key_length = buffer[at + 3]
    value_at = at + 4 + (key_length >> 1)
    # Behind the attributes, timestamp and offset are the batch's own, and neither length is negative.
    if (
        length & 1
        or key_length & 1
        or key_length >= CONTINUES
        or at + (length >> 1) != end
        or value_at >= end
        or buffer[at + 1 : at + 3] != _NO_DELTAS
    ):
        return None
    return buffer[at + 4 : value_at], not buffer[value_at] & 1


def _head_at(body: bytes, position: int) -> _Head | None:
    """How the record at `position` begins; None where that does not go into columns."""
    at, sizes = position, [0, 0, 0]
    try:
        for number in range(3):
            start = at
            while body[at] >= CONTINUES:
                at += 1
            at += 1
            sizes[number] = at - start
            at += number == 0  # after the length, the attributes
        if body[at] >= CONTINUES:
            return None
    except IndexError:
        return None
    length_bytes, stamp_bytes, delta_bytes = sizes
    if length_bytes > 2 or stamp_bytes > _STAMP_BYTES_MAX or delta_bytes > 2:
        return None
    return _Head(length_bytes, stamp_bytes, delta_bytes, at + 1 - position)


def _take_run(body: bytes, position: int, head: _Head, most: int, found: KeyColumns) -> int | None:
    """Add the records from `position` on that begin as `head`, at most this many; where the next one begins.

    None, and nothing is added, where they are too few or one is not surely right.
    """
    size = head.size_bytes
    bounds: Sequence[int] = _bounds_of_one_size(body, position, head, most)
    if bounds:
        heads, first, step = body, position, bounds[1] - bounds[0]
    else:
        bounds = _bounds(body, position, size, head.length_bytes, most)
        heads, first, step = b"".join([body[start : start + size] for start in bounds[:-1]]), 0, size
    run = _equally_begun(heads, first, step, head, len(bounds) - 1)
    if run < _RUN_MIN:
        return None
    behind = bounds[run]
    bounds = bounds[:run]
    end = first + run * step
    lengths = heads[first + size - 1 : end : step]
    keys_at = [start + size for start in bounds]
    values_at = [at + (length >> 1) for at, length in zip(keys_at, lengths, strict=True)]
    if any(map(ge, values_at, [*bounds[1:], behind])):
        return None
    place = len(found.deltas)
    found.tombstones.extend([number for number, at in enumerate(values_at, place) if body[at] & 1])
    found.keys.extend([body[at:end] for at, end in zip(keys_at, values_at, strict=True)])
    found.bounds.extend(bounds)
    delta_at = first + size - 1 - head.delta_bytes
    low = heads[delta_at:end:step]
    if head.delta_bytes == 1:
        found.deltas.extend([byte >> 1 for byte in low])
    else:
        high = heads[delta_at + 1 : end : step]
        found.deltas.extend([byte >> 1 & 63 | more << 6 for byte, more in zip(low, high, strict=True)])
    return behind


def _bounds_of_one_size(body: bytes, position: int, head: _Head, most: int) -> Sequence[int]:
    """As `_bounds`, where as many records as there may be have the size of the first; nothing where they have not."""
    step = _STEPS[body[position]]
    if head.length_bytes == 2:
        step = _STEPS_OF_TWO[body[position]] + _STEPS_MORE[body[position + 1]]
    count = min(most, (len(body) - position) // step)
    if count < _RUN_MIN or step <= head.size_bytes:
        return ()
    end = position + count * step
    for at in range(position, position + head.length_bytes):
        if body[at:end:step] != body[at : at + 1] * count:
            return ()
    return range(position, end + 1, step)


def _bounds(body: bytes, position: int, size_bytes: int, length_bytes: int, most: int) -> list[int]:
    """Where records begin whose lengths have this many bytes, and at last where the last one ends.

    The lengths are not checked, and where one is wrong, what follows is, too. But `size_bytes` follow each beginning.
    """
    at, bounds = position, []
    try:
        if length_bytes == 1:
            steps = _STEPS
            for _ in repeat(None, most):
                bounds.append(at)
                at += steps[body[at]]
        else:
            steps, steps_more = _STEPS_OF_TWO, _STEPS_MORE
            for _ in repeat(None, most):
                bounds.append(at)
                at += steps[body[at]] + steps_more[body[at + 1]]
    except IndexError:
        pass
    else:
        bounds.append(at)
    while len(bounds) > 1 and (bounds[-1] > len(body) or bounds[-2] + size_bytes > len(body)):
        bounds.pop()
    return bounds


def _equally_begun(heads: bytes, first: int, step: int, head: _Head, count: int) -> int:
    """How many records begin as `head`; their beginnings lie in `heads` from `first` on, in equal steps."""
    stamp_at, delta_at = head.length_bytes + 1, head.size_bytes - 1 - head.delta_bytes
    wanted = [(_ONLY_EVEN, 0)] if head.length_bytes == 1 else [(_MORE_EVEN, 0), (_LAST, 1)]
    wanted += [(_MORE, at) for at in range(stamp_at, delta_at - 1)]
    wanted.append((_LAST, delta_at - 1))
    wanted += [(_ONLY_EVEN, delta_at)] if head.delta_bytes == 1 else [(_MORE_EVEN, delta_at), (_LAST, delta_at + 1)]
    wanted.append((_ONLY_EVEN, head.size_bytes - 1))
    run = count
    for allowed, at in wanted:
        column = heads[first + at : first + run * step : step]
        others = column.lstrip(allowed)
        if others:
            run = len(column) - len(others)
    return run
