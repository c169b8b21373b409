"""The Workers port: threads that run one at a time, and wait in simulated time.

A simulated thread is a thread of the operating system, so that code which blocks in the middle of a call needs no
change. But it runs only while the simulation's own thread stands still: it is resumed by a step of its process's loop,
and gives the turn back where it waits, be it for a mailbox, a future, another thread or the disk. Which thread is next
is therefore decided by the scheduler and the seed alone. How long a thread takes to wake up is drawn from the seed.

A lock of `threading` must not be held where a thread waits: the next one that wants it would never give the turn back.
"""

import sys
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future
from functools import partial
from queue import Empty
from random import Random
from typing import Any, Final, ParamSpec, TypeVar

from logboom.sim.loop import SimLoop
from logboom.sim.scheduler import SimulationError

Result = TypeVar("Result")
Parameters = ParamSpec("Parameters")
_WAKE_MAX_S: Final = 100e-6
_UNWIND_MAX_S: Final = 60.0
_SWITCH_TRY_S: Final = 10.0
_SWITCH_TRIES: Final = 6
"""Of the machine's time, which a thread that runs needs little of: beyond it, it is blocked for ever. More than one
try, so that a machine that stood still itself, or has much else to do, is not taken for that."""

_here = threading.local()


class Killed(BaseException):
    """Raised in a thread of a process that was killed, wherever it waits, so that it ends."""


def current() -> "SimThread | None":
    """The simulated thread that runs; None on the event loop."""
    return getattr(_here, "thread", None)


def must_wait(what: str) -> "Wait":
    """A wait of the thread that runs; SimulationError on an event loop, which must not wait."""
    thread = current()
    if thread is None:
        raise SimulationError(f"an event loop would wait for {what}")
    return Wait(thread, what)


def sleep(seconds: float, what: str) -> None:
    """Let simulated time pass on a simulated thread. On an event loop, which must not wait, nothing happens."""
    if current() is not None:
        wait = must_wait(what)
        wait.end_after(seconds)
        wait.park()


class Wait:
    """One wait of one thread: made by the thread, handed to whatever may end it, then `park`ed."""

    __slots__ = ("_over", "_thread", "what")

    def __init__(self, thread: "SimThread", what: str) -> None:
        self._thread = thread
        self._over = False
        self.what = what

    def park(self) -> None:
        """On the thread: return once something has ended the wait. Raises Killed where that is the process's end."""
        self._thread.park(self.what)

    def end(self, _: object = None) -> None:
        """The thread may go on, as soon as a thread that is woken does; harmless where the wait has ended."""
        self.end_after(self._thread.wake_delay_s())

    def end_after(self, delay_s: float) -> None:
        """End it after a time."""
        self._thread.loop.call_later(delay_s, self._end)

    def _end(self) -> None:
        if not self._over:
            self._over = True
            self._thread.switch()


class SimThread:
    """One thread. Life: made by SimWorkers, runs until its function returns or its process is killed."""

    def __init__(self, loop: SimLoop, chance: Random, name: str, run: Callable[[], None]) -> None:
        self.name = name
        self.ended = False
        self.waits_for = "its start"
        self.loop = loop
        self._chance = chance
        self._run = run
        self._go = threading.Lock()
        self._back = threading.Lock()
        self._go.acquire()
        self._back.acquire()
        self._killed = False
        self._joiners: list[Wait] = []
        self._thread = threading.Thread(target=self._main, name=f"{loop.life.name} {name}", daemon=True)
        self._thread.start()
        Wait(self, self.waits_for).end()

    def wake_delay_s(self) -> float:
        """How long it takes to wake up this time."""
        return self._chance.uniform(0, _WAKE_MAX_S)

    # --- on the simulation's thread -------------------------------------------------------------------------------

    def switch(self) -> None:
        """Let it run until it waits or ends."""
        self._go.release()
        for _ in range(_SWITCH_TRIES):
            if self._back.acquire(timeout=_SWITCH_TRY_S):
                return
        frame = sys._current_frames().get(self._thread.ident or 0)  # noqa: SLF001 - the documented way to see where it is
        at = f"{frame.f_code.co_filename.rpartition('/')[2]}:{frame.f_lineno}" if frame is not None else "its end"
        raise SimulationError(f"the thread {self.name} waits for a lock that another one holds while it waits, at {at}")

    def kill(self) -> None:
        """Unwind it from where it waits."""
        self._killed = True
        if not self.ended:
            self._go.release()
            self._thread.join(_UNWIND_MAX_S)
            if self._thread.is_alive():
                raise SimulationError(f"the thread {self.name} does not end: it waits for a lock that another holds")

    # --- on a simulated thread ------------------------------------------------------------------------------------

    def join(self, timeout: float | None = None) -> None:
        """Wait, on another thread, until it has ended."""
        wait = must_wait(f"the end of {self.name}")
        if self.ended:
            return
        self._joiners.append(wait)
        if timeout is not None:
            wait.end_after(timeout)
        wait.park()

    def park(self, what: str) -> None:
        """On the thread itself: give the turn back until `switch`."""
        if not self._killed:
            self.waits_for = what
            self._back.release()
            self._go.acquire()
            self.waits_for = ""
        if self._killed:
            raise Killed

    def _main(self) -> None:
        _here.thread = self
        self._go.acquire()
        try:
            if not self._killed:
                self._run()
        except Killed:
            pass
        except BaseException as error:  # noqa: BLE001 - the outermost frame of the thread: the run fails with it
            self.loop.call_exception_handler({"message": f"the thread {self.name} ended", "exception": error})
        self.ended = True
        for wait in self._joiners:
            wait.end()
        if not self._killed:
            self._back.release()


class SimMailbox:
    """The Mailbox port."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._items: deque[Any] = deque()
        self._getters: deque[Wait] = deque()

    def put(self, item: Any) -> None:
        self._items.append(item)
        if self._getters:
            self._getters.popleft().end()

    def get(self) -> Any:
        while not self._items:
            wait = must_wait(f"something in the mailbox of {self._name}")
            self._getters.append(wait)
            wait.park()
        return self._items.popleft()

    def get_nowait(self) -> Any:
        if not self._items:
            raise Empty
        return self._items.popleft()


class SimFuture(Future[Result]):
    """A future whose `result` waits in simulated time."""

    def result(self, timeout: float | None = None) -> Result:
        if not self.done():
            wait = must_wait("a future")
            self.add_done_callback(wait.end)
            if timeout is not None:
                wait.end_after(timeout)
            wait.park()
        return super().result(0)


class SimPool(Executor):
    """A pool of simulated threads, started as they are needed."""

    def __init__(self, workers: "SimWorkers", name: str, threads: int) -> None:
        self._workers = workers
        self._name = name
        self._threads_max = threads
        self._threads: list[SimThread] = []
        self._idle = 0
        self._closed = False
        self._work = SimMailbox(name)

    def submit(
        self, fn: Callable[Parameters, Result], /, *args: Parameters.args, **kwargs: Parameters.kwargs
    ) -> Future[Result]:
        if self._closed:
            raise RuntimeError("cannot schedule new futures after shutdown")
        future: SimFuture[Result] = SimFuture()
        self._work.put((future, partial(fn, *args, **kwargs)))
        if self._idle:
            self._idle -= 1
        elif len(self._threads) < self._threads_max:
            name = f"{self._name}-{len(self._threads)}"
            self._threads.append(self._workers.thread(name, self._serve))
        return future

    def _serve(self) -> None:
        while True:
            item = self._work.get()
            if item is None:
                return
            _run_job(*item)
            self._idle += 1

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        self._closed = True
        for _ in self._threads:
            self._work.put(None)


def _run_job(future: "SimFuture[Any]", function: Callable[[], Any]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        result = function()
    except Killed:
        raise
    except BaseException as error:  # noqa: BLE001 - as in a ThreadPoolExecutor, the error is the future's
        future.set_exception(error)
    else:
        future.set_result(result)


class SimWorkers:
    """The Workers port for one process; its threads end with the process."""

    def __init__(self, loop: SimLoop, chance: Random) -> None:
        self._loop = loop
        self._chance = chance
        self._threads: list[SimThread] = []
        loop.life.at_end(self._kill)
        loop.life.tell_waiting(self._waiting)

    def pool(self, name: str, threads: int) -> Executor:
        return SimPool(self, name, threads)

    def thread(self, name: str, run: Callable[[], None]) -> SimThread:
        thread = SimThread(self._loop, self._chance, name, run)
        self._threads.append(thread)
        return thread

    def waits(self) -> int:
        """Writes on the event loop take no simulated time."""
        return 0

    def mailbox(self) -> SimMailbox:
        return SimMailbox("a thread")

    def helper(self, work: str) -> None:
        return None

    def _kill(self) -> None:
        for thread in self._threads:
            thread.kill()

    def _waiting(self) -> list[str]:
        return [f"thread {thread.name}: {thread.waits_for}" for thread in self._threads if not thread.ended]
