"""One run of one seed: the scheduler, the network and the processes, and all chance drawn from the seed."""

from collections.abc import Callable, Coroutine
from random import Random
from typing import Any, TypeVar

from logboom.sim.link_config import LinkConfig
from logboom.sim.machine import SimClock
from logboom.sim.network import SimNetwork
from logboom.sim.process import Process
from logboom.sim.scheduler import Scheduler, SimulationError
from logboom.sim.trace import Trace

Result = TypeVar("Result")
_RUN_MAX_S = 86_400.0


class FaultError(SimulationError):
    """Simulated code raised an error that nobody caught, or logged one as a fault of its own."""


class Simulation:
    """Life: made with a seed, `run` once."""

    def __init__(
        self, seed: int, *, link: LinkConfig | None = None, watch: Callable[[str], None] | None = None
    ) -> None:
        """`watch` is called with every line of the trace."""
        self.seed = seed
        self.trace = Trace(watch)
        self.scheduler = Scheduler(self.trace)
        self.network = SimNetwork(self.scheduler, self.fork("network"), link)
        self._processes: list[Process] = []
        self.director = self.process("director")
        """The process that `run` is about; it starts and ends the others."""

    def fork(self, name: str) -> Random:
        """Chance of its own for one part, so that what another part draws does not change it."""
        return Random(f"{self.seed}/{name}")

    def process(self, name: str, clock: SimClock | None = None) -> Process:
        """A new process, by default with a clock that is right. Several may have one name, one after the other."""
        number = len(self._processes)
        process = Process(name, self.scheduler, self.network, lambda part: self.fork(f"{number}/{name}/{part}"), clock)
        self._processes.append(process)
        return process

    def run(self, main: Coroutine[Any, Any, Result], *, max_s: float = _RUN_MAX_S) -> Result:
        """Run a coroutine in a process of its own until it is done, then end all processes.

        Raises what it raises; StuckError where it cannot go on, or not within `max_s` seconds of simulated time;
        FaultError for an error of simulated code that nobody caught.
        """
        try:
            result: Result = self.director.loop.run(main, max_s)
        finally:
            for process in self._processes:
                process.loop.kill()
        self._check_faults()
        return result

    def _check_faults(self) -> None:
        faults = [fault for process in self._processes for fault in process.loop.life.faults]
        if faults:
            raise FaultError("; ".join(faults))
