"""A wait of the high-water mark (HW) for a follower that is to join the ISR.

A follower joins when it has everything below HW. Under a load that does not pause, one whose disk is slower than
those of the ISR never has, though it keeps pace: what it reports was committed without it some milliseconds ago. So
its leader holds HW where it is, once. The follower reaches it with its next report or two, and is proposed; from then
on HW waits for it as for every member.

Holding HW back is always safe. It costs producers the time of the wait, so a wait has a bound, and so has their share
of the time.
"""

import math
from typing import Final

from logboom.base.ids import BrokerId

JOIN_WAIT_S: Final = 0.5
"""The most that one wait takes."""
KEEPS_PACE_S: Final = 0.25
"""A follower that has what the leader had so short a time ago can be expected to reach HW within the wait."""
_PAUSE_S: Final = 10.0
"""From the beginning of a wait to that of the next one, unless the first led to a proposal."""


class JoinWait:
    """See the module. Life: that of a leadership."""

    __slots__ = ("_awaited", "_next_s")

    def __init__(self) -> None:
        self._awaited: BrokerId | None = None
        self._next_s = -math.inf

    @property
    def is_on(self) -> bool:
        """Whether HW is held."""
        return self._awaited is not None

    def begin(self, replica: BrokerId, now_s: float) -> bool:
        """Returns whether HW is held from now on: not while it is held, nor too soon after the last time."""
        if self.is_on or now_s < self._next_s:
            return False
        self._awaited, self._next_s = replica, now_s + _PAUSE_S
        return True

    def end(self) -> None:
        """HW may move again: the wait was in vain, or what is proposed is another change."""
        self._awaited = None

    def settled(self, replica: BrokerId) -> None:
        """A follower is proposed, or begins with another process or log: if it was waited for, the next one may be at
        once."""
        if self._awaited == replica:
            self._awaited, self._next_s = None, -math.inf
