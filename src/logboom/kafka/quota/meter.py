"""The arithmetic of quotas: how much somebody used, and how long they have to wait (KIP-13, KIP-124, KIP-219).

Pure: time is passed in, in milliseconds of any clock that does not go back. Who is measured and who makes them wait is
not known here.

What was used is paid off at the rate that is allowed; as much as a window holds may be used ahead. Steady use and the
first wait come out as Kafka's samples do (Rate, QuotaUtils). But Kafka forgets a sample with its window, and with it
what one request used beyond a whole window: twice the rate passes there, and here it does not.
"""

from math import ceil
from typing import Final

THROTTLE_MS_MAX: Final = 2**31 - 1
"""What the protocol's field can carry, some 24 days."""


class Meter:
    """One quota of one client: what it may use, and what it used and has not paid off."""

    __slots__ = ("_at_ms", "_most_ms", "_used", "_window_ms", "bound")

    def __init__(self, bound: float, window_ms: int, most_ms: int = THROTTLE_MS_MAX) -> None:
        """`bound` is the rate in a second, `most_ms` the longest wait that is ever asked for."""
        self.bound = bound
        self._window_ms = window_ms
        self._most_ms = most_ms
        self._used = 0.0
        self._at_ms = 0

    @property
    def window_amount(self) -> float:
        """What may be used at once by somebody who used nothing for a while."""
        return self.bound * self._window_ms / 1_000

    def used(self, now_ms: int) -> float:
        """What is not paid off yet."""
        self._used = max(0.0, self._used - self.bound * (now_ms - self._at_ms) / 1_000)
        self._at_ms = now_ms
        return self._used

    def charge(self, amount: float, now_ms: int) -> int:
        """It used so much: how long it has to wait before it goes on, 0 where it has not to."""
        self._used = self.used(now_ms) + amount
        return self._wait_ms(self.window_amount)

    def charge_unless_above(self, amount: float, now_ms: int) -> int:
        """As `charge` of what can still be held back: where it would be too much nothing is used, and this is how
        long to wait until it can be asked for again. What no window holds comes once nothing is left to pay off."""
        wait_ms = self._wait_ms(max(0.0, self.window_amount - amount)) if self.used(now_ms) else 0
        if not wait_ms:
            self._used += amount
        return wait_ms

    def _wait_ms(self, allowed: float) -> int:
        excess = self._used - allowed
        return 0 if excess <= 0 else min(ceil(excess / self.bound * 1_000), self._most_ms)
