"""The threads on which partitions read from the disk, and how long the oldest read has been running.

A read that hangs occupies one thread until the disk answers; the others continue. Knows functions, not what they read.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from functools import partial
from itertools import count
from typing import TypeAlias, TypeVar

from logboom.base.ports import Clock

Result = TypeVar("Result")
ReadSoon: TypeAlias = Callable[[Callable[[], bool]], "asyncio.Future[bool]"]
"""Runs a read on a reader thread."""


class ReaderThreads:
    """Life: that of the broker. Called on the loop."""

    def __init__(self, threads: Executor, clock: Clock) -> None:
        self._threads = threads
        self._clock = clock
        self._numbers = count()
        self._began_ns: dict[int, int] = {}

    @property
    def busy_s(self) -> float:
        """How long the oldest read that was given to `read` has been running; 0 where none is."""
        # Read threads add and remove entries meanwhile; a copy of the values is taken in one step of the interpreter.
        began_ns = min(tuple(self._began_ns.values()), default=None)
        return 0.0 if began_ns is None else (self._clock.monotonic_ns() - began_ns) / 1e9

    def read(self, function: Callable[[], Result]) -> "asyncio.Future[Result]":
        """Run a read that is short on a healthy disk."""
        return self.run(partial(self._timed, function))

    def run(self, function: Callable[[], Result]) -> "asyncio.Future[Result]":
        """Run work that may take long: a search, a removal of files."""
        return asyncio.get_running_loop().run_in_executor(self._threads, function)

    def _timed(self, function: Callable[[], Result]) -> Result:
        number = next(self._numbers)
        self._began_ns[number] = self._clock.monotonic_ns()
        try:
            return function()
        finally:
            del self._began_ns[number]

    def shutdown(self) -> None:
        """Take no more; what runs is not waited for."""
        self._threads.shutdown(wait=False)
