"""Counters and log lines for writes that are refused because the disk is full or file handles have run out.

At most one line of a kind in ten seconds, since a client may retry a thousand times a second. Knows counters and the
log; not how writes are taken back. Called on the loop.
"""

from typing import Final

from structlog.typing import FilteringBoundLogger

from logboom.base.errors import DiskFullError, RetriableStorageError
from logboom.base.ports import Clock
from logboom.broker.metrics import Counters

LOG_EVERY_S: Final = 10.0


class WriteRejections:
    """The refused writes of one broker."""

    __slots__ = ("_clock", "_counters", "_log", "_logged", "_next_s", "_refused")

    def __init__(self, counters: Counters, clock: Clock, log: FilteringBoundLogger) -> None:
        self._counters = counters
        self._clock = clock
        self._log = log
        self._next_s: dict[type[RetriableStorageError], float] = {}
        self._refused = 0
        self._logged = False

    def record(self, partition: str, error: RetriableStorageError) -> None:
        """A write of the partition was taken back."""
        kind = type(error)
        if kind is DiskFullError:
            self._counters.disk_full += 1
        else:
            self._counters.no_handles += 1
        self._refused += 1
        now_s = self._clock.monotonic_s()
        if now_s < self._next_s.get(kind, 0.0):
            return
        self._next_s[kind] = now_s + LOG_EVERY_S
        what = "the disk is full" if kind is DiskFullError else "file handles have run out"
        self._log.error(f"{what}: writes are refused", partition=partition, reason=str(error), refused=self._refused)
        self._refused, self._logged = 0, True

    def clear(self) -> None:
        """A write got through; logged once after each line of refusals."""
        if self._logged:
            self._logged = False
            self._log.info("writes accepted again", refused_since_last_line=self._refused)
            self._refused = 0
