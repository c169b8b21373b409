"""Reports faults of records of the control stream with a limited number of messages. Pure."""

import math
from collections.abc import Callable
from typing import Final

_ONE_BY_ONE: Final = 5
"""Faults reported one by one; beyond this only their number is reported."""
_TELL_AGAIN_S: Final = 60.0
"""Shortest time between two reports of the number."""


class Faults:
    """Counts and reports faults. `clock`: a monotonic time in seconds."""

    def __init__(self, notify: Callable[[str], None], clock: Callable[[], float]) -> None:
        self._notify = notify
        self._clock = clock
        self._told = 0
        self._untold = 0
        self._told_at = -math.inf
        self._is_behind = False

    def found(self, problem: str) -> None:
        """Reports or counts a fault."""
        if self._told < _ONE_BY_ONE:
            self._told += 1
            self._notify(problem)
        else:
            self._untold += 1

    def tell(self, unread: int) -> None:
        """Reports how many faults were not reported one by one, and how many records are not read yet."""
        if self._untold and self._clock() - self._told_at >= _TELL_AGAIN_S:
            self._notify(f"{self._untold:,} more invalid records of the dials are ignored")
            self._untold = 0
            self._told_at = self._clock()
        if unread and not self._is_behind:
            self._notify(f"{unread:,} records of the dials are not read yet: their changes take effect later")
        elif self._is_behind and not unread:
            self._notify("all records of the dials are now read")
        self._is_behind = unread > 0
