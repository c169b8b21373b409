"""Runs flushes and sorts their errors by what they mean: for one log, or for the whole log dir.

RetriableStorageError           room or a file handle is lacking: the log takes back what it staged and goes on
StorageError, OSError           the disk failed: the log dir is offline for the life of the process
anything else                   a bug: one log is flushed no more, all others are
"""

from collections.abc import Callable
from typing import TypeAlias

from structlog.typing import FilteringBoundLogger

from logboom.base.errors import LogboomError, RetriableStorageError, StorageError
from logboom.base.ids import Offset
from logboom.broker.disk.failure import LogDirFailure
from logboom.broker.group_commit import FlushTarget

Outcome: TypeAlias = tuple[FlushTarget, Offset | LogboomError]
"""A log that was flushed, and its safe end or what went wrong."""


class FlushRunner:
    """Runs flushes of one log dir. Life: that of the flusher; on the loop and on the threads that flush."""

    def __init__(self, failure: LogDirFailure, log: FilteringBoundLogger) -> None:
        self.blocked: set[FlushTarget] = set()
        """Logs that are not flushed because a flush failed: added here, discarded on the loop once the target has taken
        back what it had staged."""
        self._failure = failure
        self._log = log

    def run(self, target: FlushTarget, flush: Callable[[], Offset]) -> Outcome:
        """Call `flush`, unless the log dir has failed."""
        error: LogboomError
        if self._failure.error is not None:
            error = self._failure.error
        else:
            try:
                return target, flush()
            except RetriableStorageError as lack:
                error = lack
            except (StorageError, OSError) as fault:
                error = self._failure.report(fault)
            except Exception as fault:  # noqa: BLE001 - the outermost loop of a thread: a bug of ours stops one log
                return self.failed(target, fault)
        self.blocked.add(target)
        return target, error

    def disk_failed(self, error: StorageError) -> None:
        """A sync failed while others of its round are still under way: the log dir takes no more from now on."""
        self._failure.report(error)

    def failed(self, target: FlushTarget, fault: Exception) -> Outcome:
        """The outcome of a flush that met a bug; its log is flushed no more."""
        self._log.error("flush failed on an internal error", exc_info=fault)
        self.blocked.add(target)
        return target, internal_error(fault)


def internal_error(fault: Exception) -> StorageError:
    """The error that clients get when an internal error stopped their partition."""
    return StorageError(f"an internal error took this partition offline: {fault!r}")
