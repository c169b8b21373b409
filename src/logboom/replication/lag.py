"""How far a copy is behind what is committed at its leader: in records, and in time.

The lag in time is the age of what the copy shows: the time since the latest moment for which it is known that
everything committed by then is shown. A copy that lacks a thousand records of the last second is a second behind,
whatever the rate at which they come. One whose leader has been silent for a minute is a minute behind, whether or not
it lacks anything.
"""

import math
from typing import Final, NamedTuple

from logboom.base.ids import Offset

_NOTHING: Final = Offset(0)


class Lag(NamedTuple):
    """How far a copy is behind."""

    records: int
    """Committed records that it lacks, as far as known."""
    seconds: float
    """The age of what it shows; infinite if unknown."""

    def exceeds(self, *, records: int, seconds: float) -> bool:
        """Whether it exceeds a bound; a negative bound is none."""
        return (0 <= records < self.records) or (0 <= seconds < self.seconds)


class CopyLag:
    """What a copy knows of its own lag. Life: that of the partition."""

    __slots__ = ("_as_of_s", "_mark", "_next", "_received_s", "_shown")

    def __init__(self) -> None:
        self._mark = self._shown = _NOTHING
        self._received_s = self._as_of_s = -math.inf
        self._next: tuple[Offset, float] | None = None
        """A high-water mark that is not shown yet, and when it was received: once it is shown, the copy is as of that
        time. The leader's mark may keep moving before the copy reaches it, so each mark is waited for separately."""

    @property
    def leaders_mark(self) -> Offset:
        """What was committed as of the leader's last message."""
        return self._mark

    def mark_received(self, mark: Offset, at_s: float) -> None:
        """The leader sent, after `at_s`, that everything below `mark` is committed."""
        self._mark, self._received_s = mark, at_s
        if self._shown >= mark:
            self._as_of_s, self._next = at_s, None
        elif self._next is None:
            self._next = mark, at_s

    def shows(self, shown: Offset) -> None:
        """Readers see everything below `shown`."""
        self._shown = shown
        if shown >= self._mark:
            self._as_of_s, self._next = self._received_s, None
        elif self._next is not None and shown >= self._next[0]:
            self._as_of_s, self._next = self._next[1], None

    def lag(self, now_s: float, quiet_s: float | None) -> Lag:
        """At this moment. `quiet_s`: when the leader, asked for more, was last known to have nothing new; None where
        that is not known."""
        if self._shown < self._mark:
            return Lag(self._mark - self._shown, now_s - self._as_of_s)
        as_of_s = self._as_of_s if quiet_s is None else max(self._as_of_s, quiet_s)
        return Lag(0, now_s - as_of_s)
