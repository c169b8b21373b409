"""The one thread of a log dir that writes and syncs: group commit.

Logs say that something arrived for them; at the end of the loop's turn they are told to stage it, which marks them, and
the marked ones are handed over together. The thread takes everything that was handed over while it was busy as one
round, writes and syncs each log of it, and tells the loop about the whole round with one call. So the more arrives, the
more one sync carries, and the loop never waits.

Knows logs by what `Flushed` says; not what waits for them. A failed sync is never tried again: the state of the file is
unknown from then on, and the whole log dir takes no more writes (rule 10 of the design).
"""

import asyncio
import threading
from collections.abc import Callable
from queue import Empty
from typing import Any, Final, NamedTuple, Protocol, TypeAlias, TypeVar

from structlog.typing import FilteringBoundLogger

from logboom.base.errors import LogboomError, RetriableStorageError, StorageError
from logboom.base.ids import Offset
from logboom.base.ports import Mailbox
from logboom.base.units import KIB
from logboom.broker.metrics import Counters
from logboom.broker.runtime import Runtime

Result = TypeVar("Result")
STOP_JOIN_S: Final = 30.0
LANES_FROM: Final = 3
"""Fewer logs than this are synced one after the other: waking helpers would cost what they save."""
ROUND_MAX: Final = 64
"""After so many logs the loop is told of those that are done, so that nobody waits for a thousand others."""
EARLY_BYTES: Final = 512 * KIB
"""With so much staged the disk has enough to do: it starts at once and works while the turn goes on."""


class Flushable(Protocol):
    """The part of a log that concerns the flusher."""

    def flush(self, *, sync: bool) -> Offset:
        """Write all that is staged, sync it if asked to; up to where the log is then as safe as was asked for."""


class Flushed(Protocol):
    """What is flushed: a log and the one who is told."""

    @property
    def log(self) -> Flushable:
        """The log itself."""

    syncs: bool
    """Whether each flush is to reach the disk itself."""
    marked: bool
    """Loop: whether it waits for the end of this turn to be handed over."""
    blocked: bool
    """Set by the flusher when a flush failed, cleared on the loop once the log took the loss; not flushed meanwhile."""

    def flushed(self, end: Offset) -> None:
        """Loop: everything below `end` is as safe as was asked for."""

    def flush_failed(self, error: LogboomError) -> None:
        """Loop: what is staged is not safe. RetriableStorageError: what could be written is, and can be told so."""


class Arriving(Protocol):
    """Who has something to stage."""

    def drain(self) -> None:
        """Loop: stage all that arrived; once it failed, tell everybody so."""

    def flush_failed(self, error: LogboomError) -> None:
        """Loop: staging failed, and would again."""


_Outcome: TypeAlias = tuple[Flushed, Offset | LogboomError]


class _Marked(NamedTuple):
    """What was handed over together."""

    targets: list[Flushed]
    size_bytes: int


class _Job:
    """A function to run on the thread, between rounds, and the future of its result."""

    __slots__ = ("function", "future")

    def __init__(self, function: Callable[[], Any], future: asyncio.Future[Any]) -> None:
        self.function = function
        self.future = future


class Flusher:
    """Group commit of one log dir. Life: made and started on the loop, `stop`ped on the loop, once."""

    def __init__(
        self,
        *,
        runtime: Runtime,
        threads: int,
        counters: Counters,
        log: FilteringBoundLogger,
        on_failure: Callable[[StorageError], None],
        staged_bytes_max: int,
    ) -> None:
        self._on_room: list[Callable[[], None]] = []
        self.staged_bytes = 0
        """Loop: bytes that were staged and not yet written, or taken back."""
        self.staged_bytes_max = staged_bytes_max
        self.backpressured = False
        """Loop: whether so much is staged that nothing more should be until the disk has taken some."""
        self.backpressure_count = 0
        """Loop: how often that came to be."""
        self._loop = asyncio.get_running_loop()
        self._clock = runtime.clock
        self._counters = counters
        self._log = log
        self._on_failure = on_failure
        self._marked: list[Flushed] = []
        self._marked_bytes = 0
        self._arrived: list[Arriving] = []
        self._arrived_bytes = 0
        self._taking_in = False
        self._mailbox: Mailbox[_Marked | _Job | None] = runtime.workers.mailbox()
        self._failure: StorageError | None = None
        self._failing = threading.Lock()
        self._busy_since_ns = 0
        self._threads = threads
        self._helpers = runtime.workers.pool("flush", threads)
        self._thread = runtime.workers.thread("flusher", self._run)

    @property
    def failure(self) -> StorageError | None:
        """Why the log dir takes no more writes, if so."""
        return self._failure

    @property
    def busy_s(self) -> float:
        """How long the thread has been at the round or job in its hands; 0 where it waits for one."""
        since_ns = self._busy_since_ns
        return (self._clock.monotonic_ns() - since_ns) / 1e9 if since_ns else 0.0

    def staged(self, target: Flushed, size_bytes: int) -> None:
        """Loop: `target` has staged so many bytes."""
        if not target.marked:
            target.marked = True
            if not self._marked and not self._taking_in:
                self._loop.call_soon(self._hand_over)
            self._marked.append(target)
        self._marked_bytes += size_bytes
        self.staged_bytes += size_bytes
        if self.staged_bytes >= self.staged_bytes_max and not self.backpressured:
            self.backpressured = True
            self.backpressure_count += 1
        if self._marked_bytes >= EARLY_BYTES:
            self._hand_over()

    def on_capacity(self, callback: Callable[[], None]) -> None:
        """Loop: call `callback` whenever it is backpressured no more."""
        self._on_room.append(callback)

    def limit_staged(self, staged_bytes_max: int) -> None:
        """Loop: another limit from now on."""
        self.staged_bytes_max = staged_bytes_max
        self._written(0)

    def enqueue(self, target: Arriving | None, size_bytes: int) -> None:
        """Loop: so many bytes came for `target` to take in at the end of this turn; None for one that will anyway."""
        if target is not None:
            if not self._arrived:
                self._loop.call_soon(self._hand_over)
            self._arrived.append(target)
        self._arrived_bytes += size_bytes
        if self._arrived_bytes >= EARLY_BYTES:
            self._hand_over()

    def _take_in(self) -> None:
        arrived, self._arrived, self._arrived_bytes = self._arrived, [], 0
        self._taking_in = True
        try:
            for target in arrived:
                self._take_in_one(target)
        finally:
            self._taking_in = False

    def _take_in_one(self, target: Arriving) -> None:
        try:
            target.drain()
        except Exception as error:  # noqa: BLE001 - outermost: a fault in one partition must not stop the others
            self._log.error("staging went wrong in a way that should not be", exc_info=error)
            target.flush_failed(StorageError(f"a fault in Logboom stopped this partition: {error!r}"))
            target.drain()

    def _hand_over(self) -> None:
        if self._arrived:
            self._take_in()
        if self._marked:
            for target in self._marked:
                target.marked = False
            self._mailbox.put(_Marked(self._marked, self._marked_bytes))
            self._marked = []
            self._marked_bytes = 0

    def _written(self, size_bytes: int) -> None:
        """Loop: so much of what was handed over is staged no more."""
        self.staged_bytes -= size_bytes
        if self.backpressured and self.staged_bytes < self.staged_bytes_max:
            self.backpressured = False
            for callback in self._on_room:
                callback()

    async def run(self, function: Callable[[], Result]) -> Result:
        """Run a function of a log on the thread that alone may change its files, after all that was marked before.

        A StorageError or OSError from it takes the log dir offline, RetriableStorageError excepted, and is raised here
        too.
        """
        self._hand_over()
        future: asyncio.Future[Result] = self._loop.create_future()
        self._mailbox.put(_Job(function, future))
        return await future

    def disk_failed(self, error: OSError) -> None:
        """Any thread: a sync of this log dir failed elsewhere, so it takes no more writes either."""
        self._fail(error)

    async def stop(self) -> None:
        """Finish all that was marked, tell of it, and end the thread."""
        await self.run(lambda: None)
        self._mailbox.put(None)
        await self._loop.run_in_executor(None, self._thread.join, STOP_JOIN_S)
        self._helpers.shutdown(wait=False)

    # --- on the thread ------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            targets, size_bytes, jobs, last = self._take()
            for start in range(0, len(targets), ROUND_MAX):
                ended = start + ROUND_MAX >= len(targets)
                self._round(targets[start : start + ROUND_MAX], size_bytes if ended else 0)
            for job in jobs:
                self._busy_since_ns = self._clock.monotonic_ns()
                self._do(job)
            self._busy_since_ns = 0
            if last:
                return

    def _take(self) -> tuple[list[Flushed], int, list[_Job], bool]:
        """Wait for something, then take everything that is there. A job ends the taking, to keep its place in line."""
        targets: dict[Flushed, None] = {}
        size_bytes = 0
        item = self._mailbox.get()
        try:
            while True:
                if item is None:
                    return list(targets), size_bytes, [], True
                if isinstance(item, _Job):
                    return list(targets), size_bytes, [item], False
                targets.update(dict.fromkeys(item.targets))
                size_bytes += item.size_bytes
                item = self._mailbox.get_nowait()
        except Empty:
            return list(targets), size_bytes, [], False

    def _round(self, targets: list[Flushed], size_bytes: int) -> None:
        self._busy_since_ns = started_ns = self._clock.monotonic_ns()
        outcomes = self._flush_all([target for target in targets if not target.blocked])
        self._counters.flush_rounds += 1
        self._counters.flushed_partitions += len(outcomes)
        self._counters.flush_ns += self._clock.monotonic_ns() - started_ns
        self._loop.call_soon_threadsafe(self._deliver, outcomes, size_bytes)

    def _flush_all(self, targets: list[Flushed]) -> list[_Outcome]:
        """Flush each; many share the helpers, since syncs of several files at once cost little more than one."""
        lanes = min(len(targets), self._threads)
        if lanes < LANES_FROM:
            return [(target, self._flush(target)) for target in targets]
        helped = [self._helpers.submit(self._flush_lane, targets[lane::lanes]) for lane in range(1, lanes)]
        outcomes = self._flush_lane(targets[::lanes])
        for lane in helped:
            outcomes += lane.result()
        return outcomes

    def _flush_lane(self, targets: list[Flushed]) -> list[_Outcome]:
        return [(target, self._flush(target)) for target in targets]

    def _flush(self, target: Flushed) -> Offset | LogboomError:
        if self._failure is not None:
            target.blocked = True
            return self._failure
        try:
            return target.log.flush(sync=target.syncs)
        except RetriableStorageError as error:
            target.blocked = True
            return error
        except (StorageError, OSError) as error:
            target.blocked = True
            return self._fail(error)
        except Exception as error:  # noqa: BLE001 - the outermost loop of this thread: a fault of ours stops one log
            target.blocked = True
            self._log.error("flush went wrong in a way that should not be", exc_info=error)
            return StorageError(f"a fault in Logboom stopped this partition: {error!r}")

    def _do(self, job: _Job) -> None:
        try:
            result = job.function()
        except RetriableStorageError as error:
            self._settle(job.future, error=error)
        except (StorageError, OSError) as error:
            self._settle(job.future, error=self._fail(error))
        except Exception as error:  # noqa: BLE001 - the outermost loop of this thread: whoever asked is told
            self._settle(job.future, error=error)
        else:
            self._settle(job.future, result=result)

    def _fail(self, error: StorageError | OSError) -> StorageError:
        with self._failing:
            if self._failure is None:
                told = error if isinstance(error, StorageError) else StorageError(f"the disk failed: {error}")
                self._failure = told
                self._loop.call_soon_threadsafe(self._on_failure, told)
            return self._failure

    def _settle(self, future: asyncio.Future[Any], *, result: Any = None, error: Exception | None = None) -> None:
        self._loop.call_soon_threadsafe(_settle, future, result, error)

    # --- on the loop again --------------------------------------------------------------------------------------

    def _deliver(self, outcomes: list[_Outcome], size_bytes: int) -> None:
        self._written(size_bytes)
        for target, outcome in outcomes:
            try:
                if isinstance(outcome, LogboomError):
                    target.flush_failed(outcome)
                else:
                    target.flushed(outcome)
            except Exception as error:  # noqa: BLE001 - outermost: a fault in one partition must not stop the others
                self._log.error("completing a flush went wrong", exc_info=error)
                target.blocked = True
                target.flush_failed(StorageError(f"a fault in Logboom stopped this partition: {error!r}"))


def _settle(future: asyncio.Future[Any], result: Any, error: Exception | None) -> None:
    if future.done():
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(result)
