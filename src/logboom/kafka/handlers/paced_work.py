"""Work of many connections that becomes due at the same moment, done a part in each turn of the event loop.

Thousands of clients may wait for one event, such as the next leader of a partition. Answered all at once they would
keep the loop for longer than a lease, in which this broker sends no heartbeat and serves nobody else.
"""

import asyncio
from collections import deque
from typing import Final

AT_ONCE: Final = 50
"""How many continue in one turn of the loop: an answer takes one or two tenths of a millisecond of processor time."""


class PacedWork:
    """See the module. Life: that of the server. On the loop."""

    def __init__(self) -> None:
        self._left = AT_ONCE
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._is_scheduled = False

    async def next(self) -> None:
        """Return in a turn of the loop in which not too many others continue; callers continue in the order in which
        they came."""
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
