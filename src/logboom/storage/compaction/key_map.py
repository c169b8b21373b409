"""The newest offset of each key in a part of a log, in memory of a fixed bound (Kafka's SkimpyOffsetMap).

As long as the keys are few they are in a dictionary, which takes eight times the memory and a sixth of the time. When
they are too many for it, tables of their digests take its place, for good.

In the tables keys are known by a digest of 128 bits alone. Two keys with the same digest would cost the older one its
record, so the digest is a cryptographic one: nobody can make such keys, and they do not happen by chance.
"""

from array import array
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from itertools import islice
from struct import Struct
from typing import Final, cast

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
"""The bits of a digest that give the slot: the interpreter divides numbers of up to 30 bits three times as fast."""
_OFFSET_MAX: Final = (1 << 32) - 1
_FEW_KEY_BYTES: Final = 224
"""What a key takes in the dictionary at most beside its own bytes: two objects, and four entries, since the dictionary
has up to three times as many as it needs, and copies those in use when it grows."""
_FEW_SHARE: Final = 3, 4
"""The part of the memory that is for the dictionary. A tenth more is needed for the tables that take its place."""
_AT_ONCE: Final = 1024
_CHUNK_BITS: Final = 16
_CHUNK_BYTES: Final = (1 << _CHUNK_BITS) // 8
_WITHIN_CHUNK: Final = (1 << _CHUNK_BITS) - 1


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

    def add(self, first: int, second: int, offset: int, slot: int) -> bool:
        """Take a new key, whose place is `slot` unless the table grows; False where there is no room."""
        if self.count >= self.room:
            if self.slots == self.max_slots:
                return False
            self.grow()
            slot = self.free_slot(second)
        self.firsts[slot], self.seconds[slot], self.offsets[slot] = first, second, offset
        self.count += 1
        return True

    def grow(self) -> None:
        old = zip(self.firsts, self.seconds, self.offsets, strict=True)
        # The last step takes all that is left, from a table of at most half the size.
        self.allocate(2 * self.slots if 4 * self.slots <= self.max_slots else self.max_slots)
        for first, second, offset in old:
            if offset:
                slot = self.free_slot(second)
                self.firsts[slot], self.seconds[slot], self.offsets[slot] = first, second, offset


class _KeyTables:
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

    def put(self, keys: Sequence[bytes], offsets: Sequence[int]) -> tuple[int, list[int]]:
        """As `KeyMap.put`; the offsets may come in any order."""
        tables, mask, start, place_bits = self._tables, self._mask, self._start, _PLACE_BITS
        before: list[int] = []
        count = 0
        for (first, second), offset in zip(_halves(keys), offsets, strict=True):
            table = tables[first & mask]
            firsts, noted_at, slots = table.firsts, table.offsets, table.slots
            noted = offset - start + 1
            if noted > _OFFSET_MAX:
                break
            slot = (second & place_bits) % slots
            while found := noted_at[slot]:
                if firsts[slot] == first and table.seconds[slot] == second:
                    noted_at[slot] = noted
                    before.append(start + found - 1)
                    break
                slot = slot + 1 if slot + 1 < slots else 0
            else:
                if not table.add(first, second, noted, slot):
                    break
            count += 1
        return count, before

    def known(self, keys: Sequence[bytes]) -> list[bool]:
        """As `KeyMap.known`."""
        tables, mask, place_bits = self._tables, self._mask, _PLACE_BITS
        answers: list[bool] = []
        for first, second in _halves(keys):
            table = tables[first & mask]
            firsts, noted_at, slots = table.firsts, table.offsets, table.slots
            slot = (second & place_bits) % slots
            while (is_used := noted_at[slot] > 0) and not (firsts[slot] == first and table.seconds[slot] == second):
                slot = slot + 1 if slot + 1 < slots else 0
            answers.append(is_used)
        return answers


def _halves(keys: Sequence[bytes]) -> Iterator[tuple[int, int]]:
    """Both halves of the digest of each key."""
    digests = [blake2b(key, digest_size=_HALVES.size).digest() for key in keys]
    return cast("Iterator[tuple[int, int]]", _HALVES.iter_unpack(b"".join(digests)))


class KeyMap:
    """See the module. No offset is below its start."""

    __slots__ = ("_few", "_few_bytes", "_few_bytes_max", "_start", "_tables")

    def __init__(self, max_bytes: int, start: Offset) -> None:
        """At most `max_bytes` of memory, the moments included in which a table grows, or tables are made."""
        self._start = start
        self._tables = _KeyTables(max_bytes, start)
        self._few: dict[bytes, int] | None = {}
        self._few_bytes = 0
        self._few_bytes_max = max_bytes // _FEW_SHARE[1] * _FEW_SHARE[0]

    def __len__(self) -> int:
        return len(self._tables if self._few is None else self._few)

    def put(self, keys: Sequence[bytes], offsets: Sequence[int]) -> tuple[int, list[int]]:
        """Record the offset of each of `keys`; offsets rise, and are above all offsets before.

        Returns how many were recorded, and the previous offsets of these keys where known. It stops before the first
        new key for which there is no room, or at an offset 2**32 above the start.
        """
        if self._few is not None and keys:
            most_bytes = self._few_bytes + sum(map(len, keys)) + _FEW_KEY_BYTES * len(keys)
            if most_bytes <= self._few_bytes_max and offsets[-1] - self._start < _OFFSET_MAX:
                return len(keys), self._put_few(self._few, keys, offsets)
            self._make_tables(self._few)
        return self._tables.put(keys, offsets)

    def _put_few(self, few: dict[bytes, int], keys: Sequence[bytes], offsets: Sequence[int]) -> list[int]:
        if len(set(keys)) < len(keys):
            before: list[int | None] = []
            for key, offset in zip(keys, offsets, strict=True):
                before.append(few.get(key))
                few[key] = offset
        else:
            before = list(map(few.get, keys))
            few.update(zip(keys, offsets, strict=True))
        if None not in before:
            return cast("list[int]", before)
        new = [len(key) for key, offset in zip(keys, before, strict=True) if offset is None]
        self._few_bytes += sum(new) + _FEW_KEY_BYTES * len(new)
        return [offset for offset in before if offset is not None]

    def _make_tables(self, few: dict[bytes, int]) -> None:
        items = iter(few.items())
        while part := list(islice(items, _AT_ONCE)):
            count, _ = self._tables.put([key for key, _ in part], [offset for _, offset in part])
            assert count == len(part), "a key takes less room in the tables"
        self._few = None

    def known(self, keys: Sequence[bytes]) -> list[bool]:
        """For each key, whether it is in the map."""
        return self._tables.known(keys) if self._few is None else list(map(self._few.__contains__, keys))


class OffsetSet:
    """A set of offsets as bits, in chunks that are made when an offset in them is added."""

    __slots__ = ("_chunks",)

    def __init__(self) -> None:
        self._chunks: dict[int, bytearray] = {}

    @property
    def size_bytes(self) -> int:
        return len(self._chunks) * _CHUNK_BYTES

    def add(self, offsets: Iterable[int]) -> None:
        chunks = self._chunks
        for offset in offsets:
            number = offset >> _CHUNK_BITS
            chunk = chunks.get(number)
            if chunk is None:
                chunk = chunks[number] = bytearray(_CHUNK_BYTES)
            within = offset & _WITHIN_CHUNK
            chunk[within >> 3] |= 1 << (within & 7)

    def __contains__(self, offset: int) -> bool:
        chunk = self._chunks.get(offset >> _CHUNK_BITS)
        within = offset & _WITHIN_CHUNK
        return chunk is not None and bool(chunk[within >> 3] >> (within & 7) & 1)

    def holds(self, offsets: Sequence[int]) -> list[bool]:
        """Of each offset whether it is in the set; quickest where they rise."""
        chunks, number, chunk = self._chunks, -1, None
        answers: list[bool] = []
        for offset in offsets:
            if offset >> _CHUNK_BITS != number:
                number = offset >> _CHUNK_BITS
                chunk = chunks.get(number)
            within = offset & _WITHIN_CHUNK
            answers.append(chunk is not None and bool(chunk[within >> 3] >> (within & 7) & 1))
        return answers

    def count_in(self, start: int, end: int) -> int:
        """How many offsets from `start` up to below `end` are in the set."""
        if end == start + 1:
            return start in self
        return self.bits_in(start, end).bit_count()

    def bits_in(self, start: int, end: int) -> int:
        """The offsets from `start` up to below `end`, the lowest bit the first."""
        found = 0
        for number in range(start >> _CHUNK_BITS, (end - 1 >> _CHUNK_BITS) + 1):
            chunk = self._chunks.get(number)
            if chunk is None:
                continue
            base = number << _CHUNK_BITS
            first, last = max(start - base, 0), min(end - base, 1 << _CHUNK_BITS) - 1
            bits = int.from_bytes(chunk[first >> 3 : (last >> 3) + 1], "little") >> (first & 7)
            found |= (bits & ((1 << (last - first + 1)) - 1)) << base + first - start
        return found
