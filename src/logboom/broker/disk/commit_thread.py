"""The thread of a log dir that writes and syncs, and runs every other job that changes a log's files.

It takes all rounds that arrived while it was busy as one, flushes each log in them, and notifies the loop of the whole
with one call: the more arrives, the more one sync covers. A job keeps its place in the queue. The thread only waits for
the disk; which log is flushed when, and who is notified, is decided by the flusher.
"""

import asyncio
from collections.abc import Callable, Iterable
from functools import partial
from queue import Empty
from typing import Any, Final, NamedTuple

from logboom.base.errors import RetriableStorageError, StorageError
from logboom.base.ids import Offset
from logboom.base.ports import Mailbox
from logboom.broker.disk.failure import LogDirFailure
from logboom.broker.disk.flush_runner import FlushRunner, Outcome
from logboom.broker.group_commit import FlushTarget
from logboom.broker.metrics import Counters
from logboom.broker.runtime import Runtime

LANES_FROM: Final = 3
"""Fewer logs than this are synced one after the other: waking helpers would cost what they save."""
ROUND_MAX: Final = 64
"""After this many logs the loop is notified of those that are done, so that they do not wait for a thousand others."""


class Round(NamedTuple):
    """What was staged in one turn of the loop."""

    targets: Iterable[FlushTarget]
    size_bytes: int


class Job:
    """A function to run between rounds, and the future of its result."""

    __slots__ = ("function", "future")

    def __init__(self, function: Callable[[], Any], future: asyncio.Future[Any]) -> None:
        self.function = function
        self.future = future


class CommitThread:
    """See the module. Life: made on the loop, which it calls back; `stop` ends it after all that was put before."""

    def __init__(
        self,
        *,
        runtime: Runtime,
        threads: int,
        failure: LogDirFailure,
        runner: FlushRunner,
        counters: Counters,
        deliver: Callable[[list[Outcome], int], None],
        on_settled: Callable[[], None],
    ) -> None:
        """`on_settled` is called on the loop whenever a job has ended; for rounds `deliver` says so."""
        self._loop = asyncio.get_running_loop()
        self._clock = runtime.clock
        self._failure = failure
        self._counters = counters
        self._runner = runner
        self._deliver = deliver
        self._on_settled = on_settled
        self._put_count = self._ended_count = 0
        self._mailbox: Mailbox[Round | Job | None] = runtime.workers.mailbox()
        self._caught_up: Mailbox[None] = runtime.workers.mailbox()
        self._busy_since_ns = 0
        self._lanes_max = threads
        self._helpers = runtime.workers.pool("flush", threads)
        self._thread = runtime.workers.thread("flusher", self._run)

    @property
    def busy_s(self) -> float:
        """For how long it has been busy with its current round or job; 0 if it waits for one."""
        since_ns = self._busy_since_ns
        return (self._clock.monotonic_ns() - since_ns) / 1e9 if since_ns else 0.0

    @property
    def idle(self) -> bool:
        """Loop: whether everything that was put has ended."""
        return self._put_count == self._ended_count

    def put(self, item: Round | Job) -> None:
        """Loop: hand over a round, whose outcomes go to `deliver`, or a job, whose result goes to its future."""
        self._put_count += 1
        self._mailbox.put(item)

    async def stop(self, timeout_s: float) -> None:
        """End it after all that was put before, which is given so much time."""
        self._mailbox.put(None)
        await self._loop.run_in_executor(None, self._thread.join, timeout_s)
        self._helpers.shutdown(wait=False)

    # --- on the thread ------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            rounds, job, last = self._take()
            self._flush_rounds(rounds)
            if job is not None:
                self._wait_for_loop()
                self._busy_since_ns = self._clock.monotonic_ns()
                self._run_job(job)
            self._busy_since_ns = 0
            if last:
                return

    def _take(self) -> tuple[list[Round], Job | None, bool]:
        """Wait for something, then take everything that is there, up to the first job or the end."""
        rounds: list[Round] = []
        item = self._mailbox.get()
        try:
            while True:
                if item is None:
                    return rounds, None, True
                if isinstance(item, Job):
                    return rounds, item, False
                rounds.append(item)
                item = self._mailbox.get_nowait()
        except Empty:
            return rounds, None, False

    def _flush_rounds(self, rounds: list[Round]) -> None:
        """Flush the targets of all rounds as one."""
        targets = list(dict.fromkeys(target for one in rounds for target in one.targets))
        size_bytes = sum(one.size_bytes for one in rounds)
        for start in range(0, len(targets), ROUND_MAX):
            if start + ROUND_MAX < len(targets):
                self._flush_some(targets[start : start + ROUND_MAX], 0)
                continue
            self._flush_some(targets[start:], size_bytes, ended=len(rounds))

    def _flush_some(self, targets: list[FlushTarget], size_bytes: int, *, ended: int = 0) -> None:
        self._busy_since_ns = started_ns = self._clock.monotonic_ns()
        outcomes = self._flush_all([target for target in targets if target not in self._runner.blocked])
        self._counters.flush_rounds += 1
        self._counters.flushed_partitions += len(outcomes)
        self._counters.flush_ns += self._clock.monotonic_ns() - started_ns
        self._ended_count += ended
        self._loop.call_soon_threadsafe(self._deliver, outcomes, size_bytes)

    def _flush_all(self, targets: list[FlushTarget]) -> list[Outcome]:
        """Flush each; many share the helpers, since syncs of several files at once cost little more than one."""
        lanes = min(len(targets), self._lanes_max)
        if lanes < LANES_FROM:
            return self._flush_lane(targets)
        helped = [self._helpers.submit(self._flush_lane, targets[lane::lanes]) for lane in range(1, lanes)]
        outcomes = self._flush_lane(targets[::lanes])
        for lane in helped:
            outcomes += lane.result()
        return outcomes

    def _flush_lane(self, targets: list[FlushTarget]) -> list[Outcome]:
        return [
            self._runner.run(
                target, partial(target.log.flush, sync=target.syncs, on_part=partial(self._part_flushed, target))
            )
            for target in targets
        ]

    def _part_flushed(self, target: FlushTarget, end: Offset) -> None:
        """The flush of `target` continues; everything below `end` is already safe."""
        outcomes: list[Outcome] = [(target, end)]
        self._loop.call_soon_threadsafe(self._deliver, outcomes, 0)

    def _wait_for_loop(self) -> None:
        """Return once the targets of failed flushes have taken back what they had staged.

        They do so on the loop and under the log's lock, for which the loop would wait as long as a job of that log
        holds it; on a disk that hangs that is for ever. Nor may a job write what is about to be taken back.
        """
        if self._runner.blocked:
            self._loop.call_soon_threadsafe(self._caught_up.put, None)
            self._caught_up.get()

    def _run_job(self, job: Job) -> None:
        result: Any = None
        error: StorageError | None = None
        try:
            result = job.function()
        except RetriableStorageError as lack:
            error = lack
        except (StorageError, OSError) as fault:
            error = self._failure.report(fault)
        except Exception as fault:  # noqa: BLE001 - the outermost loop of this thread: the caller gets it
            self._job_ended(job, None, fault)
            return
        self._job_ended(job, result, error)

    def _job_ended(self, job: Job, result: Any, error: Exception | None) -> None:
        self._ended_count += 1
        self._loop.call_soon_threadsafe(self._settle, job.future, result, error)

    # --- on the loop again --------------------------------------------------------------------------------------

    def _settle(self, future: asyncio.Future[Any], result: Any, error: Exception | None) -> None:
        if not future.done():
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(result)
        self._on_settled()
