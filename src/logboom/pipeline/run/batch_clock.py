"""The time of day that batches are pinned to. It only grows, and follows no jump of the machine's clock at once.

What transforms with a state close and forget, they cannot open again: a clock that is a year ahead for some seconds
would close all windows of that year. So while a pipeline runs, a clock that jumps ahead is followed by a minute for
each batch, until it is reached or has jumped back. From one start to the next any time may have passed.

Knows clocks. Must not know batches.
"""

import time
from collections.abc import Callable
from typing import Final

_CLOCK: Final[int] = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""Linux alone has the first; there the other one stands still while the machine sleeps, on macOS it does not."""
_AHEAD_MS_MAX: Final = 60_000
"""By so much may the clock be ahead of what has passed since the batch before."""


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000


def _elapsed_ms() -> int:
    """Of a clock that is never set, and goes on while the machine sleeps."""
    return time.clock_gettime_ns(_CLOCK) // 1_000_000


class BatchClock:
    """Of one process."""

    def __init__(self, wall_ms: Callable[[], int] = _wall_ms, elapsed_ms: Callable[[], int] = _elapsed_ms) -> None:
        self._wall_ms = wall_ms
        self._elapsed_ms = elapsed_ms
        self._last: tuple[int, int] | None = None
        """What the batch before was pinned to, and when that was by the clock that is never set."""

    def next(self, before_ms: int) -> int:
        """The time of day in milliseconds since 1970 for a batch behind one of `before_ms` (0 for the first). A clock
        that was set back makes it a millisecond later."""
        now, elapsed = self._wall_ms(), self._elapsed_ms()
        if self._last is not None:
            last, at = self._last
            now = min(now, last + elapsed - at + _AHEAD_MS_MAX)
        found = max(now, before_ms + 1)
        self._last = found, elapsed
        return found
