"""A connection that is made to wait: it begins no request and reads nothing for so long (KIP-219).

Knows the loop's timers; not why anybody waits, nor what a connection does meanwhile.
"""

import asyncio
from collections.abc import Callable


class Muting:
    """One connection's wait. Life: that of the connection; `end` forgets the timer."""

    __slots__ = ("_loop", "_on_change", "_timer", "on")

    def __init__(self, loop: asyncio.AbstractEventLoop, on_change: Callable[[], None]) -> None:
        self._loop = loop
        self._on_change = on_change
        self._timer: asyncio.TimerHandle | None = None
        self.on = False
        """Whether it waits now."""

    def wait(self, wait_ms: int) -> None:
        """Wait for so long from now, or longer where that was asked for before."""
        until_s = self._loop.time() + wait_ms / 1_000
        if self._timer is not None:
            if self._timer.when() >= until_s:
                return
            self._timer.cancel()
        self._timer = self._loop.call_at(until_s, self.lift)
        self.on = True
        self._on_change()

    def lift(self) -> None:
        """Wait no more. Idempotent."""
        if self._timer is not None:
            self.end()
            self._on_change()

    def end(self) -> None:
        """The connection is gone."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.on = False
