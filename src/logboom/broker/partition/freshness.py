"""How far this broker's copy of a partition is behind its leader, and whether readers may still have it.

An observer is further behind than its stream allows when it is slow, or its leader has been silent for too long:
readers are then sent back to the leader. A replica that follows is never refused to readers for that: the leader sends
nobody to one that is not in sync.
"""

from logboom.base.errors import OffsetNotAvailableError
from logboom.base.ids import Offset
from logboom.base.ports import Clock
from logboom.broker.partition.replication_port import Replication, StreamIdPartition
from logboom.metadata import StreamConfig
from logboom.replication.lag import CopyLag, Lag


class Freshness:
    """See the module. Life: that of the partition. On the loop."""

    __slots__ = ("_clock", "_key", "_lag", "_name", "_replication", "observes")

    def __init__(self, name: str, key: StreamIdPartition, clock: Clock, replication: Replication) -> None:
        self._name = name
        self._key = key
        self._clock = clock
        self._replication = replication
        self._lag = CopyLag()
        self.observes = False
        """Whether the copy is for readers alone."""

    def mark_received(self, mark: Offset, asked_s: float) -> None:
        """The leader says that everything below `mark` is committed, in the answer to a request that was sent at
        `asked_s` on the monotonic clock: later the mark may have been another one."""
        self._lag.mark_received(mark, asked_s)

    def shows(self, shown: Offset) -> None:
        """Readers see everything below `shown`."""
        self._lag.shows(shown)

    @property
    def leaders_mark(self) -> Offset:
        """What was committed as of the leader's last message."""
        return self._lag.leaders_mark

    def lag(self) -> Lag:
        """How far what readers see here is behind the leader."""
        return self._lag.lag(self._clock.monotonic_s(), self._replication.quiet_s(self._key))

    def refusal(self, config: StreamConfig) -> OffsetNotAvailableError | None:
        """Why readers have to go to the leader, if they do: this copy is an observer, and is further behind than
        allowed."""
        if not self.observes:
            return None
        lag = self.lag()
        if not lag.exceeds(records=config.observer_max_lag_records, seconds=config.observer_max_lag_ms / 1_000):
            return None
        return OffsetNotAvailableError(
            f"this observer of {self._name} is {lag.records} records and {lag.seconds:.1f} s behind its leader"
        )
