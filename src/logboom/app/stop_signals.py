"""Signals that ask a process to stop: the first is a request, a second one ends it at once.

Knows signals and an asyncio loop; nothing of what is stopped.
"""

import asyncio
import signal
from collections.abc import Callable, Iterable
from typing import Final

SAME_REQUEST_S: Final = 0.5
"""A signal that comes again this soon is the same request. `timeout` of coreutils sends it to the process and then to
its group; a program that runs this one passes on a Ctrl-C that the terminal has already sent to both."""


class StopSignals:
    """Takes signals of the process from its construction on, which needs a running loop."""

    def __init__(
        self,
        numbers: Iterable[signal.Signals],
        stop_requested: asyncio.Event,
        *,
        on_request: Callable[[signal.Signals], None],
        end_at_once: Callable[[signal.Signals], None],
    ) -> None:
        """The first signal sets `stop_requested`, unless it is set for another reason, and calls `on_request`."""
        self._stop_requested = stop_requested
        self._on_request = on_request
        self._end_at_once = end_at_once
        self._loop = asyncio.get_running_loop()
        self._first: tuple[signal.Signals, float] | None = None
        for number in numbers:
            self._loop.add_signal_handler(number, self.take, number)

    def take(self, number: signal.Signals) -> None:
        """Act on a signal that has arrived."""
        now_s = self._loop.time()
        if self._first is not None and self._first[0] == number and now_s - self._first[1] < SAME_REQUEST_S:
            return
        self._first = self._first or (number, now_s)
        if self._stop_requested.is_set():
            self._end_at_once(number)
            return
        self._on_request(number)
        self._stop_requested.set()
