"""Making a connection wait for a quota (KIP-219): it begins no request and is not read for a while.

Knows the loop's timers; not what the quota is, nor what a connection does meanwhile.
"""

import asyncio
from collections.abc import Callable


class Throttle:
    """One connection's wait; `cancel` drops the timer when the connection closes."""

    __slots__ = ("_loop", "_on_change", "_timer")

    def __init__(self, loop: asyncio.AbstractEventLoop, on_change: Callable[[bool], None]) -> None:
        """`on_change` is called with whether the connection waits, when a wait begins, is extended and ends."""
        self._loop = loop
        self._on_change = on_change
        self._timer: asyncio.TimerHandle | None = None

    def wait(self, throttle_ms: int) -> None:
        """Wait for this long from now. A wait that ends later stays as it is."""
        until_s = self._loop.time() + throttle_ms / 1_000
        if self._timer is not None:
            if self._timer.when() >= until_s:
                return
            self._timer.cancel()
        self._timer = self._loop.call_at(until_s, self.lift)
        self._on_change(True)

    def lift(self) -> None:
        """End the wait. Idempotent."""
        if self._timer is not None:
            self.cancel()
            self._on_change(False)

    def cancel(self) -> None:
        """Drop the timer without a call."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
