"""The newest offset of each key in a part of a log, in memory of a fixed bound (Kafka's SkimpyOffsetMap).

Keys are known by a digest of 128 bits alone. Two keys with the same digest would cost the older one its record, so the
digest is a cryptographic one: nobody can make such keys, and they do not happen by chance.
"""

from array import array
from hashlib import blake2b
from struct import Struct
from typing import Final

from logboom.base.ids import Offset

_HALVES: Final = Struct("<QQ")
_FIRST_SLOTS: Final = 1 << 12
_MIN_SLOTS: Final = 8
_SLOT_BYTES: Final = 24
_GROWTH: Final = 4
_LOAD_MAX: Final = 0.75
"""Share of the slots in use, at most. Searches then look at two or three slots on average."""
_CHUNK_BITS: Final = 16
_CHUNK_BYTES: Final = (1 << _CHUNK_BITS) // 8


class KeyMap:
    """An open-addressing table with linear probing, which grows up to its bound."""

    __slots__ = ("_count", "_firsts", "_max_slots", "_offsets", "_room", "_seconds", "_slots")

    def __init__(self, max_bytes: int) -> None:
        """At most `max_bytes` of memory, the moment included in which a smaller table is copied into the last one."""
        self._max_slots = max(max_bytes * _GROWTH // (_GROWTH + 1) // _SLOT_BYTES, _MIN_SLOTS)
        self._count = 0
        self._allocate(min(_FIRST_SLOTS, self._max_slots))

    def __len__(self) -> int:
        return self._count

    def _allocate(self, slots: int) -> None:
        # Both halves of each digest, and one more than the offset: zero is a slot not in use.
        self._firsts: array[int] = array("Q", (0,)) * slots
        self._seconds: array[int] = array("Q", (0,)) * slots
        self._offsets: array[int] = array("q", (0,)) * slots
        self._slots = slots
        self._room = int(slots * _LOAD_MAX)

    def put(self, key: bytes, offset: Offset) -> int | None:
        """Note that `key` is at `offset`, above all offsets before; the offset before, -1 for a new key.

        None, and nothing is noted, where a new key has no room.
        """
        first, second = _HALVES.unpack(blake2b(key, digest_size=_HALVES.size).digest())
        firsts, offsets, slots = self._firsts, self._offsets, self._slots
        slot: int = first % slots
        while found := offsets[slot]:
            if firsts[slot] == first and self._seconds[slot] == second:
                offsets[slot] = offset + 1
                return found - 1
            slot = slot + 1 if slot + 1 < slots else 0
        if self._count >= self._room:
            if slots == self._max_slots:
                return None
            self._grow()
            slot = self._free_slot(first)
        self._firsts[slot], self._seconds[slot], self._offsets[slot] = first, second, offset + 1
        self._count += 1
        return -1

    def __contains__(self, key: bytes) -> bool:
        first, second = _HALVES.unpack(blake2b(key, digest_size=_HALVES.size).digest())
        firsts, offsets, slots = self._firsts, self._offsets, self._slots
        slot: int = first % slots
        while offsets[slot]:
            if firsts[slot] == first and self._seconds[slot] == second:
                return True
            slot = slot + 1 if slot + 1 < slots else 0
        return False

    def _free_slot(self, first: int) -> int:
        offsets, slots = self._offsets, self._slots
        slot: int = first % slots
        while offsets[slot]:
            slot = slot + 1 if slot + 1 < slots else 0
        return slot

    def _grow(self) -> None:
        old = zip(self._firsts, self._seconds, self._offsets, strict=True)
        slots = self._slots * _GROWTH
        # The last table takes all that is left, rather than a size that a further step would not fit behind.
        self._allocate(slots if slots * _GROWTH <= self._max_slots else self._max_slots)
        for first, second, offset in old:
            if offset:
                slot = self._free_slot(first)
                self._firsts[slot], self._seconds[slot], self._offsets[slot] = first, second, offset


class OffsetSet:
    """A set of offsets as bits, in chunks that are made when an offset in them is added."""

    __slots__ = ("_chunks",)

    def __init__(self) -> None:
        self._chunks: dict[int, bytearray] = {}

    @property
    def size_bytes(self) -> int:
        return len(self._chunks) * _CHUNK_BYTES

    def add(self, offset: int) -> None:
        number = offset >> _CHUNK_BITS
        chunk = self._chunks.get(number)
        if chunk is None:
            chunk = self._chunks[number] = bytearray(_CHUNK_BYTES)
        within = offset & ((1 << _CHUNK_BITS) - 1)
        chunk[within >> 3] |= 1 << (within & 7)

    def __contains__(self, offset: int) -> bool:
        chunk = self._chunks.get(offset >> _CHUNK_BITS)
        within = offset & ((1 << _CHUNK_BITS) - 1)
        return chunk is not None and bool(chunk[within >> 3] >> (within & 7) & 1)

    def any_in(self, start: int, end: int) -> bool:
        """Whether any offset from `start` up to below `end` is in the set."""
        for number in range(start >> _CHUNK_BITS, (end - 1 >> _CHUNK_BITS) + 1):
            chunk = self._chunks.get(number)
            if chunk is None:
                continue
            base = number << _CHUNK_BITS
            first, last = max(start - base, 0), min(end - base, 1 << _CHUNK_BITS) - 1
            bits = int.from_bytes(chunk[first >> 3 : (last >> 3) + 1], "little") >> (first & 7)
            if bits & ((1 << (last - first + 1)) - 1):
                return True
        return False
