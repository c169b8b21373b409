"""A wait of the high-water mark (HW) for a follower that is to join the ISR.

A follower joins when it has everything below HW. Under a continuous load, a follower whose disk is slower than those of
the ISR never reaches HW although it keeps pace: the records that it reports were committed without it some milliseconds
ago. So its leader stops HW once. The follower reaches HW with its next one or two reports, and is proposed; from then
on HW waits for it as for every member.

Holding HW back is always safe. It delays producers for the time of the wait, so both the length and the frequency of
waits are limited.
"""

import math
from typing import Final

from logboom.base.ids import BrokerId

JOIN_WAIT_S: Final = 0.5
"""The longest time of one wait."""
KEEPS_PACE_S: Final = 0.25
"""A follower that has the records which the leader had at most this long ago can be expected to reach HW within the
wait."""
_PAUSE_S: Final = 10.0
"""The shortest time from the start of a wait to the start of the next one, unless the first led to a proposal."""


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
        """Returns whether HW is held from now on: not if it is held already, nor too soon after the last wait."""
        if self.is_on or now_s < self._next_s:
            return False
        self._awaited, self._next_s = replica, now_s + _PAUSE_S
        return True

    def end(self) -> None:
        """HW may move again: the wait failed, or another change was proposed."""
        self._awaited = None

    def settled(self, replica: BrokerId) -> None:
        """A follower is proposed, or begins with another process or log: if HW waited for it, the next wait may begin
        at once."""
        if self._awaited == replica:
            self._awaited, self._next_s = None, -math.inf
