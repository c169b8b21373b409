"""What happened in a run, as one hash and as the last lines before an end.

Every step of a simulation is recorded in the order in which it happened: callbacks of event loops, operations of disks,
bytes that arrive on connections, lines that brokers log. Two runs of one seed have the same digest, or something in the
code depends on more than the seed. `watch` then shows both runs line by line.
"""

import hashlib
from collections import Counter, deque
from collections.abc import Callable
from typing import Final

from logboom.base.ports import Bytes

_LAST_LINES: Final = 40


class Trace:
    """The record of one run. Life: that of the run."""

    def __init__(self, watch: Callable[[str], None] | None = None) -> None:
        """`watch` is called with every line."""
        self._hash = hashlib.blake2b(digest_size=16)
        self._watch = watch
        self._lines: deque[str] = deque(maxlen=_LAST_LINES)
        self.events = 0
        """How many lines were recorded."""
        self.met: Counter[str] = Counter()
        """What happened in the run that is worth counting, by the names of `coverage`."""

    def record(self, now_s: float, kind: str, what: str) -> None:
        """Something happened at a simulated time."""
        line = f"{now_s:.9f} {kind} {what}"
        self._hash.update(line.encode())
        self._hash.update(b"\n")
        self.events += 1
        self._lines.append(line)
        if self._watch is not None:
            self._watch(line)

    def record_bytes(self, now_s: float, kind: str, what: str, data: Bytes) -> None:
        """The same for bytes, of which the trace keeps a digest."""
        digest = hashlib.blake2b(data, digest_size=8).hexdigest()
        self.record(now_s, kind, f"{what} {len(data)} bytes {digest}")

    @property
    def digest(self) -> str:
        """Equal for equal runs."""
        return self._hash.hexdigest()

    @property
    def last_lines(self) -> tuple[str, ...]:
        """The end of the record."""
        return tuple(self._lines)
