"""Which log is compacted next, and how fast: the decisions of the log cleaner. Pure: numbers in, numbers out."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from logboom.base.units import MIB
from logboom.storage import Dirt

Log = TypeVar("Log")

MANY_READ_BYTES_PER_S: Final = 256 * MIB
"""What consumers read in a second where a compaction beside them is to step back."""
PAUSE_SHARE: Final = 2
"""It then rests for so many times as long as it has worked: on two cores a consumer that reads more than 1 GB/s lost a
fifth of its rate to one that never rests, whatever its niceness."""
PAUSE_MAX_S: Final = 0.2


@dataclass(frozen=True, slots=True)
class Candidate(Generic[Log]):
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


def most_urgent(candidates: Iterable[Candidate[Log]]) -> Candidate[Log] | None:
    """The log to compact next: the dirtiest of those that are due; None where none is.

    One whose `max.compaction.lag.ms` has passed comes before all others, since that is a promise in time. Kafka takes
    the dirtiest of all, so that a clean log with one old record may wait for as long as others get dirty. One that
    failed comes behind those that failed less often, or else it would be tried again and again and no other ever.
    """
    due = [candidate for candidate in candidates if candidate.is_due]
    return max(due, key=lambda one: (-one.failures, one.dirt.max_lag_exceeded, one.dirt.ratio), default=None)


class RateLimit:
    """So many bytes a second, on average from the moment when it was idle last. Times are of one monotonic clock."""

    def __init__(self) -> None:
        self._free_at_s = 0.0
        """When all that was spent so far is paid off."""

    def spend(self, size_bytes: int, bytes_per_s: int | None, now_s: float) -> float:
        """How many seconds to wait after so many bytes; 0 without a limit. A change of the limit counts from now on."""
        if bytes_per_s is None:
            self._free_at_s = now_s
            return 0.0
        self._free_at_s = max(self._free_at_s, now_s) + size_bytes / bytes_per_s
        return self._free_at_s - now_s


class ConsumerBackoff:
    """Rests between the steps of a compaction, as long as consumers read much. Times are of one monotonic clock."""

    def __init__(self) -> None:
        self._since_s = 0.0
        self._read_bytes = 0

    def begin(self, read_bytes: int, now_s: float) -> None:
        """Work begins, or goes on; consumers have read so many bytes in all."""
        self._since_s, self._read_bytes = now_s, read_bytes

    def pause_s(self, read_bytes: int, now_s: float) -> float:
        """How many seconds to rest before the work goes on."""
        worked_s = now_s - self._since_s
        if read_bytes - self._read_bytes <= MANY_READ_BYTES_PER_S * worked_s:
            return 0.0
        return min(PAUSE_SHARE * worked_s, PAUSE_MAX_S)
