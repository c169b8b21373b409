"""What producers lose to a compaction, from one run: its process is stopped and let go again in turns.

Two measurements of some seconds each, one after the other, differ by a fifth on a disk whose rate changes from one
moment to the next, compaction or not. Neighbouring turns of a quarter of a second hardly do, and one run has many.
"""

import os
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from statistics import fmean
from threading import Event, Thread
from typing import Final

from logboom.bench.processes import family
from logboom.bench.wire import BenchError

_TURN_S: Final = 0.25
_STEADY_AFTER_S: Final = 0.6
"""From then on producers are known to be busy, and what began before they were is done."""


class Turns:
    """Rates at which a broker writes while its compaction works and while it does not, in MB/s."""

    def __init__(self, broker: int) -> None:
        self._broker = broker
        self._rates: dict[bool, list[float]] = {True: [], False: []}
        """By whether the compaction worked."""
        self._ended = Event()

    @property
    def works(self) -> float:
        """The rate in the middle of the turns in which the compaction worked."""
        return self._mean(works=True)

    @property
    def is_stopped(self) -> float:
        """The same of those in which it did not."""
        return self._mean(works=False)

    def _mean(self, *, works: bool) -> float:
        pairs = min(map(len, self._rates.values()))
        if not pairs:
            raise BenchError("no turn was measured: the compaction ended too early; --megabytes makes it longer")
        return fmean(self._rates[works][:pairs])

    @contextmanager
    def taken(self) -> Iterator[None]:
        """Take turns as long as the block lasts."""
        thread = Thread(target=self._run, name="turns", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._ended.set()
            thread.join()

    def _run(self) -> None:
        if self._ended.wait(_STEADY_AFTER_S):
            return
        processes = self._processes()
        try:
            works = True
            while processes and self._measure(works=works) and set(processes) <= set(self._processes()):
                works = not works
                _send(processes, signal.SIGCONT if works else signal.SIGSTOP)
        finally:
            _send(processes, signal.SIGCONT)

    def _processes(self) -> list[int]:
        return [pid for pid in family(self._broker) if pid != self._broker]

    def _measure(self, *, works: bool) -> bool:
        """One turn; False where the load ended in it."""
        began_s, before = time.monotonic(), _written_bytes(self._broker)
        if self._ended.wait(_TURN_S):
            return False
        rate = (_written_bytes(self._broker) - before) / 1e6 / (time.monotonic() - began_s)
        self._rates[works].append(rate)
        return True


def _written_bytes(pid: int) -> int:
    """What it gave to write calls so far: `wchar` of proc(5)."""
    fields = dict(line.split(": ") for line in Path(f"/proc/{pid}/io").read_text().splitlines())
    return int(fields["wchar"])


def _send(processes: Sequence[int], number: signal.Signals) -> None:
    for pid in processes:
        with suppress(ProcessLookupError):  # it ended, as it does where nothing is left to be compacted
            os.kill(pid, number)
