"""The device below a simulated disk: how long each operation takes on it, and which fail or hang.

`disk` knows what is durable; this module knows time. On a simulated thread an operation waits. On the event loop it
must not: a write there takes its time from everything else, as a busy loop does, and any other operation that would
wait for the device is a fault of the code that calls it. A sync that was begun beside the loop ends by a timer.
"""

import errno
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Final

from logboom.sim.coverage import DISK_ERRORS, DISK_FULL, DISK_HANGS
from logboom.sim.disk import SimDisk
from logboom.sim.loop import SimLoop
from logboom.sim.scheduler import Scheduler, SimulationError
from logboom.sim.threads import Killed, current, must_wait, sleep

Range = tuple[float, float]
_FAILS_WITH: Final = {"write_nowait": "write", "read_cached": "read", "begin_write_out": "sync", "write_out": "sync"}
"""Operations that fail where another kind does. A sync beside the loop fails when it ends, not when it begins."""
_WAITS: Final = frozenset(("read", "sync", "sync_dir", "write_out"))
"""Operations that wait for the device, and so must not be called on the event loop. A plain write may: the commit on
the loop notes the durable end with one, which the page cache takes."""


@dataclass(frozen=True, slots=True)
class DiskTiming:
    """How long operations of a disk take, in seconds, at least and at most; and how often it refuses not to wait."""

    write_s: Range = (5e-6, 300e-6)
    sync_s: Range = (50e-6, 20e-3)
    read_s: Range = (20e-6, 5e-3)
    read_cached_refused: float = 0.2
    """The share of reads that are not in the page cache."""
    write_nowait_refused: float = 0.002
    """The share of writes on the event loop that would wait (RWF_NOWAIT gives EAGAIN)."""
    begin_sync_refused: float = 0.002
    """The share of syncs beside the loop that the kernel does not begin (io_submit gives EAGAIN)."""

    def of(self, operation: str, chance: Random) -> float:
        """How long this one takes; 0 for those that only touch names or memory."""
        if operation in ("sync", "sync_dir", "write_out"):
            low, high = self.sync_s
        elif operation in ("write", "write_nowait"):
            low, high = self.write_s
        elif operation == "read":
            low, high = self.read_s
        else:
            return 0.0
        return float(low * (high / low) ** chance.random()) if high else 0.0

    def refusal(self, operation: str) -> float:
        """How likely an operation that must not wait is refused."""
        if operation == "read_cached":
            return self.read_cached_refused
        if operation == "write_nowait":
            return self.write_nowait_refused
        return self.begin_sync_refused if operation == "begin_sync" else 0.0


SLOW: Final = DiskTiming(
    write_s=(100e-6, 50e-3),
    sync_s=(5e-3, 1.0),
    read_s=(1e-3, 0.5),
    read_cached_refused=0.8,
    write_nowait_refused=0.2,
)
"""A disk that throttles or shares its queue with others."""


class Device:
    """The device of one node. Life: that of the node; `serve` gives it the disk of each of its processes."""

    def __init__(self, scheduler: Scheduler, name: str, chance: Random, timing: DiskTiming) -> None:
        self.timing = timing
        self.failing: frozenset[str] = frozenset()
        """Operations that fail with EIO, until it is mended."""
        self.failing_once: frozenset[str] = frozenset()
        """Operations of which the next one fails with EIO."""
        self.hanging: frozenset[str] = frozenset()
        """Operations that do not return until it is mended: `read`, `write`, `sync`, `sync_dir`."""
        self.slow = False
        """Whether it is as slow as `SLOW`, until it is mended."""
        self.syncs_under_way = 0
        """Syncs of files that have begun and not ended, whose writes a power failure may therefore lose."""
        self._scheduler = scheduler
        self._name = name
        self._chance = chance
        self._hung: list[Callable[[], object]] = []

    def serve(self, disk: SimDisk, loop: SimLoop) -> None:
        """Work for a disk that is used by the process of `loop`, until that is dead."""
        scheduler, name = self._scheduler, self._name

        def before(operation: str, path: str) -> None:
            if not loop.life.alive:
                raise Killed
            scheduler.record("disk", f"{name} {operation} {path}")
            if current() is not None:
                self._take_time(operation, path)
            else:
                self._on_loop(operation, path)
            if self._fails(_FAILS_WITH.get(operation, operation)):
                raise OSError(errno.EIO, "the simulated disk fails", path)

        def complete_later(path: str, ended: Callable[[OSError | None], None]) -> None:
            self.syncs_under_way += 1
            loop.call_later(self._duration("sync"), self._complete, loop, path, ended)

        self.syncs_under_way = 0
        disk.fault = before
        disk.complete_later = complete_later
        disk.on_full = self._full

    @property
    def works(self) -> bool:
        """Whether nothing is wrong with it."""
        return not (self.failing or self.failing_once or self.hanging or self.slow)

    def _fails(self, operation: str) -> bool:
        if operation not in self.failing and operation not in self.failing_once:
            return False
        self.failing_once -= {operation}
        self._scheduler.trace.met[DISK_ERRORS] += 1
        return True

    def mend(self) -> None:
        """From now on the device works, and what hung goes on."""
        self.failing, self.failing_once, self.hanging, self.slow = frozenset(), frozenset(), frozenset(), False
        hung, self._hung = self._hung, []
        for go_on in hung:
            go_on()

    def _full(self) -> None:
        self._scheduler.trace.met[DISK_FULL] += 1

    def _duration(self, operation: str) -> float:
        return (SLOW if self.slow else self.timing).of(operation, self._chance)

    def _take_time(self, operation: str, path: str) -> None:
        seconds = self._duration(operation)
        self.syncs_under_way += operation == "sync"
        if seconds:
            sleep(seconds, f"{operation} of {path}")
        if operation in self.hanging:
            self._scheduler.trace.met[DISK_HANGS] += 1
            wait = must_wait(f"{operation} of {path}, which hangs")
            self._hung.append(wait.end)
            wait.park()
        self.syncs_under_way -= operation == "sync"

    def _on_loop(self, operation: str, path: str) -> None:
        """Refuse what would wait; what does not takes its time from the loop."""
        refusal = (SLOW if self.slow else self.timing).refusal(operation)
        if _FAILS_WITH.get(operation, operation) in self.hanging:
            refusal = max(refusal, 0.5)  # not always: the page cache goes on taking writes, and has some of the reads
        if refusal and self._chance.random() < refusal:
            raise BlockingIOError(errno.EAGAIN, "would wait for the simulated disk")
        if operation in ("write", "write_nowait"):
            self._scheduler.pass_time(self._duration(operation))
        elif operation in _WAITS:
            error = SimulationError(f"the event loop would wait for the disk: {operation} of {path}")
            self._scheduler.fail(error)  # the broker takes what is raised here for a fault of its disk
            raise error

    def _complete(self, loop: SimLoop, path: str, ended: Callable[[OSError | None], None]) -> None:
        """The end of a sync beside the loop."""
        if "sync" in self.hanging:
            self._scheduler.trace.met[DISK_HANGS] += 1
            self._hung.append(partial(loop.call_soon, self._complete, loop, path, ended))
            return
        self.syncs_under_way -= 1
        failed = self._fails("sync")
        how = "failed" if failed else "ended"
        self._scheduler.record("disk", f"{self._name} {how} sync beside the loop {path}")
        ended(OSError(errno.EIO, "the simulated disk fails", path) if failed else None)
