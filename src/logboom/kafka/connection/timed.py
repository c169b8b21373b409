"""Measuring the time that a handler spends on the event loop, without the time it waits."""

from collections.abc import Awaitable, Callable, Generator
from typing import Any, Generic, TypeVar

Result = TypeVar("Result")


class TimedAwaitable(Generic[Result]):
    """Awaits `work` and reports the nanoseconds of its steps alone to `on_done`, just before the result is there."""

    def __init__(self, work: Awaitable[Result], on_done: Callable[[int], None], now_ns: Callable[[], int]) -> None:
        self._work = work
        self._now_ns = now_ns
        self._on_done = on_done

    def __await__(self) -> Generator[Any, Any, Result]:
        # The event loop drives a coroutine by send and throw, once per step. This generator stands between the two and
        # passes everything on, so that it can read the clock around each step.
        steps: Any = self._work.__await__()
        spent_ns = 0
        error: BaseException | None = None
        while True:
            started_ns = self._now_ns()
            try:
                step = steps.send(None) if error is None else steps.throw(error)
            except StopIteration as done:
                self._on_done(spent_ns + self._now_ns() - started_ns)
                result: Result = done.value
                return result
            spent_ns += self._now_ns() - started_ns
            error = None
            try:
                yield step
            except GeneratorExit:
                steps.close()
                raise
            except BaseException as thrown:  # noqa: BLE001 - a cancellation, for example: passed on to the handler
                error = thrown
