"""Appends that wait for their acks, and callbacks that wait for changes of a partition.

Pure: offsets and callbacks, no log, no loop. An exception in one callback does not keep the others from being called.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, TypeAlias

from logboom.base.errors import LogboomError
from logboom.base.ids import Offset


class AppendResult(NamedTuple):
    """The result of an append."""

    base_offset: Offset
    log_append_time_ms: int
    """-1 unless the stream stamps its own time."""
    log_start_offset: Offset


Done: TypeAlias = Callable[[AppendResult | LogboomError], None]
"""Called once, on the loop, after `append` returned."""


class RunResult(NamedTuple):
    """The results of the appends of a run."""

    outcomes: Sequence[Offset | LogboomError]
    """For each batch, in order, its base offset, or the error why it was refused."""
    log_append_time_ms: int
    """-1 unless the stream stamps its own time."""
    log_start_offset: Offset


RunDone: TypeAlias = Callable[[RunResult], None]
"""Called once, on the loop, after `append_run` returned."""


def single(done: Done, result: RunResult) -> None:
    """Give the result of a run of one batch to the callback of a single append."""
    (outcome,), time_ms, start = result
    done(outcome if isinstance(outcome, LogboomError) else AppendResult(outcome, time_ms, start))


def refused(result: RunResult, error: LogboomError, *, safe_end: int) -> RunResult:
    """The result with `error` in place of every offset that is not below `safe_end`."""
    outcomes = [
        outcome if isinstance(outcome, LogboomError) or 0 <= outcome < safe_end else error
        for outcome in result.outcomes
    ]
    return RunResult(outcomes, result.log_append_time_ms, result.log_start_offset)


def deliver_all(answers: Iterable[tuple[RunDone, RunResult]]) -> None:
    """Call every callback even if one raises; the first exception is raised at the end."""
    fault: Exception | None = None
    for done, result in answers:
        try:
            done(result)
        except Exception as error:  # noqa: BLE001 - raised again below, once all other appends are answered
            fault = fault or error
    if fault is not None:
        raise fault


class AckWaiters:
    """Appends that are answered once the log is safe up to an offset each. The offsets never go down."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: deque[tuple[int, RunDone, RunResult]] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, needed: int, done: RunDone, result: RunResult) -> None:
        """Answer `done` once everything below `needed` is safe, never before the appends that were added earlier."""
        waiting = self._waiting
        # A repeated batch may need less than those before it; it then waits with them, so that acks keep their order.
        if waiting and waiting[-1][0] > needed:
            needed = waiting[-1][0]
        waiting.append((needed, done, result))

    def answer(self, reached: int) -> None:
        """Everything below `reached` is safe."""
        waiting = self._waiting
        while waiting and waiting[0][0] <= reached:
            _, done, result = waiting.popleft()
            done(result)

    def take(self) -> list[tuple[RunDone, RunResult]]:
        """Remove all; what they would have been answered."""
        waiting = [(done, result) for _, done, result in self._waiting]
        self._waiting.clear()
        return waiting

    def refuse(self, error: LogboomError, *, safe_end: int) -> list[tuple[RunDone, RunResult]]:
        """Remove all; their answers, with `error` for whatever is not below `safe_end`."""
        return [(done, refused(result, error, safe_end=safe_end)) for done, result in self.take()]

    def refuse_from(self, end: int, error: LogboomError) -> list[tuple[RunDone, RunResult]]:
        """Nothing lies at `end` and above it any more, nor will what was to lie there. Remove those of which nothing is
        left; their answers. Others go on to wait for what is below, and get `error` for the rest."""
        waiting, self._waiting = self._waiting, deque()
        answers: list[tuple[RunDone, RunResult]] = []
        for needed, done, result in waiting:
            left = result if needed <= end else refused(result, error, safe_end=end)
            if needed <= end or any(not isinstance(outcome, LogboomError) for outcome in left.outcomes):
                self._waiting.append((min(needed, end), done, left))
            else:
                answers.append((done, left))
        return answers


class Watchers:
    """Callbacks that are called on every change of a partition until they are removed."""

    __slots__ = ("_callbacks", "_last_handle")

    def __init__(self) -> None:
        self._callbacks: dict[int, Callable[[], None]] = {}
        self._last_handle = 0

    def __len__(self) -> int:
        return len(self._callbacks)

    def add(self, callback: Callable[[], None]) -> int:
        """Returns a handle by which to remove the callback."""
        self._last_handle += 1
        self._callbacks[self._last_handle] = callback
        return self._last_handle

    def remove(self, handle: int) -> None:
        """Call it no more. Idempotent."""
        self._callbacks.pop(handle, None)

    def call(self) -> None:
        """Something changed. A callback may add and remove others."""
        if self._callbacks:
            for callback in tuple(self._callbacks.values()):
                callback()
