"""The life of a simulated process, or of one of its loops: it runs, stands still, or is dead.

What ends with it, and who can say what it waits for, is registered here.
"""

from collections.abc import Callable

from logboom.sim.coverage import STEPS_HELD
from logboom.sim.scheduler import Scheduler, Step


class Life:
    """Begins when it is made; ended by `end`."""

    def __init__(self, name: str, scheduler: Scheduler) -> None:
        self.name = name
        self.host = name
        """The address that peers see."""
        self.alive = self.runs = True
        self.faults: list[str] = []
        """Errors that nobody caught; each of them is a fault of the code that is simulated."""
        self._scheduler = scheduler
        self._held: list[Step] | None = None
        self._at_end: list[Callable[[], None]] = []
        self._waiting: list[Callable[[], list[str]]] = []

    def hold(self, step: Step) -> None:
        """Keep a step that is due until `thaw`, if it stands still; forget it if it is dead."""
        if self.alive and self._held is not None:
            self._held.append(step)

    @property
    def stands_still(self) -> bool:
        """Whether it was frozen and not thawed."""
        return self._held is not None

    def freeze(self) -> None:
        """Run nothing until `thaw`, as a process does that got SIGSTOP; what arrives meanwhile waits. Idempotent."""
        if self._held is None:
            self._held = []
            self.runs = False

    def thaw(self) -> None:
        """Go on with all that has become due meanwhile, in its order. Idempotent."""
        held, self._held = self._held or [], None
        self.runs = self.alive
        self._scheduler.trace.met[STEPS_HELD] += bool(held)
        for step in held:
            self._scheduler.soon(step)

    def at_end(self, callback: Callable[[], None]) -> None:
        """Call `callback` when it ends: connections, threads and further loops end with it."""
        self._at_end.append(callback)

    def end(self) -> None:
        """End as SIGKILL ends a process. Once."""
        self.alive = self.runs = False
        for callback in self._at_end:
            callback()

    def tell_waiting(self, told: Callable[[], list[str]]) -> None:
        """Have `told` asked for what is waited for."""
        self._waiting.append(told)

    def waiting(self) -> list[str]:
        """What is waited for, for people."""
        return [f"{self.name}: {line}" for told in self._waiting for line in told()]
