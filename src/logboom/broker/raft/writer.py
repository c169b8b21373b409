"""What a node asks to be written, made durable one after the other in the order in which it asked.

Entries that are appended, nearly all there is, take the way of every other append in the log dir: they are staged on
the loop and flushed with the next group commit, several writes with one sync. Whatever else changes the files (a new
term or vote, entries that are replaced, snapshots) is a job of its own on the flusher's thread, begun once everything
before it is durable. What follows waits for it.

A lack of room is waited out: the write is tried again every second, and all behind it wait. Meanwhile writes go one by
one, so that what is small enough gets through. Any other error of the disk ends the writer, and with it the group
(design, rule 10).
"""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple

from structlog.typing import FilteringBoundLogger

from logboom.base.errors import LogboomError, RetriableStorageError, StorageError
from logboom.base.ids import Offset
from logboom.base.ports import Clock
from logboom.broker.group_commit import Flushable, GroupCommit
from logboom.broker.raft.driver import now_ms
from logboom.broker.raft.files import RaftFiles
from logboom.raft import DiscardLog, Persist, Snapshot

_RETRY_S: Final = 1.0


class KeepCommit(NamedTuple):
    """The commit index is to be durable without waiting for the next entry."""


Work = Persist | Snapshot | DiscardLog | KeepCommit
"""A write, a snapshot of the own state machine, the removal of a prefix of the log that is not needed, or that the
commit index is to be durable."""


class _Staged(NamedTuple):
    """A write whose entries are staged, and the log's end behind them."""

    end: Offset
    persist: Persist


@dataclass(frozen=True, slots=True, kw_only=True)
class WriterEvents:
    """Callbacks of the writer. On the loop."""

    persisted: Callable[[int], None]
    """The write of that number and all before it are durable."""

    snapshot_taken: Callable[[Snapshot], None]
    snapshot_failed: Callable[[StorageError], None]
    """There is no room for it: nothing has changed."""

    failed: Callable[[StorageError], None]
    """Nothing more is written."""


class Writer:
    """See the module. `group_commit.FlushTarget`. Life: made on the loop, `stop`ped before the files are closed."""

    syncs = True

    def __init__(
        self, files: RaftFiles, flusher: GroupCommit, events: WriterEvents, clock: Clock, log: FilteringBoundLogger
    ) -> None:
        self._files = files
        self._flusher = flusher
        self._events = events
        self._clock = clock
        self._log = log
        self._put_number = self._durable_number = 0
        self._progress_ms = 0
        self._queue: deque[Work] = deque()
        self._staged: deque[_Staged] = deque()
        self._staged_bytes = 0
        self._job: asyncio.Task[None] | None = None
        self._pause: asyncio.Handle | None = None
        self._lacks_room = False
        self._ended = False

    def put(self, work: Work) -> None:
        """Write it behind everything that was put before."""
        if not self._ended:
            if isinstance(work, Persist):
                if self._put_number == self._durable_number:
                    self._progress_ms = now_ms(self._clock)
                self._put_number = work.number
            self._queue.append(work)
            self._begin()

    @property
    def stalled_ms(self) -> int:
        """For how long nothing has become durable although something waits for it; 0 where nothing does."""
        return 0 if self._put_number == self._durable_number else now_ms(self._clock) - self._progress_ms

    async def stop(self) -> None:
        """Begin nothing more, and return once nothing is under way any more."""
        self._ended = True
        self._queue.clear()
        if self._pause is not None:
            self._pause.cancel()
        if self._job is not None:
            await asyncio.wait([self._job])
        if self._staged:
            await self._flusher.flush(self)

    # --- beginning ------------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        """Begin as much as may be begun now."""
        while self._queue and self._job is None and self._pause is None and not self._ended:
            if self._flusher.failure is not None:
                self._fail(self._flusher.failure)
                return
            work = self._queue[0]
            is_append = isinstance(work, Persist) and self._files.is_append(work)
            if self._staged and (self._lacks_room or not is_append):
                return  # it is begun once they are durable
            if isinstance(work, Persist) and is_append:
                self._queue.popleft()
                self._stage(work)
            else:
                self._queue.popleft()
                self._job = asyncio.get_running_loop().create_task(self._run(work))

    def _stage(self, persist: Persist) -> None:
        try:
            size_bytes = self._files.stage(persist)
        except StorageError as error:
            self._fail(error)
            return
        if size_bytes:
            self._staged_bytes += size_bytes
            self._staged.append(_Staged(self._files.log_end, persist))
            self._flusher.enqueue(self, size_bytes)
        elif self._staged:  # only the commit index: reported as durable after those before it
            self._staged.append(_Staged(self._files.log_end, persist))
        else:
            self._durable(persist.number)

    async def _run(self, work: Work) -> None:
        """Run a job of its own on the flusher's thread."""
        try:
            await self._flusher.run(self._job_of(work))
        except RetriableStorageError as lack:
            self._job = None
            self._lacking(work, lack)
        except StorageError as error:
            self._job = None
            self._fail(error)
        except Exception as fault:  # noqa: BLE001 - outermost: a bug of ours ends the group, and says so
            self._job = None
            self._log.error("writing the cluster's log failed on an internal error", exc_info=fault)
            self._fail(StorageError(f"an internal error stopped the cluster's log: {fault!r}"))
        else:
            self._job = None
            if isinstance(work, Persist):
                self._written(work.number)
            elif isinstance(work, Snapshot):
                self._events.snapshot_taken(work)
        self._begin()

    def _job_of(self, work: Work) -> Callable[[], None]:
        match work:
            case Persist():
                return partial(self._files.write, work)
            case Snapshot():
                return partial(self._files.take_snapshot, work)
            case DiscardLog(index):
                return partial(self._files.discard, index)
            case KeepCommit():
                return self._files.keep_commit

    def _lacking(self, work: Work, lack: RetriableStorageError) -> None:
        """There was no room. What a node waits for is tried again; all else only saves room and time."""
        if isinstance(work, Persist | KeepCommit):
            self._queue.appendleft(work)
            self._wait_for_room(lack)
        elif isinstance(work, Snapshot):
            self._events.snapshot_failed(lack)

    # --- group commit (group_commit.FlushTarget) --------------------------------------------------------------------

    @property
    def log(self) -> Flushable:
        """`FlushTarget`."""
        return self._files.log

    def drain(self) -> int:
        """`FlushTarget`: entries are staged when they are put, so that the order is that of the node."""
        size_bytes, self._staged_bytes = self._staged_bytes, 0
        return size_bytes

    def flushed(self, end: Offset) -> None:
        """`FlushTarget`."""
        durable = 0
        while self._staged and self._staged[0].end <= end:
            durable = self._staged.popleft().persist.number
        if durable:
            self._written(durable)
        if not self._staged:
            self._begin()

    def flush_failed(self, error: LogboomError) -> None:
        """`FlushTarget`."""
        if not isinstance(error, RetriableStorageError):
            self._staged.clear()
            self._fail(error if isinstance(error, StorageError) else StorageError(str(error)))
            return
        self._files.unstage()
        durable = 0
        while self._staged and self._staged[0].end <= self._files.log_end:
            durable = self._staged.popleft().persist.number
        together = len(self._staged)
        self._queue.extendleft(staged.persist for staged in reversed(self._staged))
        self._staged.clear()
        self._staged_bytes = 0
        self._wait_for_room(error, pause_s=_RETRY_S if together == 1 else 0)
        if durable:
            self._durable(durable)

    # --- outcomes -------------------------------------------------------------------------------------------------

    def _written(self, number: int) -> None:
        if self._lacks_room and not self._queue:
            self._lacks_room = False
            self._log.info("the cluster's log is written again")
        self._durable(number)

    def _durable(self, number: int) -> None:
        self._durable_number, self._progress_ms = number, now_ms(self._clock)
        if not self._ended:
            self._events.persisted(number)

    def _wait_for_room(self, lack: RetriableStorageError, *, pause_s: float = _RETRY_S) -> None:
        if not self._lacks_room:
            self._lacks_room = True
            self._log.error("the cluster's log waits for room on the disk", reason=str(lack))
        if not self._ended:  # not from within the flusher, which is handling the lack of room
            self._pause = asyncio.get_running_loop().call_later(pause_s, self._try_again)

    def _try_again(self) -> None:
        self._pause = None
        self._begin()

    def _fail(self, error: StorageError) -> None:
        if not self._ended:
            self._ended = True
            self._queue.clear()
            self._events.failed(error)
