"""The latest record of each key in the newest part of a partition, in memory of a fixed bound.

Pure. The part is cut into generations, each a dictionary; the oldest one is forgotten where there is no room, and the
window begins behind it from then on.
"""

from hashlib import blake2b
from typing import Final

from logboom.base.ids import Offset
from logboom.broker.partition.conditions import Latest

_SHORT_MAX_BYTES: Final = 32
_DIGEST_BYTES: Final = _SHORT_MAX_BYTES + 1
"""Longer than any key that is kept as it is, so that none equals a digest; and nobody can make two keys with one."""
_ENTRY_BYTES: Final = 160
"""Of a key beside its bytes, about: two objects and their slot in a dictionary that is not always full."""
_GENERATIONS: Final = 8
"""In so many parts the memory is divided, of which one is forgotten at a time."""


class KeyTable:
    """The latest record of each key of some records, given in the order of their offsets."""

    __slots__ = ("_entries", "size_bytes")

    def __init__(self) -> None:
        self._entries: dict[bytes, int] = {}
        self.size_bytes = 0
        """Of memory, about."""

    def note(self, key: bytes, offset: int, has_value: bool) -> None:
        """There is a record, above all others so far."""
        if len(key) > _SHORT_MAX_BYTES:
            key = _digest(key)
        entries = self._entries
        count = len(entries)
        entries[key] = offset << 1 | has_value
        if len(entries) > count:
            self.size_bytes += _ENTRY_BYTES + len(key)

    def latest(self, key: bytes) -> Latest | None:
        """The latest record of a key, if there is one in here."""
        found = self._entries.get(_digest(key) if len(key) > _SHORT_MAX_BYTES else key)
        return None if found is None else Latest(Offset(found >> 1), bool(found & 1))


def _digest(key: bytes) -> bytes:
    return blake2b(key, digest_size=_DIGEST_BYTES).digest()


class KeyWindow:
    """See the module. Knows every record from `start` up to below `end`."""

    __slots__ = ("_generations", "_limit_bytes", "end")

    def __init__(self, start: Offset, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._generations = [(start, KeyTable())]
        """Where each begins, the oldest first."""
        self.end = start

    @property
    def start(self) -> Offset:
        """Where what is known begins."""
        return self._generations[0][0]

    @property
    def size_bytes(self) -> int:
        """Of memory, about."""
        return sum(table.size_bytes for _, table in self._generations)

    def note(self, key: bytes, offset: int, has_value: bool) -> None:
        """There is a record behind all others."""
        self._generations[-1][1].note(key, offset, has_value)

    def latest(self, key: bytes) -> Latest | None:
        """The latest record of a key, None where the window has none."""
        for _, table in reversed(self._generations):
            found = table.latest(key)
            if found is not None:
                return found
        return None

    def extend(self, end: Offset) -> bool:
        """All records below `end` were noted; whether a generation is full, so that `trim` may find something."""
        self.end = end
        if self._generations[-1][1].size_bytes <= self._limit_bytes // _GENERATIONS:
            return False
        self._generations.append((end, KeyTable()))
        return True

    def begin_at(self, start: Offset, table: KeyTable) -> None:
        """The records from `start` up to where the window began are these."""
        self._generations.insert(0, (start, table))

    def trim(self) -> None:
        """Forget the oldest records where there is no room for them."""
        while len(self._generations) > 1 and self.size_bytes > self._limit_bytes:
            del self._generations[0]
