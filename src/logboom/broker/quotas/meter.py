"""The arithmetic of quotas: what was used, and how long the client has to wait (KIP-13, KIP-124, KIP-219).

Pure: the time is an argument, in milliseconds of any clock that does not go back. It does not know what is measured,
nor how a client is made to wait.

Usage is paid off at the rate of the quota, and as much as one window allows may be used ahead. Under steady use the
throttle times are those of Kafka's samples (Rate, QuotaUtils). They differ for a request that is larger than a whole
window: Kafka forgets its excess with the sample, so that twice the rate gets through; here it is paid off in full.
"""

from math import ceil
from typing import Final

THROTTLE_MS_MAX: Final = 2**31 - 1
"""The largest value of the protocol's field, some 24 days."""


class Meter:
    """One quota of one client: the allowed rate, and the usage that is not paid off."""

    __slots__ = ("_at_ms", "_throttle_ms_max", "_used", "_window_ms", "bound")

    def __init__(self, bound: float, window_ms: int, throttle_ms_max: int = THROTTLE_MS_MAX) -> None:
        """`bound` is the allowed amount per second, `throttle_ms_max` the longest throttle time that is returned."""
        self.bound = bound
        self._window_ms = window_ms
        self._throttle_ms_max = throttle_ms_max
        self._used = 0.0
        self._at_ms = 0

    @property
    def window_amount(self) -> float:
        """What a client may use at once after it has used nothing for a while."""
        return self.bound * self._window_ms / 1_000

    def used(self, now_ms: int) -> float:
        """The amount that is not paid off yet."""
        self._used = max(0.0, self._used - self.bound * (now_ms - self._at_ms) / 1_000)
        self._at_ms = now_ms
        return self._used

    def charge(self, amount: float, now_ms: int) -> int:
        """Add to the usage. Returns the throttle time in milliseconds, 0 for none."""
        self._used = self.used(now_ms) + amount
        return self._throttle_ms(self.window_amount)

    def charge_unless_above(self, amount: float, now_ms: int) -> int:
        """Add to the usage unless it is too much. Returns 0 if it was added, else the milliseconds until it can be.

        An amount that is larger than a window is added once everything else is paid off.
        """
        throttle_ms = self._throttle_ms(max(0.0, self.window_amount - amount)) if self.used(now_ms) else 0
        if not throttle_ms:
            self._used += amount
        return throttle_ms

    def _throttle_ms(self, allowed: float) -> int:
        excess = self._used - allowed
        return 0 if excess <= 0 else min(ceil(excess / self.bound * 1_000), self._throttle_ms_max)
