"""Looking for what comes next for a moment before the event loop sleeps.

A loop that has nothing to do sleeps in the kernel, and a processor without anything to run halts. To be woken costs
some 5 us on a machine of one's own and 50 us and more on a virtual one, whose core the hypervisor has meanwhile given
away; a produce request with its sync and the fetch that waits for it is woken three times. So the loop asks the kernel
a little longer without sleeping, as Seastar does (`--idle-poll-time-us`) and Linux for sockets (`busy_poll`).

What this costs is bounded: at most the poll time after each piece of work, nothing while nothing happens, next to
nothing where the next piece mostly comes later than that, and nothing for a while where other threads want the core.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Final

_US_NS: Final = 1_000

_STOLEN_NS: Final = 150 * _US_NS
"""A look at the sockets takes 3 us. After one that took so much and found nothing another thread had the core, or the
interpreter."""

_FOUND_MIN: Final = 1 / 4
"""The share of polls that must find work."""

_WEIGHT: Final = 1 / 32
"""What one poll counts beside those before it."""

_REST_AFTER_MISSES: Final = 63
"""Pieces of work after which the loop sleeps at once, then one poll again, while polls find nothing."""

_REST_AFTER_STEAL: Final = 15
"""The same after another thread had the core."""


class IdlePoll:
    """Keeps one event loop awake for `poll_us` after each piece of work. On that loop only."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        poll_us: int,
        *,
        monotonic_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._loop = loop
        self._poll_ns = poll_us * _US_NS
        self._now_ns = monotonic_ns
        self._has_worked = False
        self._polls = False
        self._found_share = 1.0
        self._rests = 0
        self._last_ns = 0
        self._until_ns = 0

    def worked(self) -> None:
        """Something has come or gone, and more may follow soon."""
        self._has_worked = True
        if self._polls:
            return
        if self._rests:
            self._rests -= 1
            return
        self._polls = True
        self._has_worked = False
        # The time begins when this turn of the loop ends, which may take longer than the poll.
        self._loop.call_soon(self._begin)

    def _begin(self) -> None:
        self._has_worked = False
        self._last_ns = self._now_ns()
        self._until_ns = self._last_ns + self._poll_ns
        self._loop.call_soon(self._look)

    def _look(self) -> None:
        """The loop has looked at its sockets, and calls this instead of going to sleep."""
        if self._has_worked:
            self._account(found=True)
            self._begin()
            return
        now_ns = self._now_ns()
        if now_ns - self._last_ns > _STOLEN_NS:
            self._end(rests=_REST_AFTER_STEAL)
        elif now_ns >= self._until_ns:
            self._account(found=False)
            self._end(rests=0 if self._found_share >= _FOUND_MIN else _REST_AFTER_MISSES)
        else:
            self._last_ns = now_ns
            self._loop.call_soon(self._look)

    def _account(self, *, found: bool) -> None:
        self._found_share += (found - self._found_share) * _WEIGHT

    def _end(self, *, rests: int) -> None:
        self._polls = False
        self._rests = rests
