"""Checking many records at once: those of one shape, a column of bytes at a time, by comparing slices.

A record is a row of variable-length numbers (lengths and deltas) with free bytes between them. Producers mostly send
records that differ in those free bytes alone. Records are of one shape where

- the numbers stand at the same places: counted from the record's start up to its value, and from its end back for its
  headers, since it is the value whose size varies;
- the numbers have the same values, but for the lengths of the whole record and of its value.

If the first record of a run is right, the others of its shape are right where their numbers equal its numbers, and
that is a comparison of slices: byte `place` of every record is `data[place::step]`, and all of them are equal where
that is the first one repeated. Two cases are told apart: records of one size, which lie in the body at equal steps
(`run_of_one_size`), and records of any size, which are first laid side by side without their keys and values
(`behind_run`).

Nothing is refused here. The answer is either that a run is certainly right, or nothing: then `walk` looks at each
record, and only there an error is found and named.
"""

from itertools import repeat
from typing import Final, NamedTuple

from logboom.records.varint import varint

DELTAS: Final = tuple(varint(delta) for delta in range(8192))
"""The offset deltas as they must stand in the bytes, one after another."""

ONE_BYTE_DELTAS: Final = 64
"""Deltas below this take one byte, the others of `DELTAS` two."""

TAIL_MAX_BYTES: Final = 1024
"""Longer headers would cost more to lay side by side than to walk."""

_FIRST_BYTES: Final = bytes(delta[0] for delta in DELTAS)
_SECOND_BYTES: Final = bytes(delta[-1] for delta in DELTAS)
_FROM_128: Final = bytes(range(128, 256))
_EVEN_FROM_128: Final = bytes(range(128, 256, 2))

# Of a number of two bytes, by its first byte.
_STEPS: Final = [2 + (byte >> 1 & 63) for byte in range(256)]
_STEPS_MORE: Final = [byte << 6 for byte in range(256)]
_DOUBLED: Final = bytes(byte << 1 & 255 for byte in range(256))
_HAS_SECOND: Final = bytes(255 * (byte > 127) for byte in range(256))
_SECOND_COUNTS_FOR: Final = bytes(4 * (byte > 127) for byte in range(256))


class Shape(NamedTuple):
    """Where the numbers of a record stand."""

    size_bytes: int
    """Of its length, the first number."""
    step: int
    """Bytes of the whole record."""
    stamp_bytes: int
    """Of the timestamp delta, after the length and the attributes."""
    key_at: int
    """Where the key's length begins, counted from the record's start, and where it ends."""
    key_end: int
    value_at: int
    """Where the value's length begins."""
    value_end: int
    tail: int
    """Bytes of its headers, their count included."""
    headers: int
    """How many headers it has."""
    places: tuple[int, ...]
    """Where the numbers of the headers stand, counted from their start."""
    may_be_condition: bool
    """Whether a header's name is as long as that of a condition (`conditions`)."""
    fixed: tuple[int, ...] = ()
    """Where all numbers stand but the two deltas, counted from the record's start, once that was asked for."""

    def is_like(self, other: "Shape") -> bool:
        """Whether the two are of one shape, the lengths of record and value apart."""
        return other._replace(step=self.step, value_end=self.value_end, fixed=self.fixed) == self

    def with_fixed(self) -> "Shape":
        """Itself, ready for `run_of_one_size`."""
        if self.fixed:
            return self
        fixed = (
            *range(self.size_bytes),
            *range(self.key_at, self.key_end),
            *range(self.value_at, self.value_end),
            *(self.step - self.tail + place for place in self.places),
        )
        return self._replace(fixed=fixed)


def run_of_one_size(body: bytes, position: int, shape: Shape, delta: int, most: int, least: int) -> int:
    """How many records from `position` on are right because each has the shape and size of the first; 0 below `least`.

    Of at most `most`, whose offset deltas from `delta` on take equally many bytes. The shape is one `with_fixed`.
    """
    step = shape.step
    run = min(most, (len(body) - position) // step)
    # Where a run of `run` fails, somewhere in it lies a record that is not alike; half of it is tried next. At most
    # twice the bytes of the longest try are compared in all.
    while run >= least:
        if _agree(body, run, step, position, shape.fixed) and _counting(body, run, step, position, shape, delta):
            return run
        run //= 2
    return 0


def behind_run(body: bytes, position: int, shape: Shape, delta: int, run: int) -> int:
    """The position after `run` records from `position` on, of any size and the first one's shape; 0 if they are not.

    Their offset deltas from `delta` on take equally many bytes, and `shape` is of a record whose length has two bytes.
    """
    # Of each record two stretches are kept: from its start to after its value's length, and its headers at its end.
    # The free bytes of the value between them are left out, so that all that is kept is equally long, `stride`.
    tail, behind = shape.tail, shape.value_at + 2
    stride = tail + behind
    steps, steps_more = _STEPS, _STEPS_MORE
    at = position
    # Hop from record to record by their lengths. They are not checked yet: a wrong one leads to a wrong stretch, which
    # the comparisons below refuse, or out of the body.
    pieces = [body[at : at + behind]]
    try:
        for _ in repeat(None, run - 1):
            at += steps[body[at]] + steps_more[body[at + 1]]
            pieces.append(body[at - tail : at + behind])  # the end of a record, and how the next one begins
        at += steps[body[at]] + steps_more[body[at + 1]]
    except IndexError:
        return 0
    pieces.append(body[at - tail : at])
    joined = b"".join(pieces)
    if len(joined) != run * stride:
        return 0  # a slice was shorter than asked for: a record reaches past the end of the body
    fixed = (*range(shape.key_at, shape.key_end), *(behind + place for place in shape.places))
    if (
        _agree(joined, run, stride, 0, fixed)
        and _counting(joined, run, stride, 0, shape, delta)
        and _values_fill(joined, run, stride, shape)
    ):
        return at
    return 0


def _agree(data: bytes, run: int, stride: int, start: int, places: tuple[int, ...]) -> bool:
    """Whether each of the bytes at `places` after `start` is the same in all records of the run."""
    end = start + (run - 1) * stride + 1
    for place in places:
        if data[start + place : end + place : stride] != data[start + place : start + place + 1] * run:
            return False
    return True


def _counting(data: bytes, run: int, stride: int, start: int, shape: Shape, delta: int) -> bool:
    """Whether the timestamp deltas have as many bytes each, and the offset deltas after them count up by one."""
    reach = (run - 1) * stride + 1
    at = start + shape.size_bytes + 1
    end = at + shape.stamp_bytes
    # The timestamp delta may have any value, but must end where that of the first record does: all its bytes but the
    # last have the high bit set (they are all deleted here), the last has not.
    for more in range(at, end - 1):
        if data[more : more + reach : stride].translate(None, _FROM_128):
            return False
    if not data[end - 1 : end - 1 + reach : stride].isascii():
        return False
    if data[end : end + reach : stride] != _FIRST_BYTES[delta : delta + run]:
        return False
    if delta < ONE_BYTE_DELTAS:
        return True
    return data[end + 1 : end + 1 + reach : stride] == _SECOND_BYTES[delta : delta + run]


def _values_fill(data: bytes, run: int, stride: int, shape: Shape) -> bool:
    """Whether each value, of a length of one or two bytes, ends where the headers of its record begin.

    All records at once, in numbers of 16 bits for each: four times a record's length is four times that of its value
    and of all else. No sum is above 65,534, so none runs over into the next, and equal sums are equal one by one.
    """
    reach = (run - 1) * stride + 1
    first, second = data[0:reach:stride], data[1 : 1 + reach : stride]
    value_at = shape.value_at
    value_first = data[value_at : value_at + reach : stride]
    value_second = data[value_at + 1 : value_at + 1 + reach : stride]
    # What stands behind a length of one byte is not a part of it.
    mask = int.from_bytes(value_first.translate(_HAS_SECOND), "little")
    value_second = (int.from_bytes(value_second, "little") & mask).to_bytes(run, "little")
    if first.translate(None, _EVEN_FROM_128) or not second.isascii() or not value_second.isascii():
        return False
    others = value_at - 2 + 1 + shape.tail  # the record's length counts neither itself nor more than this and the value
    return _lanes(first.translate(_DOUBLED), second) == (
        _lanes(value_first.translate(_DOUBLED), value_second)
        + _lanes(value_first.translate(_SECOND_COUNTS_FOR), bytes(run))
        + int.from_bytes((4 * others).to_bytes(2, "little") * run, "little")
    )


def _lanes(low: bytes, high: bytes) -> int:
    """One number whose 16-bit digits are made of these bytes, pair by pair."""
    pairs = bytearray(2 * len(low))
    pairs[::2], pairs[1::2] = low, high
    return int.from_bytes(pairs, "little")
