"""The time of day that is pinned for a batch. It is monotonic and follows jumps of the system clock only slowly.

Windows that a transform has closed cannot be opened again: a clock that is a year ahead for some seconds would close
all windows of that year. So if the clock jumps ahead while a pipeline runs, each batch follows it by at most a minute,
until the time is reached or the clock jumps back. Between two starts any time may have passed.

Knows clocks. Must not know batches.
"""

import time
from collections.abc import Callable
from typing import Final

_CLOCK: Final[int] = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""CLOCK_BOOTTIME exists only on Linux. There, CLOCK_MONOTONIC stops while the machine sleeps; on macOS it does not."""
_AHEAD_MS_MAX: Final = 60_000
"""How far the clock may be ahead of the time that has passed since the previous batch."""


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000


def _elapsed_ms() -> int:
    """Time of a clock that is never adjusted and continues while the machine sleeps."""
    return time.clock_gettime_ns(_CLOCK) // 1_000_000


class BatchClock:
    """The clock of one process."""

    def __init__(self, wall_ms: Callable[[], int] = _wall_ms, elapsed_ms: Callable[[], int] = _elapsed_ms) -> None:
        self._wall_ms = wall_ms
        self._elapsed_ms = elapsed_ms
        self._last: tuple[int, int] | None = None
        """The time pinned for the previous batch, and the unadjusted time at which that was."""

    def next(self, before_ms: int) -> int:
        """The time of day in milliseconds since 1970 for a batch, after a batch with `before_ms` (0: none). If the
        clock was set back, it is `before_ms` + 1."""
        now, elapsed = self._wall_ms(), self._elapsed_ms()
        if self._last is not None:
            last, at = self._last
            now = min(now, last + elapsed - at + _AHEAD_MS_MAX)
        found = max(now, before_ms + 1)
        self._last = found, elapsed
        return found
