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
_SLOT_BYTES: Final = 20
_LOAD_MAX: Final = 0.82
"""Share of the slots in use, at most. Searches then look at three slots on average, at sixteen for a new key."""
_FIRST_SLOTS: Final = 64
_MIN_SLOTS: Final = 8
_TABLE_SLOTS_MIN: Final = 4096
_TABLE_BITS_MAX: Final = 8
_PLACE_BITS: Final = (1 << 30) - 1
"""So much of a digest says where to look: the interpreter divides numbers of up to 30 bits three times as fast."""
_OFFSET_MAX: Final = (1 << 32) - 1
_CHUNK_BITS: Final = 16
_CHUNK_BYTES: Final = (1 << _CHUNK_BITS) // 8


class _Table:
    """An open-addressing table with linear probing, which grows up to its bound."""

    __slots__ = ("count", "firsts", "max_slots", "offsets", "room", "seconds", "slots")

    def __init__(self, max_slots: int) -> None:
        self.max_slots = max_slots
        self.count = 0
        self.allocate(min(_FIRST_SLOTS, max_slots))

    def allocate(self, slots: int) -> None:
        # Both halves of each digest, and one more than the offset from the map's start: zero is a slot not in use.
        self.firsts: array[int] = array("Q", (0,)) * slots
        self.seconds: array[int] = array("Q", (0,)) * slots
        self.offsets: array[int] = array("I", (0,)) * slots
        self.slots = slots
        self.room = int(slots * _LOAD_MAX)

    def free_slot(self, second: int) -> int:
        offsets, slots = self.offsets, self.slots
        slot: int = (second & _PLACE_BITS) % slots
        while offsets[slot]:
            slot = slot + 1 if slot + 1 < slots else 0
        return slot

    def grow(self) -> None:
        old = zip(self.firsts, self.seconds, self.offsets, strict=True)
        # The last step takes all that is left, from a table of at most half the size.
        self.allocate(2 * self.slots if 4 * self.slots <= self.max_slots else self.max_slots)
        for first, second, offset in old:
            if offset:
                slot = self.free_slot(second)
                self.firsts[slot], self.seconds[slot], self.offsets[slot] = first, second, offset


class KeyMap:
    """Up to 256 tables, so that the copy that one needs to grow is small beside them all: 26 bytes a key in use."""

    __slots__ = ("_mask", "_start", "_tables")

    def __init__(self, max_bytes: int, start: Offset) -> None:
        """At most `max_bytes` of memory, the moment included in which a table grows. No offset is below `start`."""
        slots = max_bytes // _SLOT_BYTES
        bits = min(max((slots // _TABLE_SLOTS_MIN).bit_length() - 1, 0), _TABLE_BITS_MAX)
        self._mask = (1 << bits) - 1
        self._start = start
        max_slots = max(2 * slots // (2 * (1 << bits) + 1), _MIN_SLOTS)
        self._tables = [_Table(max_slots) for _ in range(1 << bits)]

    def __len__(self) -> int:
        return sum(table.count for table in self._tables)

    def put(self, key: bytes, offset: Offset) -> int | None:
        """Note that `key` is at `offset`, above all offsets before; the offset before, -1 for a new key.

        None, and nothing is noted, where a new key has no room, or the offset is 2**32 above the start.
        """
        first, second = _HALVES.unpack(blake2b(key, digest_size=_HALVES.size).digest())
        table = self._tables[first & self._mask]
        firsts, offsets, slots = table.firsts, table.offsets, table.slots
        noted, start = offset - self._start + 1, self._start
        if noted > _OFFSET_MAX:
            return None
        slot: int = (second & _PLACE_BITS) % slots
        while found := offsets[slot]:
            if firsts[slot] == first and table.seconds[slot] == second:
                offsets[slot] = noted
                return int(start + found - 1)
            slot = slot + 1 if slot + 1 < slots else 0
        if table.count >= table.room:
            if slots == table.max_slots:
                return None
            table.grow()
            slot = table.free_slot(second)
        table.firsts[slot], table.seconds[slot], table.offsets[slot] = first, second, noted
        table.count += 1
        return -1

    def __contains__(self, key: bytes) -> bool:
        first, second = _HALVES.unpack(blake2b(key, digest_size=_HALVES.size).digest())
        table = self._tables[first & self._mask]
        firsts, offsets, slots = table.firsts, table.offsets, table.slots
        slot: int = (second & _PLACE_BITS) % slots
        while offsets[slot]:
            if firsts[slot] == first and table.seconds[slot] == second:
                return True
            slot = slot + 1 if slot + 1 < slots else 0
        return False


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

    def count_in(self, start: int, end: int) -> int:
        """How many offsets from `start` up to below `end` are in the set."""
        if end == start + 1:
            return start in self
        count = 0
        for number in range(start >> _CHUNK_BITS, (end - 1 >> _CHUNK_BITS) + 1):
            chunk = self._chunks.get(number)
            if chunk is None:
                continue
            base = number << _CHUNK_BITS
            first, last = max(start - base, 0), min(end - base, 1 << _CHUNK_BITS) - 1
            bits = int.from_bytes(chunk[first >> 3 : (last >> 3) + 1], "little") >> (first & 7)
            count += (bits & ((1 << (last - first + 1)) - 1)).bit_count()
        return count
