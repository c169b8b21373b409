"""Limits how many connections continue in one turn of the event loop when many wait for the same event.

Thousands of clients may wait for one event, such as the election of a partition's leader. Answering all of them at once
would block the loop for longer than a lease, during which this broker sends no heartbeat and serves no other client.
"""

import asyncio
from collections import deque
from typing import Final

AT_ONCE: Final = 50
"""How many continue in one turn of the loop. One answer takes 0.1 to 0.2 ms of CPU time."""


class PacedWork:
    """Waiters continue in groups of AT_ONCE, one group per turn. Lifetime: that of the server. Use on the loop only."""

    def __init__(self) -> None:
        self._left = AT_ONCE
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._is_scheduled = False

    async def next(self) -> None:
        """Return in a turn of the loop in which fewer than AT_ONCE others continue. Callers continue in the order of
        their calls."""
        self._schedule()
        if self._left and not self._waiting:
            self._left -= 1
            return
        future = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        await future

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._turn)

    def _turn(self) -> None:
        self._is_scheduled = False
        self._left = AT_ONCE
        while self._left and self._waiting:
            future = self._waiting.popleft()
            if not future.done():  # its time may be over
                future.set_result(None)
                self._left -= 1
        if self._left < AT_ONCE:
            self._schedule()
