"""Group commit of one log dir, on the loop: what is staged when, what is handed over, and who is told of the outcome.

    enqueue -> (end of the loop's turn) drain each target -> round -> commit thread -> outcomes -> flushed, flush_failed

All that arrived in one turn of the loop goes into one round, and the loop never waits for the disk. Also counts what is
staged and not yet written: above a limit the front ends stop reading requests (back pressure) until the disk took some.

Knows logs by `group_commit.FlushTarget`, the disk's failure and the commit thread; not what waits for a log.
"""

import asyncio
from collections.abc import Callable
from typing import Final, TypeVar

from structlog.typing import FilteringBoundLogger

from logboom.base.errors import LogboomError, RetriableStorageError, StorageError
from logboom.base.units import KIB
from logboom.broker.disk.commit_thread import CommitThread, Job, Round
from logboom.broker.disk.failure import LogDirFailure
from logboom.broker.disk.flush_runner import FlushRunner, Outcome, internal_error
from logboom.broker.disk.inline_commit import InlineCommit
from logboom.broker.group_commit import FlushTarget
from logboom.broker.metrics import Counters
from logboom.broker.runtime import Runtime

Result = TypeVar("Result")
STOP_JOIN_S: Final = 30.0
EARLY_BYTES: Final = 512 * KIB
"""With this much staged, the disk is given work at once, while the turn goes on."""


class Flusher:
    """`group_commit.GroupCommit`. Life: made and started on the loop, `stop`ped on the loop, once."""

    def __init__(
        self,
        *,
        runtime: Runtime,
        threads: int,
        counters: Counters,
        log: FilteringBoundLogger,
        on_failure: Callable[[StorageError], None],
        staged_bytes_max: int,
        inline: bool,
    ) -> None:
        """`inline`: whether the files of the log dir can be synced beside the loop (`Disk.start_async_syncs`)."""
        self.staged_bytes = 0
        """Bytes that were staged and not yet written, or taken back."""
        self.staged_bytes_max = staged_bytes_max
        self.backpressured = False
        """Whether front ends should stage nothing more until the disk has taken some."""
        self.backpressure_count = 0
        """How often that has begun."""
        self._on_capacity: list[Callable[[], None]] = []
        self._loop = asyncio.get_running_loop()
        self._log = log
        self._failure = LogDirFailure(lambda error: self._loop.call_soon_threadsafe(on_failure, error))
        self._enqueued: dict[FlushTarget, None] = {}
        self._enqueued_bytes = 0
        self._marked: dict[FlushTarget, int] = {}
        """What is staged and was not handed over, in bytes of each log."""
        self._marked_bytes = 0
        self._thread_is_due = False
        """Whether some of what is marked cannot be written on the loop: the next round is the thread's, so that other
        logs do not go before it for ever."""
        self._scheduled = False
        self._draining = False
        self._held: list[Job] = []
        self._runner = FlushRunner(self._failure, log)
        self._inline_commit: InlineCommit | None = None
        if inline:
            self._inline_commit = InlineCommit(
                clock=runtime.clock,
                workers=runtime.workers,
                runner=self._runner,
                counters=counters,
                deliver=self._deliver,
                begin_next=self._begin_next_round,
            )
        self._commit_thread = CommitThread(
            runtime=runtime,
            threads=threads,
            failure=self._failure,
            runner=self._runner,
            counters=counters,
            deliver=self._deliver,
            on_settled=self._send_waiting,
        )

    @property
    def failure(self) -> StorageError | None:
        """Why the log dir accepts no more writes; None if it does."""
        return self._failure.error

    @property
    def busy_s(self) -> float:
        """For how long the disk has been busy with its current write or sync; 0 if it has nothing to do."""
        return max(self._commit_thread.busy_s, self._inline_commit.busy_s if self._inline_commit is not None else 0.0)

    # --- arriving -----------------------------------------------------------------------------------------------

    def enqueue(self, target: FlushTarget, size_bytes: int) -> None:
        """So many bytes arrived for `target`, which is drained at the end of this turn of the loop."""
        self._enqueued[target] = None
        self._enqueued_bytes += size_bytes
        if self._enqueued_bytes >= EARLY_BYTES and not self._draining:
            self._hand_over()
        elif not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._end_of_turn)

    def flush_soon(self, target: FlushTarget) -> None:
        """Flush `target` at the end of this turn, whether or not anything arrived for it."""
        self._mark(target, 0)
        self.enqueue(target, 0)

    def _end_of_turn(self) -> None:
        self._scheduled = False
        self._hand_over()

    def _hand_over(self) -> None:
        """Let every target stage what arrived for it, and give what is staged to the disk."""
        enqueued, self._enqueued, self._enqueued_bytes = self._enqueued, {}, 0
        self._draining = True  # an ack given meanwhile may bring the next append, which waits for the next turn
        for target in enqueued:
            size_bytes = self._drain(target)
            if size_bytes:
                self._mark(target, size_bytes)
                if self._marked_bytes >= EARLY_BYTES:
                    self._send_round()
        self._draining = False
        self._send_round()

    def _drain(self, target: FlushTarget) -> int:
        try:
            return target.drain()
        except Exception as error:  # noqa: BLE001 - outermost: a fault in one partition must not stop the others
            self._log.error("staging failed on an internal error", exc_info=error)
            self._stop_target(target, error)
            return 0

    def _stop_target(self, target: FlushTarget, fault: Exception) -> None:
        """Stop a target that failed on an internal error; its appends get that error, and all other targets go on."""
        self._runner.blocked.add(target)
        try:
            target.flush_failed(internal_error(fault))
        except Exception as error:  # noqa: BLE001 - outermost, as above
            self._log.error("answering the appends of a stopped partition failed", exc_info=error)

    def _mark(self, target: FlushTarget, size_bytes: int) -> None:
        self._marked[target] = self._marked.get(target, 0) + size_bytes
        self._marked_bytes += size_bytes
        self.staged_bytes += size_bytes
        if self.staged_bytes >= self.staged_bytes_max and not self.backpressured:
            self.backpressured = True
            self.backpressure_count += 1

    def _send_round(self) -> None:
        """Write what is staged, on the loop or on the thread, or leave it for a later round.

        The two never work at the same time, so that the files of a log have one writer: while a sync runs beside the
        loop everything waits for it, and a round that is to be written on the loop waits for the thread.
        """
        if not self._marked:
            return
        inline = self._inline_commit
        if inline is not None:
            if inline.busy:
                return
            if not self._thread_is_due and inline.takes(self._marked, self._marked_bytes):
                if not self._commit_thread.idle:
                    return
                if self._begin_inline(inline):
                    return
        self._send_to_thread()

    def _begin_inline(self, inline: InlineCommit) -> bool:
        """Write what is marked on the loop. False: none of it was, and the thread has to do it now."""
        marked, self._marked, self._marked_bytes = self._marked, {}, 0
        for target, size_bytes in inline.begin(marked).items():
            self._marked[target] = self._marked.get(target, 0) + size_bytes
            self._marked_bytes += size_bytes
            self._thread_is_due = True
        return inline.busy

    def _begin_next_round(self) -> None:
        """A sync beside the loop has ended and its outcome is not delivered yet. The next round may begin; jobs wait
        for the delivery."""
        if not self._held:
            self._send_round()

    def _send_to_thread(self) -> None:
        if self._marked:
            self._commit_thread.put(Round(self._marked, self._marked_bytes))
            self._marked, self._marked_bytes, self._thread_is_due = {}, 0, False

    def _send_waiting(self) -> None:
        """A round or a job has ended: continue with what waited for it."""
        if self._inline_commit is not None and self._inline_commit.busy:
            return
        if self._held:
            held, self._held = self._held, []
            self._send_to_thread()  # what was staged before a job is flushed before it
            for job in held:
                self._commit_thread.put(job)
        else:
            self._send_round()

    # --- other work ---------------------------------------------------------------------------------------------

    async def flush(self, target: FlushTarget) -> None:
        """Flush what `target` has staged without an append; returns once the target was notified of the outcome."""
        self._mark(target, 0)
        await self.run(_nothing)

    async def run(self, function: Callable[[], Result]) -> Result:
        """Run a function of a log on the thread that alone may change its files, after all that was enqueued before.

        A StorageError or OSError from it takes the log dir offline, RetriableStorageError excepted, and is raised here
        too.
        """
        self._hand_over()
        future: asyncio.Future[Result] = self._loop.create_future()
        job = Job(function, future)
        if self._inline_commit is not None and self._inline_commit.busy:
            self._held.append(job)
        else:
            self._send_to_thread()
            self._commit_thread.put(job)
        return await future

    def disk_failed(self, error: OSError) -> None:
        """Any thread: a sync of this log dir failed elsewhere, so it takes no more writes either."""
        self._failure.report(error)

    async def stop(self) -> None:
        """Finish all that was enqueued, deliver the outcomes, and end the thread."""
        await self.run(_nothing)
        await self._commit_thread.stop(STOP_JOIN_S)

    # --- outcomes -----------------------------------------------------------------------------------------------

    def _deliver(self, outcomes: list[Outcome], size_bytes: int) -> None:
        self._written(size_bytes)
        for target, outcome in outcomes:
            try:
                if isinstance(outcome, LogboomError):
                    target.flush_failed(outcome)
                    if isinstance(outcome, RetriableStorageError):
                        self._runner.blocked.discard(target)
                else:
                    target.flushed(outcome)
            except Exception as error:  # noqa: BLE001 - outermost: a fault in one partition must not stop the others
                self._log.error("completing flush failed on an internal error", exc_info=error)
                self._stop_target(target, error)
        self._send_waiting()

    # --- back pressure ------------------------------------------------------------------------------------------

    def on_capacity(self, callback: Callable[[], None]) -> None:
        """Call `callback` whenever back pressure ends."""
        self._on_capacity.append(callback)

    def limit_staged(self, staged_bytes_max: int) -> None:
        """Change the limit on staged bytes."""
        self.staged_bytes_max = staged_bytes_max
        self._written(0)

    def _written(self, size_bytes: int) -> None:
        """So much of what was handed over is staged no more."""
        self.staged_bytes -= size_bytes
        if self.backpressured and self.staged_bytes < self.staged_bytes_max:
            self.backpressured = False
            for callback in self._on_capacity:
                callback()


def _nothing() -> None:
    """A job that is run to know that everything before it is done."""
