"""What is wrong with records of the control stream, told so that a flood of them is no flood of messages. Pure."""

import math
from collections.abc import Callable
from typing import Final

_ONE_BY_ONE: Final = 5
"""Of all faults; then their number is told."""
_TELL_AGAIN_S: Final = 60.0
"""The number is told no more often."""


class Faults:
    """Counts and tells faults. `clock`: seconds that never go back."""

    def __init__(self, notify: Callable[[str], None], clock: Callable[[], float]) -> None:
        self._notify = notify
        self._clock = clock
        self._told = 0
        self._untold = 0
        self._told_at = -math.inf
        self._is_behind = False

    def found(self, problem: str) -> None:
        """Another fault."""
        if self._told < _ONE_BY_ONE:
            self._told += 1
            self._notify(problem)
        else:
            self._untold += 1

    def tell(self, unread: int) -> None:
        """Tells how many faults were found beside those that were told, and how many records are not read yet."""
        if self._untold and self._clock() - self._told_at >= _TELL_AGAIN_S:
            self._notify(f"{self._untold:,} more records of the dials are left out")
            self._untold = 0
            self._told_at = self._clock()
        if unread and not self._is_behind:
            self._notify(f"{unread:,} records of the dials are not read yet: changes among them hold later")
        elif self._is_behind and not unread:
            self._notify("the records of the dials are all read again")
        self._is_behind = unread > 0
