"""What the wall clocks of a cluster show, as its controller hears it from heartbeats: their median.

A broker does not delete by the age of records if its own clock is ahead of this (`settled_clock`). No single clock
that is wrong moves a median of three. Of two clocks the earlier one counts.
"""

from typing import Final, NamedTuple

from logboom.base.ids import BrokerId
from logboom.base.units import SECOND_MS

UNKNOWN: Final = 0
_COUNTS_FOR_S: Final = 10.0
"""A broker that was not heard for this long is down, and its clock may be set before it comes back."""


class _Heard(NamedTuple):
    ahead_ms: float
    """How far its wall clock was ahead of the controller's monotonic clock."""
    at_s: float


class WallClocks:
    """See the module. Life: that of a controllership; times are those of its monotonic clock."""

    def __init__(self) -> None:
        self._heard: dict[BrokerId, _Heard] = {}

    def heard(self, broker: BrokerId, wall_ms: int, at_s: float) -> None:
        """The wall clock of a broker showed `wall_ms` a moment before `at_s`; UNKNOWN from programs that do not say."""
        if wall_ms != UNKNOWN:
            self._heard[broker] = _Heard(wall_ms - at_s * SECOND_MS, at_s)

    def median_ms(self, now_s: float, brokers: int) -> int:
        """What most of them show now; UNKNOWN until more than half of so many brokers were heard."""
        self._heard = {one: heard for one, heard in self._heard.items() if now_s - heard.at_s < _COUNTS_FOR_S}
        if 2 * len(self._heard) <= brokers:
            return UNKNOWN
        in_order = sorted(heard.ahead_ms for heard in self._heard.values())
        return int(in_order[(len(in_order) - 1) // 2] + now_s * SECOND_MS)
