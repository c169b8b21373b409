"""What happened in a run, as one hash and as the last lines before an end.

Every step of a simulation is recorded in the order in which it happened: callbacks of event loops, operations of disks,
bytes that arrive on connections, lines that brokers log. Two runs of one seed have the same digest, or something in the
code depends on more than the seed. `watch` then shows both runs line by line.
"""

import hashlib
import marshal
from collections import Counter, deque
from collections.abc import Callable
from itertools import chain
from typing import Final
from zlib import crc32

from logboom.base.ports import Bytes

_LAST_LINES: Final = 40
_HASHED_TOGETHER: Final = 4_096
_BY_VALUE: Final = 2
"""The version of marshal's format in which equal values have equal bytes: later ones write what is the same object
once."""

_Entry = tuple[float, str, str]
"""When, what kind of thing, and what."""


class Trace:
    """The record of one run. Life: that of the run."""

    def __init__(self, watch: Callable[[str], None] | None = None) -> None:
        """`watch` is called with every line."""
        self._hash = hashlib.blake2b(digest_size=16)
        self._watch = watch
        self._entries: list[_Entry] = []
        """What was recorded and is not hashed yet: hashing much at once costs a tenth."""
        self._last: deque[_Entry] = deque(maxlen=_LAST_LINES)
        """The last ones that are hashed."""
        self._hashed = 0
        self.met: Counter[str] = Counter()
        """What happened in the run that is worth counting, by the names of `coverage`."""

    def record(self, now_s: float, kind: str, what: str) -> None:
        """Something happened at a simulated time."""
        entries = self._entries
        entries.append((now_s, kind, what))
        if self._watch is not None:
            self._watch(_line((now_s, kind, what)))
        if len(entries) >= _HASHED_TOGETHER:
            self._hash_entries()

    def record_bytes(self, now_s: float, kind: str, what: str, data: Bytes) -> None:
        """The same for bytes, of which the trace keeps a checksum."""
        self.record(now_s, kind, f"{what} {len(data)} bytes {crc32(data):08x}")

    def _hash_entries(self) -> None:
        self._hash.update(marshal.dumps(self._entries, _BY_VALUE))
        self._hashed += len(self._entries)
        self._last.extend(self._entries)
        self._entries.clear()

    @property
    def events(self) -> int:
        """How many lines were recorded."""
        return self._hashed + len(self._entries)

    @property
    def digest(self) -> str:
        """Equal for equal runs."""
        self._hash_entries()
        return self._hash.hexdigest()

    @property
    def last_lines(self) -> tuple[str, ...]:
        """The end of the record."""
        return tuple(map(_line, deque(chain(self._last, self._entries), maxlen=_LAST_LINES)))


def _line(entry: _Entry) -> str:
    now_s, kind, what = entry
    return f"{now_s:.9f} {kind} {what}"
