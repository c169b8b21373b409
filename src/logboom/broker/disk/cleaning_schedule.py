"""Which log is compacted next, and how fast: the decisions of the log cleaner. Pure: numbers in, numbers out."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from logboom.base.units import MIB
from logboom.storage import Dirt

Log = TypeVar("Log")

MANY_READ_BYTES_PER_S: Final = 256 * MIB
MANY_APPENDED_BYTES_PER_S: Final = 64 * MIB
MANY_APPENDED_BATCHES_PER_S: Final = 500
"""What clients read and write in a second where a compaction beside them is to step back."""
LOOK_S: Final = 0.1
"""Over which time that is counted at least: at 3 GB/s a fetch of tens of MiB is answered every 20 ms only, while a step
of a compaction takes 3."""
PAUSE_SHARE: Final = 5
"""It then rests for this many times as long as it has worked. On two cores a consumer that reads more than 1 GB/s lost
a fifth of its rate to one that never rests, whatever its niceness; the p99 of 3,000 acks a second was 2.7 to 3 times as
long beside one that rests twice as long as it works, and 1.7 to 1.8 times with this (docs/performance-history.md).
"""
PAUSE_MAX_S: Final = 0.2
FALLEN_BEHIND: Final = 2
"""A log with this many times as much to be compacted as when its compactions began to rest is compacted without
rests."""


@dataclass(frozen=True, slots=True)
class CleanableLog(Generic[Log]):
    """A log of a compacted stream."""

    log: Log
    dirt: Dirt
    dirty_ratio_min: float
    """The stream's `min.cleanable.dirty.ratio`."""
    failures: int = 0
    """How often in a row a run over it did not get anywhere: the disk had no room for what it writes, for one."""

    @property
    def is_due(self) -> bool:
        """Whether it is to be compacted (Kafka's LogCleanerManager.grabFilthiestCompactedLog)."""
        return self.dirt.is_cleanable and (self.dirt.max_lag_exceeded or self.dirt.ratio > self.dirty_ratio_min)


def most_urgent(candidates: Iterable[CleanableLog[Log]]) -> CleanableLog[Log] | None:
    """The log to compact next: the dirtiest of those that are due; None if none is.

    A log whose `max.compaction.lag.ms` has passed comes before all others, since that is a promise in time. Kafka takes
    the dirtiest of all, so that a clean log with one old record may wait for as long as others get dirty. A log whose
    compaction failed comes behind those that failed less often; otherwise it would be tried again and again, and no
    other log ever.
    """
    due = [candidate for candidate in candidates if candidate.is_due]
    return max(due, key=lambda one: (-one.failures, one.dirt.max_lag_exceeded, one.dirt.ratio), default=None)


class Backlogs(Generic[Log]):
    """Which logs grow faster than compactions that slow down for clients can compact them."""

    def __init__(self) -> None:
        self._at_first: dict[Log, int] = {}
        """Bytes that were to be compacted at the first of the compactions of each log that rested since one did not."""

    def keep(self, logs: Collection[Log]) -> None:
        """Forget all others."""
        self._at_first = {log: size_bytes for log, size_bytes in self._at_first.items() if log in logs}

    def may_rest(self, log: Log, dirt: Dirt) -> bool:
        """Whether the compaction that begins may slow down for busy clients.

        Not if `max.compaction.lag.ms` promises a time, nor if the log has grown to FALLEN_BEHIND times what was to be
        compacted at the first run that slowed down. Compared with the last run only, it might always have grown by
        less, and would do so for ever.
        """
        at_first = self._at_first.setdefault(log, dirt.dirty_bytes)
        if dirt.max_lag_exceeded or dirt.dirty_bytes > FALLEN_BEHIND * at_first:
            del self._at_first[log]
            return False
        return True


class RateLimit:
    """So many bytes a second, on average from the moment when it was idle last. Times are of one monotonic clock."""

    def __init__(self) -> None:
        self._free_at_s = 0.0
        """When all that was spent so far is paid off."""

    def spend(self, size_bytes: int, bytes_per_s: int | None, now_s: float) -> float:
        """How many seconds to wait after this many bytes; 0 without a limit. A change of the limit counts from now
        on."""
        if bytes_per_s is None:
            self._free_at_s = now_s
            return 0.0
        self._free_at_s = max(self._free_at_s, now_s) + size_bytes / bytes_per_s
        return self._free_at_s - now_s


@dataclass(frozen=True, slots=True)
class Served:
    """What a broker has done for clients since it started."""

    read_bytes: int
    appended_bytes: int
    appended_batches: int

    def is_much_since(self, before: "Served", seconds: float) -> bool:
        """Whether that was so much, in this many seconds, that a compaction beside it is to step back."""
        return (
            self.read_bytes - before.read_bytes > MANY_READ_BYTES_PER_S * seconds
            or self.appended_bytes - before.appended_bytes > MANY_APPENDED_BYTES_PER_S * seconds
            or self.appended_batches - before.appended_batches > MANY_APPENDED_BATCHES_PER_S * seconds
        )


class ClientBackoff:
    """Rests between the steps of a compaction, as long as clients are busy. Times are of one monotonic clock."""

    def __init__(self) -> None:
        self._served = Served(0, 0, 0)
        self._looked_s = 0.0
        self._worked_since_s = 0.0
        self._clients_are_busy = False

    def begin(self, served: Served, now_s: float) -> None:
        """A run begins."""
        self._served, self._looked_s, self._worked_since_s = served, now_s, now_s
        self._clients_are_busy = False

    def go_on(self, now_s: float) -> None:
        """Work goes on, after a rest or without one."""
        self._worked_since_s = now_s

    def pause_s(self, served: Served, now_s: float) -> float:
        """How many seconds to rest before the work goes on."""
        looked_at_s = now_s - self._looked_s
        if looked_at_s >= LOOK_S:
            self._clients_are_busy = served.is_much_since(self._served, looked_at_s)
            self._served, self._looked_s = served, now_s
        return min(PAUSE_SHARE * (now_s - self._worked_since_s), PAUSE_MAX_S) if self._clients_are_busy else 0.0
