"""The Clock port on the machine's own clocks."""

import time


class SystemClock:
    """Wall and monotonic time of this machine."""

    __slots__ = ()

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_s(self) -> float:
        return time.monotonic()
