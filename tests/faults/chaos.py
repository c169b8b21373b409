"""A nemesis for a cluster of real brokers: random faults at random moments, several at once, drawn from a seed.

Each broker has a network namespace and a clock of its own, and some have a small file system. `Nemesis.round` lets
faults come and go for a while and heals what is left: processes are killed, stopped in order and paused, also while
they start or end; links are cut both ways and one way, also those of clients; file systems are full; clocks jump.
`BrokerProcesses.wipe` takes the disk of a broker.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pytest
from tests.faults.cut_network import CutNetwork, Way, both_ways
from tests.faults.test_cluster_clocks import JUMPING_CLOCK, MINUTE_S, set_clock
from tests.support.brokers import ClusterBrokers, Place
from tests.support.commands import run_logboom
from tests.support.server import BrokerStartError
from tests.support.waiting import WAIT_S

CLIENTS = 0
"""The number of this side in a `CutNetwork`."""
STOP_S = 30
"""A broker promises to end within 25 s, whatever its disk does."""
_DISK_BYTES = 1 << 30
_CLOCKS_S = (0, 2, 20 * MINUTE_S, -20 * MINUTE_S)
_FAULT_S = {"kill": 2, "stop": 2, "pause": 4, "cut": 6, "full": 4, "clock": 3}
"""How long each kind lasts, in the mean."""


def say(what: str) -> None:
    """Tell whoever looks at the run, and its output when it has failed."""
    print(f"{time.strftime('%H:%M:%S')}.{int(time.time() % 1 * 10)}  {what}", file=sys.stderr, flush=True)


@contextmanager
def file_systems(directory: Path, numbers: Sequence[int]) -> Iterator[dict[int, Path]]:
    """A small file system in memory for each of these brokers."""
    with ExitStack() as mounted:
        made = {}
        for number in numbers:
            made[number] = directory / f"disk-{number}"
            made[number].mkdir()
            command = ["mount", "-t", "tmpfs", "-o", f"size={_DISK_BYTES}", "tmpfs", str(made[number])]
            done = subprocess.run(command, check=False, capture_output=True, timeout=WAIT_S)
            if done.returncode:
                pytest.skip(f"no file system can be mounted: {done.stderr.decode().strip()}")
            unmount = ["umount", "--lazy", str(made[number])]
            mounted.callback(subprocess.run, unmount, check=False, timeout=WAIT_S)
        yield made


def set_build(directory: Path, number: int, source: str) -> None:
    """The next process of a broker is of the program in the folder `source`; nothing stands for this one."""
    (directory / f"build-{number}").write_text(source)


def places(directory: Path, network: CutNetwork, disks: Mapping[int, Path]) -> dict[int, Place]:
    """Where the brokers run: each in its namespace, by its clock, some on a file system of their own."""
    found = {}
    for number, place in network.places().items():
        set_clock(directory, number, 0)
        set_build(directory, number, "")
        path = f"PYTHONPATH={JUMPING_CLOCK}:$(cat {directory}/build-{number}):$PYTHONPATH"
        command = f'JUMPING_CLOCK={directory}/clock-{number} {path} exec "$0" "$@"'
        data = disks[number] / "data" if number in disks else None
        found[number] = Place(place.host, (*place.within, "sh", "-c", command), data)
    return found


def fill(disk: Path) -> Path:
    """A file that takes all the room there is."""
    ballast = disk / "ballast"
    with ballast.open("wb") as file:
        size = _DISK_BYTES
        while size >= 4_096:
            try:
                os.posix_fallocate(file.fileno(), os.fstat(file.fileno()).st_size, size)
            except OSError:
                size //= 2
    return ballast


class BrokerProcesses:
    """The processes of a cluster, which may be killed, stopped and paused in any state. On the thread of the nemesis;
    what takes long, to start and to end in order, has a thread for each broker."""

    def __init__(self, cluster: ClusterBrokers, on_start: Callable[[int], None]) -> None:
        """`on_start` is called with a broker before a process of it starts."""
        self.problems: list[str] = []
        self.numbers = tuple(cluster.brokers)
        self._cluster = cluster
        self._on_start = on_start
        self._down: set[int] = set()
        """Those that were ended, and not started since."""
        self._paused: set[int] = set()
        self._killed: set[int] = set()
        """Those whose exit code says nothing."""
        self._threads: dict[int, threading.Thread] = {}
        self.new: set[int] = set()
        """Those that have a new disk and were not ready since. One whose disk is full before it has heard of its
        cluster does not start, and says so."""

    def kill(self, numbers: Sequence[int]) -> list[int]:
        """SIGKILL; which of them were running."""
        killed = [number for number in numbers if self._cluster[number].running]
        self._killed.update(killed)
        self._down.update(killed)
        for number in killed:
            self._signal(number, signal.SIGKILL)
        return killed

    def stop(self, number: int) -> bool:
        """SIGTERM, if nothing else happens to it. It has to end with 0 and in time."""
        if number in self._down | self._paused or self._is_busy(number) or not self._cluster[number].running:
            return False
        self._down.add(number)
        self._killed.discard(number)
        self._in_thread(number, self._end)
        return True

    def pause(self, numbers: Sequence[int]) -> list[int]:
        """SIGSTOP; which of them were running."""
        paused = [one for one in numbers if one not in self._paused | self._down and self._cluster[one].running]
        self._paused.update(paused)
        for number in paused:
            self._signal(number, signal.SIGSTOP)
        return paused

    def resume(self, numbers: Sequence[int]) -> None:
        """SIGCONT after `pause`."""
        for number in numbers:
            self._signal(number, signal.SIGCONT)
            self._paused.discard(number)

    def start(self, numbers: Sequence[int]) -> None:
        """Begin to start those that are down."""
        for number in self._down.intersection(numbers):
            self._down.discard(number)
            self._in_thread(number, self._begin)

    def wipe(self, number: int) -> None:
        """The disk of a broker is lost and replaced: it comes back empty, under its id."""
        say(f"the disk of {number} is lost")
        self._cluster[number].kill9()
        self._down.add(number)
        shutil.rmtree(self._cluster[number].data)
        deadline = time.monotonic() + WAIT_S
        command = ["cluster", "remove", str(number), "--bootstrap", self._cluster.bootstrap]
        while (done := run_logboom(command, timeout_s=WAIT_S)).returncode:
            assert time.monotonic() < deadline, done.stderr.decode()
        self.new.add(number)
        self.start([number])

    def look(self) -> None:
        """Note those that have ended by themselves."""
        for number in self.numbers:
            if number not in self._down and not self._is_busy(number) and not self._cluster[number].running:
                self._problem(f"broker {number} ended by itself: {self._cluster[number].log_text()[-600:]}")

    def start_all(self) -> None:
        """Return once all are ready."""
        self.start(self.numbers)
        deadline = time.monotonic() + WAIT_S
        for number, thread in self._threads.items():
            thread.join(max(deadline - time.monotonic(), 0))
            assert not thread.is_alive(), f"broker {number} neither starts nor ends"
        self.look()

    def _is_busy(self, number: int) -> bool:
        return number in self._threads and self._threads[number].is_alive()

    def _signal(self, number: int, which: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._cluster[number].pid, which)

    def _in_thread(self, number: int, work: Callable[[int], None]) -> None:
        before = self._threads.get(number)

        def run() -> None:
            if before is not None:
                before.join(WAIT_S)
            try:
                work(number)
            except (AssertionError, OSError, subprocess.SubprocessError, BrokerStartError) as error:
                if number not in self._killed:
                    self._problem(f"broker {number}: {error!r}")

        self._threads[number] = thread = threading.Thread(target=run)
        thread.start()

    def _begin(self, number: int) -> None:
        self._cluster[number].kill9()  # it was ended, and may take its time
        self._killed.discard(number)
        self._on_start(number)
        self._cluster[number].start()
        self.new.discard(number)

    def _end(self, number: int) -> None:
        begun_s = time.monotonic()
        code = self._cluster[number].sigterm()
        took_s = time.monotonic() - begun_s
        if number not in self._killed and (code or took_s > STOP_S):
            self._problem(f"broker {number} ended with {code} after {took_s:.1f} s")

    def _problem(self, what: str) -> None:
        say(what)
        self.problems.append(what)


@dataclass
class Fault:
    """Something that is wrong until it is healed."""

    what: str
    heal: Callable[[], None]
    until_s: float = 0.0

    @property
    def kind(self) -> str:
        """The key of `_FAULT_S`."""
        return self.what.split()[0]


class Nemesis:
    """See the module. On one thread."""

    def __init__(
        self,
        processes: BrokerProcesses,
        directory: Path,
        network: CutNetwork,
        disks: Mapping[int, Path],
        chance: Random,
        on_full: Callable[[bool], None],
    ) -> None:
        """`on_full` is told when a file system is full, and when that is over."""
        self.counts: Counter[str] = Counter()
        self._processes = processes
        self._directory = directory
        self._network = network
        self._disks = disks
        self._chance = chance
        self._on_full = on_full
        self._active: list[Fault] = []

    def round(self, seconds: float, at_once: int) -> None:
        """Faults for so long, at most so many at the same time; then nothing is wrong any more and all are ready."""
        kinds = (self._kill, self._kill, self._stop, self._pause, self._cut, self._cut, self._full, self._clock)
        end_s = time.monotonic() + seconds
        while time.monotonic() < end_s and not self._processes.problems:
            self._heal(time.monotonic())
            self._processes.look()
            if len(self._active) < at_once:
                self._begin(self._chance.choice(kinds)())
            time.sleep(self._chance.expovariate(1.0))
        self._heal(float("inf"))
        self._processes.start_all()
        assert self._processes.problems == []

    def _begin(self, fault: Fault | None) -> None:
        if fault is None:
            return
        mean_s = _FAULT_S[fault.kind] * self._chance.choice((0.1, 1, 1, 2))
        seconds = min(self._chance.expovariate(1 / mean_s), 4 * mean_s)
        fault.until_s = time.monotonic() + seconds
        say(f"{fault.what} for {seconds:.1f} s")
        self.counts[fault.kind] += 1
        self._active.append(fault)

    def _heal(self, now_s: float) -> None:
        for fault in [one for one in self._active if one.until_s <= now_s]:
            self._active.remove(fault)
            say(f"over: {fault.what}")
            fault.heal()

    def _is_active(self, kind: str) -> bool:
        return any(fault.kind == kind for fault in self._active)

    def _some(self) -> list[int]:
        numbers = self._processes.numbers
        return self._chance.sample(numbers, self._chance.choice((1, 1, 1, 2, len(numbers))))

    def _kill(self) -> Fault | None:
        killed = self._processes.kill(self._some())
        return Fault(f"kill {killed}", lambda: self._processes.start(killed)) if killed else None

    def _stop(self) -> Fault | None:
        number = self._chance.choice(self._processes.numbers)
        if not self._processes.stop(number):
            return None
        return Fault(f"stop {number}", lambda: self._processes.start([number]))

    def _pause(self) -> Fault | None:
        paused = self._processes.pause(self._some())
        return Fault(f"pause {paused}", lambda: self._processes.resume(paused)) if paused else None

    def _cut(self) -> Fault | None:
        if self._is_active("cut"):
            return None
        one, *others = self._chance.sample(self._processes.numbers, len(self._processes.numbers))
        near, far = others[: len(others) // 2], others[len(others) // 2 :]
        from_all: list[Way] = [way for other in others for way in both_ways(one, other)]
        ways: list[Way] = self._chance.choice(
            (
                from_all,
                [(one, other) for other in others],
                [(other, one) for other in others],
                [*both_ways(one, others[0])],
                [(one, others[0])],
                [way for a in near for b in far for way in both_ways(a, b)],  # `one` hears both sides
                [way for a in (one, *near) for b in far for way in both_ways(a, b)],
                [*both_ways(CLIENTS, one)],
                [(one, CLIENTS)],
                [*both_ways(CLIENTS, one), *from_all],
            )
        )
        cut = ExitStack()
        cut.enter_context(self._network.cut(*ways))
        return Fault(f"cut {ways}", cut.close)

    def _full(self) -> Fault | None:
        if not self._disks or self._is_active("full"):
            return None
        number = self._chance.choice(list(self._disks))
        if number in self._processes.new:
            return None
        ballast = fill(self._disks[number])
        self._on_full(True)

        def heal() -> None:
            ballast.unlink()
            self._on_full(False)

        return Fault(f"full {number}", heal)

    def _clock(self) -> Fault | None:
        number, off_s = self._chance.choice(self._processes.numbers), self._chance.choice(_CLOCKS_S)
        set_clock(self._directory, number, off_s)
        return Fault(f"clock {number} {off_s} s off", lambda: None)
