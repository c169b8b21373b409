"""Old segments of one log whose files are still there.

A thread removes them by their names, beside everything else. A log that begins again further below makes files of the
same names, so it removes first what is left of them, and is tried again later where the thread is at it.
"""

from collections.abc import Iterable
from contextlib import suppress
from threading import Lock

from logboom.base.errors import RetriableStorageError
from logboom.storage.segment import Segment


class Removals:
    """See the module. Life: that of the log. Any thread; no lock is held while the disk is asked."""

    __slots__ = ("_left", "_lock", "_under_way")

    def __init__(self) -> None:
        self._lock = Lock()
        self._left: list[Segment] = []
        self._under_way = 0

    def add(self, segments: Iterable[Segment]) -> None:
        """These are no part of the log any more."""
        with self._lock:
            self._left += segments

    def remove(self, segments: Iterable[Segment]) -> None:
        """Remove the files of those that are still there. Raises OSError, and those are left then."""
        for segment in segments:
            with self._lock:
                if segment not in self._left:
                    continue
                self._left.remove(segment)
                self._under_way += 1
            try:
                with suppress(FileNotFoundError):  # an error came in between the last time
                    segment.remove()
            except OSError:
                self.add((segment,))
                raise
            finally:
                with self._lock:
                    self._under_way -= 1

    def finish(self) -> None:
        """Remove all that are left. Raises RetriableStorageError where another thread is removing one, OSError."""
        with self._lock:
            if self._under_way:
                raise RetriableStorageError("Old segments are still being removed.")
            left = tuple(self._left)
        self.remove(left)
