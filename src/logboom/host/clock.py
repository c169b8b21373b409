"""The Clock port on the machine's own clocks."""

import time
from functools import partial
from typing import Final

_CLOCK: Final[int] = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""A lease has to end while the machine sleeps, because the controller elects another leader then. On Linux
CLOCK_MONOTONIC stands still meanwhile. CLOCK_BOOTTIME exists only there; on macOS CLOCK_MONOTONIC goes on."""


class SystemClock:
    """Wall and monotonic time of this machine."""

    __slots__ = ()

    # No methods around them: every request asks for the time, and a method would cost as much again.
    monotonic_s = staticmethod(partial(time.clock_gettime, _CLOCK))
    monotonic_ns = staticmethod(partial(time.clock_gettime_ns, _CLOCK))

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000
