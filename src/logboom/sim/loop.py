"""An asyncio event loop in simulated time: the one a simulated process runs on.

It offers what the broker and its front ends use of asyncio: callbacks, timers, futures and tasks, executors, servers
and connections. It has no selector, no socket and no signal. Callbacks run in the order of `call_soon`, as asyncio
promises; `call_soon_threadsafe` is the same, since the threads of a simulation run one at a time (`threads`).

A process is one loop, its threads and its connections; `life` says whether it runs, and what ends with it. `kill` ends
it as SIGKILL does: no callback of it runs again.
"""

import asyncio
import contextlib
import contextvars
import math
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any, Final, Protocol, TypeVar, TypeVarTuple, Unpack

from logboom.sim.life import Life
from logboom.sim.scheduler import Scheduler, SimulationError, callback_name, task_name

Result = TypeVar("Result")
Args = TypeVarTuple("Args")
_RUN_MAX_S: Final = 86_400.0
_TASKS_KEPT_MIN: Final = 100
_CANCELLED: Final[Any] = vars(asyncio.Handle)["_cancelled"]
"""The field behind `Handle.cancelled`, which is a call for each step."""


class Network(Protocol):
    """What a loop's servers and connections are made by."""

    def listen(self, loop: "SimLoop", factory: Callable[[], asyncio.BaseProtocol], host: str, port: int) -> Any:
        """A server; it takes connections once it is told to."""

    async def connect(
        self, loop: "SimLoop", factory: Callable[[], asyncio.BaseProtocol], host: str, port: int
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        """A connection. Raises ConnectionRefusedError where nobody listens."""


class _Handle(asyncio.Handle):
    """The Step of a callback."""

    __slots__ = ("loop",)

    def __init__(
        self, callback: Callable[..., Any], args: Any, loop: "SimLoop", context: contextvars.Context | None
    ) -> None:
        # What asyncio's own does, without asking the loop whether it debugs: a run makes a million of these.
        self._callback = callback
        self._args = args
        self._context = contextvars.copy_context() if context is None else context
        self._cancelled = False
        self._repr = self._source_traceback = None
        self._loop = self.loop = loop

    @property
    def name(self) -> str:
        return callback_name(self._callback)

    is_cancelled: bool = _CANCELLED
    run = asyncio.Handle._run  # noqa: SLF001 - what makers of event loops call


class _Timer(asyncio.TimerHandle):
    """The Step of a timer."""

    __slots__ = ("loop",)

    def __init__(
        self,
        when_s: float,
        callback: Callable[..., Any],
        args: Any,
        loop: "SimLoop",
        context: contextvars.Context | None,
    ) -> None:
        self._callback = callback
        self._args = args
        self._context = contextvars.copy_context() if context is None else context
        self._cancelled = self._scheduled = False
        self._repr = self._source_traceback = None
        self._loop = self.loop = loop
        self._when = when_s

    @property
    def name(self) -> str:
        return callback_name(self._callback)

    is_cancelled: bool = _CANCELLED
    run = asyncio.Handle._run  # noqa: SLF001 - what makers of event loops call


class SimLoop(asyncio.AbstractEventLoop):
    """The event loop of one simulated process.

    Most of its methods are those of asyncio's abstract class, which cannot be divided: asyncio, and the code under
    test, call all of them on one object. The limit of 25 methods applies to those that it adds
    (tests/house/test_style.py).
    """

    def __init__(self, name: str, scheduler: Scheduler, network: Network) -> None:
        self.life = Life(name, scheduler)
        self.life.tell_waiting(self._unfinished)
        self._scheduler = scheduler
        self._network = network
        self._executor: Executor | None = None
        self._tasks: dict[asyncio.Task[Any], None] = {}
        """In the order in which they began; those that are done are dropped together from time to time."""
        self._tasks_kept = _TASKS_KEPT_MIN
        scheduler.add(self)

    # --- the scheduler's side -----------------------------------------------------------------------------------

    def enter(self) -> None:
        asyncio._set_running_loop(self)  # noqa: SLF001 - asyncio's own way for the makers of event loops

    # --- callbacks and time -------------------------------------------------------------------------------------

    def call_soon(
        self,
        callback: Callable[[Unpack[Args]], object],
        *args: *Args,
        context: contextvars.Context | None = None,
    ) -> asyncio.Handle:
        handle = _Handle(callback, args, self, context)
        self._scheduler.soon(handle)
        return handle

    call_soon_threadsafe = call_soon

    def call_later(
        self,
        delay: float,
        callback: Callable[[Unpack[Args]], object],
        *args: *Args,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        now_s = self.time()
        when_s = now_s + delay
        if delay > 0 and when_s == now_s:  # less than a float of now can tell: time passes all the same
            when_s = math.nextafter(now_s, math.inf)
        return self.call_at(when_s, callback, *args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[[Unpack[Args]], object],
        *args: *Args,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        timer = _Timer(when, callback, args, self, context)
        self._scheduler.at(when, timer)
        return timer

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Asyncio's hook of a cancelled timer; the scheduler finds it cancelled when its time comes."""

    def time(self) -> float:
        return self._scheduler.now_s

    # --- futures, tasks, executors ------------------------------------------------------------------------------

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(self, coro: Any, **options: Any) -> "asyncio.Task[Any]":
        """A task of a coroutine, with asyncio.Task's options. Any: their types are others in each Python."""
        task: asyncio.Task[Any] = asyncio.Task(coro, loop=self, **options)
        self._tasks[task] = None
        if len(self._tasks) > self._tasks_kept:
            self._forget_done()
        return task

    def _forget_done(self) -> None:
        self._tasks = {task: None for task in self._tasks if not task.done()}
        self._tasks_kept = max(2 * len(self._tasks), _TASKS_KEPT_MIN)

    def _unfinished(self) -> list[str]:
        return [_where(task) for task in self._tasks if not task.done()]

    def set_default_executor(self, executor: Executor) -> None:
        """Where `asyncio.to_thread` runs."""
        self._executor = executor

    def run_in_executor(  # type: ignore[override]
        self, executor: Executor | None, func: Callable[..., Result], *args: Any
    ) -> asyncio.Future[Result]:
        chosen = executor or self._executor
        if chosen is None:
            raise SimulationError(f"{self.life.name} has no executor for {callback_name(func)}")
        return asyncio.wrap_future(chosen.submit(func, *args), loop=self)

    def run_until_complete(self, future: Any) -> Any:
        return self.run(future)

    def run(self, work: Any, max_s: float = _RUN_MAX_S) -> Any:
        """Run the whole simulation until a coroutine or future of this process is done; its result.

        Raises StuckError where it never can be, or after `max_s` seconds of simulated time.
        """
        future: asyncio.Future[Any] = asyncio.ensure_future(work, loop=self)
        self._scheduler.run_until(future.done, self.time() + max_s)
        return future.result()

    # --- network ------------------------------------------------------------------------------------------------

    async def create_server(  # type: ignore[override]
        self,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        host: str | None = None,
        port: int | None = None,
        *,
        backlog: int = 100,
        start_serving: bool = True,
    ) -> Any:
        server = self._network.listen(self, protocol_factory, host or "0.0.0.0", port or 0)  # noqa: S104 - simulated
        if start_serving:
            await server.start_serving()
        return server

    async def create_connection(  # type: ignore[override]
        self, protocol_factory: Callable[[], asyncio.BaseProtocol], host: str | None = None, port: int | None = None
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        return await self._network.connect(self, protocol_factory, host or "", port or 0)

    # --- life ---------------------------------------------------------------------------------------------------

    def kill(self) -> None:
        """End the process as SIGKILL does. Idempotent. Not from a callback of its own."""
        if not self.life.alive:
            return
        self._forget_done()  # an error of one of them that nobody looked at is told of while it lives
        self.life.end()
        # Closed here, in order, rather than at a moment of the garbage collector's choice.
        for task in tuple(self._tasks):
            _close(task)
        self._tasks.clear()

    def is_running(self) -> bool:
        return asyncio._get_running_loop() is self  # noqa: SLF001 - None where no loop runs, where the public one raises

    def is_closed(self) -> bool:
        return not self.life.alive

    def close(self) -> None:
        self.kill()

    def stop(self) -> None:
        raise SimulationError("a simulated loop runs until what it was asked for is done")

    async def shutdown_asyncgens(self) -> None:
        """There are none to end: the broker has no asynchronous generators that outlive their use."""

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:
        """Threads end with the process."""

    def get_debug(self) -> bool:
        return False

    def set_debug(self, enabled: bool) -> None:
        """Asyncio's debugging looks at the machine's clock, which says nothing here."""

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        self.call_exception_handler(context)

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """An error that nobody caught is kept, and fails the run."""
        if self.life.alive:
            error = context.get("exception")
            text = f"{self.life.name}: {context.get('message')}: {error!r}"
            self.life.faults.append(text)
            self._scheduler.record("fault", type(error).__name__)
            if isinstance(error, SimulationError):
                self._scheduler.fail(error)


def _close(task: "asyncio.Task[Any]") -> None:
    """Unwind a task of a dead process. What it does meanwhile reaches nothing: loop, disk and network are dead."""
    coroutine = task.get_coro()
    if coroutine is not None:  # None from Python 3.12 on for a task that ended in its eager start
        with contextlib.suppress(BaseException):  # a process that was killed tells nobody of its errors
            coroutine.close()


def _where(task: "asyncio.Task[Any]") -> str:
    """Which line a task stands at."""
    frames = task.get_stack(limit=1)
    at = f" at {frames[0].f_code.co_filename.rpartition('/')[2]}:{frames[0].f_lineno}" if frames else ""
    return f"{task_name(task)}{at}"
