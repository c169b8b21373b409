"""Whether a log dir still takes writes.

A sync that failed is never tried again: Linux marks the pages clean after an error, so a second sync would succeed
without having written them. Other files are on the same disk. So the first failure holds for the whole log dir and for
the life of the process (design, rule 10).
"""

import threading
from collections.abc import Callable

from logboom.base.errors import StorageError


class LogDirFailure:
    """The first failure of a log dir, or none so far. Any thread may report one."""

    __slots__ = ("_lock", "_on_failure", "error")

    def __init__(self, on_failure: Callable[[StorageError], object]) -> None:
        self.error: StorageError | None = None
        """Why the log dir takes no more writes, if so."""
        self._lock = threading.Lock()
        self._on_failure = on_failure

    def report(self, error: StorageError | OSError) -> StorageError:
        """The disk failed; the error that everything meets from now on. `on_failure` is called once, on this thread."""
        with self._lock:
            if self.error is not None:
                return self.error
            self.error = error if isinstance(error, StorageError) else StorageError(f"the disk failed: {error}")
        self._on_failure(self.error)
        return self.error
