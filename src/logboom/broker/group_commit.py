"""The contract of group commit between logs with waiting appends (FlushTarget) and the flusher (GroupCommit).

Everything that is written goes through these steps, always in this order:

    enqueue   (loop)    something arrived for a target
    drain     (loop)    at the end of the turn: the target stages it in its log
    flush     (thread)  the log writes all that is staged and syncs it
    flushed or flush_failed (loop)  the target answers those appends

`disk.flusher` implements GroupCommit; partitions and the metadata log are its targets. This file knows neither.
"""

from collections.abc import Callable
from typing import Protocol, TypeVar

from logboom.base.errors import LogboomError, StorageError
from logboom.base.ids import Offset
from logboom.base.ports import File

Result = TypeVar("Result")


class InlineFlushable(Protocol):
    """The part of a log that writes on the loop while the kernel syncs beside it. One round at a time."""

    def write(self, max_bytes: int) -> File | None:
        """Loop: write all that is staged, at most this many bytes, without a wait for the disk; the file that is then
        to be synced, upon which `synced` or `sync_failed` is called. None, or BlockingIOError where the disk would have
        to be waited for: `flush` has to do it."""

    def synced(self) -> Offset:
        """Loop: the sync succeeded; the end of what is then safe. Raises as `flush`."""

    def sync_failed(self, error: OSError) -> StorageError:
        """Loop: the sync failed. Returns the error for every further write."""


class Flushable(Protocol):
    """The part of a log that concerns group commit."""

    def flush(self, *, sync: bool, on_part: Callable[[Offset], None] | None = None) -> Offset:
        """Thread: write all that is staged, and with `sync` make it durable; the end of what is then safe.

        Of much that is staged `on_part` is told in between how far it is safe already.

        Raises RetriableStorageError where room or a file handle is lacking, else StorageError or OSError.
        """

    @property
    def inline(self) -> InlineFlushable:
        """The same on the loop, for small writes."""


class FlushTarget(Protocol):
    """A log and its completion callbacks. Compared by identity."""

    @property
    def log(self) -> Flushable:
        """The log itself."""

    @property
    def syncs(self) -> bool:
        """Whether each flush is to be followed by a sync."""

    def drain(self) -> int:
        """Loop: stage all that was enqueued in the log; returns the bytes staged. 0: there is nothing to flush."""

    def flushed(self, end: Offset) -> None:
        """Loop: everything below `end` is as safe as was asked for."""

    def flush_failed(self, error: LogboomError) -> None:
        """Loop: what is staged is not safe.

        After RetriableStorageError the target takes back what is staged and may enqueue more; what was written before
        the lack is safe. After any other error it takes no more appends, and answers those it holds.
        """


class GroupCommit(Protocol):
    """Group commit of one log dir, as its targets see it. On the loop."""

    @property
    def failure(self) -> StorageError | None:
        """Why the log dir takes no more writes, if so."""

    def enqueue(self, target: FlushTarget, size_bytes: int) -> None:
        """So many bytes arrived for `target`, which is drained at the end of this turn of the loop."""

    def flush_soon(self, target: FlushTarget) -> None:
        """Flush `target` at the end of this turn, whether or not anything arrived for it."""

    async def flush(self, target: FlushTarget) -> None:
        """Flush what `target` has staged without an append; returns once its `flushed` or `flush_failed` was called."""

    async def run(self, function: Callable[[], Result]) -> Result:
        """Run a function of a log where alone its files may be changed, after all that was enqueued before.

        Targets whose flush failed before have by then taken back what they had staged.

        A StorageError or OSError from it takes the log dir offline, RetriableStorageError excepted, and is raised here
        too.
        """
