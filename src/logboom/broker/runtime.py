"""What a broker runs on beside its event loop and the disk: its clock, random values, threads and a second event loop.

Everything in this process that asks for the time, draws a random value or starts a thread does it through one Runtime,
which is made once, by `app` or by a test, and handed down. It knows the ports and the real machine; not what they are
used for.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from logboom.base.ports import Clock, Ids, Workers
from logboom.broker.settled_clock import SettledClock
from logboom.host import LoopThread, SystemClock, SystemIds, SystemWorkers


class SecondLoop(Protocol):
    """An event loop beside the broker's, on a thread of its own. `host.LoopThread` is one."""

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop. From the broker's, only its `call_soon_threadsafe` may be called."""

    def stop(self) -> None:
        """End the loop and wait for its thread; not on an event loop."""


def _sleeps_at_once() -> None:
    """What is called after each piece of work where the loop sleeps as soon as it has nothing to do."""


@dataclass(frozen=True, slots=True)
class Runtime:
    """The machine behind one broker; by default the real one."""

    clock: Clock = field(default_factory=SystemClock)
    ids: Ids = field(default_factory=SystemIds)
    workers: Workers = field(default_factory=SystemWorkers)
    start_loop: Callable[[str], SecondLoop] = LoopThread
    """Start a second event loop, whose thread gets this name: for work that must go on while the broker's hangs."""
    worked: Callable[[], None] = _sleeps_at_once
    """Called on the broker's loop where bytes of a client have come or gone: the next ones may follow soon, and a loop
    that does not sleep at once has them earlier (`host.IdlePoll`)."""
    settled_clock: SettledClock = field(init=False)
    """By which everything ages that is deleted or forgotten in time."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "settled_clock", SettledClock(self.clock))
