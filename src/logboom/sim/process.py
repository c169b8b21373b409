"""One simulated process: its event loops, its threads, its clock, its random values and its log."""

import asyncio
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any, TypeVar

import structlog
from structlog.typing import EventDict, FilteringBoundLogger

from logboom.broker.runtime import Runtime
from logboom.sim.coverage import LOGGED
from logboom.sim.loop import SimLoop
from logboom.sim.machine import SimClock, SimIds
from logboom.sim.network import SimNetwork
from logboom.sim.scheduler import Scheduler
from logboom.sim.threads import SimWorkers

Result = TypeVar("Result")
_DEFAULT_THREADS = 4


class ProcessEndedError(Exception):
    """The process was killed before it had done what it was asked for."""


class Process:
    """Life: begins when it is made; `kill` ends it."""

    def __init__(
        self,
        name: str,
        scheduler: Scheduler,
        network: SimNetwork,
        fork: Callable[[str], Random],
        clock: SimClock | None = None,
    ) -> None:
        self.name = name
        self._scheduler = scheduler
        self._network = network
        self.loop = SimLoop(name, scheduler, network)  # type: ignore[abstract]  # a simulated loop has no sockets, pipes, signals
        self._loops = [self.loop]
        workers = SimWorkers(self.loop, fork("threads"))
        self.runtime = Runtime(
            clock=clock or SimClock(scheduler), ids=SimIds(fork("ids")), workers=workers, start_loop=self._start_loop
        )
        self.loop.set_default_executor(workers.pool("default", _DEFAULT_THREADS))
        self.log: FilteringBoundLogger = structlog.wrap_logger(
            _Nothing(),
            processors=[self._record],
            wrapper_class=structlog.make_filtering_bound_logger("debug"),
            cache_logger_on_first_use=False,
        )

    def _start_loop(self, name: str) -> "SecondLoop":
        """A loop beside the process's first, which ends with it. What it leaves uncaught is a fault of the process."""
        loop = SimLoop(f"{self.name}/{name}", self._scheduler, self._network)  # type: ignore[abstract]  # as above
        loop.life.host = self.loop.life.host
        loop.life.faults = self.loop.life.faults
        self.loop.life.at_end(loop.kill)
        self._loops.append(loop)
        return SecondLoop(loop)

    def _record(self, _: Any, level: str, event: EventDict) -> str:
        line = {"level": level, **event}
        if (counted := LOGGED.get(event["event"])) is not None:
            self._scheduler.trace.met[counted] += 1
        text = " ".join(f"{name}={value!r}" for name, value in line.items() if name != "exc_info")
        self._scheduler.record("log", f"{self.name} {text}")
        if isinstance(error := event.get("exc_info"), BaseException):
            # The code logs with a stack what it holds for a fault of its own.
            self.loop.life.faults.append(f"{self.name}: {event.get('event')}: {error!r}")
        return text

    def run(self, work: Coroutine[Any, Any, Result]) -> "asyncio.Future[Result]":
        """Run a coroutine in this process; a future for the process that calls. ProcessEndedError if it is killed."""
        caller = asyncio.get_running_loop()
        result: asyncio.Future[Result] = caller.create_future()

        def begin() -> None:
            task = self.loop.create_task(work)
            task.add_done_callback(lambda task: caller.call_soon(_copy, task, result))

        def killed() -> None:
            caller.call_soon(_fail, result, ProcessEndedError(self.name))

        self.loop.life.at_end(killed)
        self.loop.call_soon(begin)
        return result

    def pause(self) -> None:
        """Stop it where it stands, as SIGSTOP does: nothing of it runs, its connections stay, and time goes on."""
        self._scheduler.record("pause", self.name)
        for loop in self._loops:
            loop.life.freeze()

    def resume(self) -> None:
        """Let it go on, as SIGCONT does."""
        self._scheduler.record("resume", self.name)
        for loop in self._loops:
            loop.life.thaw()

    def kill(self) -> None:
        """End it as SIGKILL does."""
        self._scheduler.record("kill", self.name)
        self.loop.kill()


class SecondLoop:
    """An event loop of a process beside its first: `broker.runtime.SecondLoop`, simulated."""

    def __init__(self, loop: SimLoop) -> None:
        self.loop = loop

    def stop(self) -> None:
        """End it."""
        self.loop.kill()


class _Nothing:
    """A logger that drops its lines; they were recorded on their way."""

    def msg(self, text: str) -> None:
        pass

    debug = info = warning = error = critical = msg


def _copy(task: "asyncio.Task[Any]", result: "asyncio.Future[Any]") -> None:
    if result.done():
        return
    if task.cancelled():
        result.cancel()
    elif (error := task.exception()) is not None:
        result.set_exception(error)
    else:
        result.set_result(task.result())


def _fail(result: "asyncio.Future[Any]", error: Exception) -> None:
    if not result.done():
        result.set_exception(error)
        result.exception()  # seen: whoever asked may be gone
