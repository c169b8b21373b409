"""The ids of the newest messages of a partition, by which a message that is sent again is recognised.

Pure. The window is cut into generations, each a dictionary; the oldest one is forgotten once all of it is older than
the window, or lies behind more records than the window may have. So an id is known for the whole window and an eighth
of it longer at most. Memory is bounded by the number of records. Where that is too much, generations are taken away
sooner (`shrink`), and ids are known for less than the window.
"""

from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Final

from logboom.base.ids import Offset

_SHORT_MAX_BYTES: Final = 40
"""A UUID as text has 36."""
_DIGEST_BYTES: Final = _SHORT_MAX_BYTES + 1
"""Longer than any id that is kept as it is, so that none equals a digest; and nobody can make two ids with one."""
_GENERATIONS: Final = 8
_ENTRY_BYTES: Final = 160
"""Of an id beside its bytes, about: two objects and their slot in a dictionary that is not always full."""


@dataclass(slots=True)
class _Generation:
    start: int
    begun_s: float
    newest_s: float
    size_bytes: int = 0
    ids: dict[bytes, int] = field(default_factory=dict)


class IdWindow:
    """See the module. Knows the ids of all records up to below `end` that are not too old."""

    __slots__ = ("_generation_bytes_max", "_generations", "_last", "_records_max", "_window_s", "end", "size_bytes")

    def __init__(self, end: Offset, window_s: float, records_max: int, generation_bytes_max: int) -> None:
        """Remembers ids for `window_s` seconds, of the newest `records_max` records. Nothing is known yet.
        `generation_bytes_max`: about how much `shrink` takes away at most."""
        self.end = end
        self.size_bytes = 0
        """Of memory, about."""
        self._generation_bytes_max = generation_bytes_max
        self._window_s = window_s
        self._records_max = records_max
        self._generations: list[_Generation] = []
        self._last: tuple[int, bytes] | None = None

    def __len__(self) -> int:
        return sum(len(one.ids) for one in self._generations)

    def note(self, message_id: bytes, offset: int, at_s: float) -> None:
        """The record at `offset`, above all others so far, has this id; it was appended at `at_s`."""
        self._last = offset, message_id
        generations = self._generations
        newest = generations[-1] if generations else None
        if (
            newest is None
            or at_s - newest.begun_s > self._window_s / _GENERATIONS
            or offset - newest.start > self._records_max / _GENERATIONS
            or newest.size_bytes >= self._generation_bytes_max
        ):
            newest = _Generation(offset, at_s, at_s)
            generations.append(newest)
            self._forget_behind(offset - self._records_max)
        newest.newest_s = max(newest.newest_s, at_s)
        short, ids = _short(message_id), newest.ids
        count = len(ids)
        ids[short] = offset
        if len(ids) > count:
            size_bytes = _ENTRY_BYTES + len(short)
            newest.size_bytes += size_bytes
            self.size_bytes += size_bytes

    def extend(self, end: Offset, now_s: float) -> None:
        """All ids below `end` were noted: forget what is too old by now."""
        self.end = end
        self.expire(now_s)

    def expire(self, now_s: float) -> None:
        """Forget what is too old."""
        oldest_s = now_s - self._window_s
        while self._generations and self._generations[0].newest_s < oldest_s:
            self._forget_oldest()
        self._forget_behind(self.end - self._records_max)

    def _forget_behind(self, first: int) -> None:
        generations = self._generations
        while len(generations) > 1 and generations[1].start <= first:
            self._forget_oldest()

    def _forget_oldest(self) -> int:
        oldest = self._generations.pop(0)
        self.size_bytes -= oldest.size_bytes
        return len(oldest.ids)

    def shrink(self) -> int:
        """Forget the oldest generation before its time, for lack of memory; how many ids it had."""
        return self._forget_oldest() if self._generations else 0

    def find(self, message_id: bytes) -> Offset | None:
        """Where the message of this id is, if it is known."""
        short = _short(message_id)
        for one in reversed(self._generations):
            offset = one.ids.get(short)
            if offset is not None:
                return Offset(offset) if offset >= self.end - self._records_max else None
        return None

    @property
    def last_id(self) -> bytes | None:
        """The id of the very last record, None where that has none."""
        return self._last[1] if self._last is not None and self._last[0] == self.end - 1 else None


def _short(message_id: bytes) -> bytes:
    if len(message_id) <= _SHORT_MAX_BYTES:
        return message_id
    return blake2b(message_id, digest_size=_DIGEST_BYTES).digest()
