"""Simulated time, and the order of everything that happens in it.

One Scheduler runs the callbacks of all event loops of a simulation, one after the other, in the order in which they
were asked for. While something can run, time stands still; when nothing can, it jumps to the next timer. So an hour
without events costs nothing, and nothing ever waits for the machine below.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush
from types import MethodType
from typing import Final, Protocol

from logboom.sim.trace import Trace

START_S: Final = 1_000.0
"""Where simulated time begins; not at zero, which code may take for "never"."""

_STEPS_WITHOUT_TIME_MAX: Final = 1_000_000


class SimulationError(Exception):
    """The simulation itself cannot go on."""


class StuckError(SimulationError):
    """What was waited for can never happen, or not in the time it was given; the text names what waits."""


class Life(Protocol):
    """Whether the process of a loop runs."""

    alive: bool
    """False once it is dead: none of its callbacks runs any more."""
    runs: bool
    """False while it stands still too."""
    host: str
    """The machine that it runs on."""

    def hold(self, step: "Step") -> None:
        """Keep a step that is due while the process stands still, or forget it if the process is dead."""

    def waiting(self) -> list[str]:
        """What it waits for, for people."""


class Loop(Protocol):
    """The event loop of one simulated process."""

    @property
    def life(self) -> Life:
        """That of its process."""

    def enter(self) -> None:
        """Called before a callback of the loop is run, unless one of it ran last."""


class Step(Protocol):
    """One callback of a loop."""

    @property
    def loop(self) -> Loop:
        """The loop it belongs to."""

    def run(self) -> None:
        """Run it, unless it was cancelled."""

    @property
    def is_cancelled(self) -> bool:
        """Whether it was."""

    @property
    def name(self) -> str:
        """The callback's name, the same in every process."""


class Scheduler:
    """Time and order of one simulation. Everything happens on the thread that calls `run_until`."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.now_s = START_S
        self.loops: list[Loop] = []
        self.after_step: Callable[[Loop], None] = lambda loop: None
        """Called after every step with its loop; watches, and changes nothing."""
        self.after_jump: Callable[[], None] = lambda: None
        """Called whenever time has moved on, before what is due then; watches, and changes nothing."""
        self._ready: deque[Step] = deque()
        self.soon: Final = self._ready.append
        """Have a step run after all that are ready now."""
        self._timers: list[tuple[float, int, Step]] = []
        self._sequence = 0
        self._steps = 0
        self._failure: SimulationError | None = None
        self._entered: Loop | None = None
        """The loop whose callback runs, or ran last."""

    def add(self, loop: Loop) -> None:
        """A process has begun."""
        self.loops.append(loop)

    def at(self, when_s: float, step: Step) -> None:
        """Run a step at a time; those of one time in the order in which they were asked for."""
        self._sequence += 1
        heappush(self._timers, (when_s, self._sequence, step))

    def pass_time(self, seconds: float) -> None:
        """The callback that runs takes so long: it ends that much later, and so does everything that waits for it.

        All processes are late by it, not its own alone, as on a machine with one processor.
        """
        self.now_s += seconds

    def fail(self, error: SimulationError) -> None:
        """End the run with this error after the step that runs, whatever simulated code makes of it."""
        self._failure = self._failure or error

    def record(self, kind: str, what: str) -> None:
        """Put something into the trace, with the time."""
        self.trace.record(self.now_s, kind, what)

    def run_until(self, done: Callable[[], bool], deadline_s: float) -> None:
        """Run until `done`. Raises StuckError where nothing can happen any more, or at `deadline_s`; what `fail` was
        told."""
        ready, record = self._ready, self.trace.record
        try:
            while not done():
                if not ready:
                    self._jump(deadline_s)
                step = ready.popleft()
                if step.is_cancelled:
                    continue
                loop = step.loop
                if not loop.life.runs:
                    loop.life.hold(step)
                    continue
                self._steps += 1
                if self._steps > _STEPS_WITHOUT_TIME_MAX:
                    raise StuckError(f"{_STEPS_WITHOUT_TIME_MAX} steps without any time passing, the last: {step.name}")
                record(self.now_s, "step", step.name)
                if loop is not self._entered:
                    self._entered = loop
                    loop.enter()
                step.run()
                self.after_step(loop)
                if self._failure is not None:
                    raise self._failure
        finally:
            self._entered = None
            asyncio._set_running_loop(None)  # noqa: SLF001 - asyncio's own way for the makers of event loops

    def _jump(self, deadline_s: float) -> None:
        """Move time to the next timer, and make all that are due ready."""
        timers = self._timers
        while timers:
            when_s, _, step = next_one = heappop(timers)
            if not step.is_cancelled and step.loop.life.alive:
                break
        else:
            raise StuckError(f"nothing can happen any more at {self.now_s:.3f} s; {self._what_waits()}")
        if when_s > deadline_s:
            heappush(timers, next_one)
            raise StuckError(f"not done at {deadline_s:.3f} s of simulated time; {self._what_waits()}")
        if when_s > self.now_s:
            self.now_s = when_s
        self._steps = 0
        self.soon(step)
        while timers and timers[0][0] <= self.now_s:
            self.soon(heappop(timers)[2])
        self.after_jump()

    def _what_waits(self) -> str:
        waits = [line for loop in self.loops if loop.life.alive for line in loop.life.waiting()]
        return "what waits: " + ("; ".join(waits) or "nothing")


def callback_name(callback: object) -> str:
    """A name without addresses, so that it is the same in every process."""
    if type(callback) is MethodType:
        return callback.__func__.__qualname__
    inner = getattr(callback, "func", callback)  # functools.partial
    owner = getattr(inner, "__self__", None)
    if isinstance(owner, asyncio.Task):
        return f"task {task_name(owner)}"
    name = getattr(inner, "__qualname__", None)
    return name if isinstance(name, str) else type(inner).__name__


def task_name(task: "asyncio.Task[object]") -> str:
    """What a task runs. Its own name will not do: asyncio numbers tasks through the whole life of a process."""
    coroutine = task.get_coro()
    name = getattr(coroutine, "__qualname__", None)
    return name if isinstance(name, str) else type(coroutine).__name__
