"""What a command is at while it takes long, on standard error: a line in place on a terminal, elsewhere a line now and
then, so that neither a person nor a log of a job takes it for dead. Knows texts alone."""

import sys
import threading
import time
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Final, Self, TypeVar

from rich.console import Console

from logboom.cli.common import note

FIRST_S: Final = 3.0
"""A command that is done before says nothing."""
AGAIN_S: Final = 5.0
_COUNTED_BY: Final = 1_000
_Item = TypeVar("_Item")


class ProgressLine:
    """Tells what is done from when it is entered until it is left."""

    def __init__(self, what: str, *, first_s: float = FIRST_S, again_s: float = AGAIN_S) -> None:
        self._what = what
        self._pauses_s = (first_s, again_s)
        self._began = time.monotonic()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._show, name="progress", daemon=True)
        self._status = Console(stderr=True).status(what) if sys.stderr.isatty() else None

    def __enter__(self) -> Self:
        if self._status is not None:
            self._status.start()
        else:
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._status is not None:
            self._status.stop()
            return
        self._ended.set()
        self._thread.join()

    def at(self, what: str) -> None:
        """Something else is done now."""
        self._what = what
        if self._status is not None:
            self._status.update(what)

    def counted(self, what: str, items: Iterable[_Item]) -> Iterator[_Item]:
        """The same items; how many there were is told behind `what`."""
        self.at(what)
        for number, item in enumerate(items, 1):
            yield item
            if number % _COUNTED_BY == 0:
                self.at(f"{what}: {number:,}")

    def _show(self) -> None:
        pause_s, again_s = self._pauses_s
        while not self._ended.wait(pause_s):
            note(f"{self._what} ({time.monotonic() - self._began:.0f} s)")
            pause_s = again_s
