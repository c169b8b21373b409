"""The Clock port on the machine's own clocks."""

import time


class SystemClock:
    """Wall and monotonic time of this machine."""

    __slots__ = ()

    # The functions themselves: every request asks for the time, and a method around it would cost as much again.
    monotonic_s = staticmethod(time.monotonic)
    monotonic_ns = staticmethod(time.monotonic_ns)

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000
