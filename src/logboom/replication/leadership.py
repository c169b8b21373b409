"""The leader's side of one partition: events in, effects out.

The rules it keeps, each with its source:

- The high-water mark (HW) is the smallest DURABLE end over the maximal ISR: the committed members, and those whose
  joining or leaving is proposed and not yet decided, since either outcome must leave every committed record on every
  member (KIP-497).
- HW never goes back, and moves only while the committed ISR has at least `min.insync.replicas` members (KIP-966).
- A durable end of a replica never goes back within one leadership; a report that arrives late changes nothing.
- A new leadership has a higher epoch and records where it starts even when nothing is written in it (KIP-101).
"""

from dataclasses import dataclass
from typing import Final

from logboom.base.ids import NO_EPOCH, BrokerId, Epoch, Offset


@dataclass(frozen=True, slots=True)
class LeadershipStarted:
    """This broker leads from now on: its log is durable below `log_end`, HW is at least `high_watermark`."""

    epoch: Epoch
    isr: frozenset[BrokerId]
    log_end: Offset
    high_watermark: Offset


@dataclass(frozen=True, slots=True)
class DurableEndMoved:
    """Everything below `offset` is fsynced on `replica`."""

    replica: BrokerId
    offset: Offset


@dataclass(frozen=True, slots=True)
class IsrChanged:
    """The controller's committed ISR, and the members of a proposal it has not answered yet (none: empty)."""

    committed: frozenset[BrokerId]
    proposed: frozenset[BrokerId] = frozenset()


@dataclass(frozen=True, slots=True)
class MinimumChanged:
    """`min.insync.replicas` of the stream has a new value."""

    min_insync_replicas: int


Event = LeadershipStarted | DurableEndMoved | IsrChanged | MinimumChanged


@dataclass(frozen=True, slots=True)
class EpochStarted:
    """Record durably, before anything is appended, that `epoch` starts at `start_offset`."""

    epoch: Epoch
    start_offset: Offset


@dataclass(frozen=True, slots=True)
class HighWatermarkMoved:
    """Everything below `offset` is committed: answer the appends that wait for it, wake the fetches."""

    offset: Offset


@dataclass(frozen=True, slots=True)
class BelowMinimum:
    """The ISR fell below its minimum: appends that wait for commit fail with NOT_ENOUGH_REPLICAS_AFTER_APPEND."""


Effect = EpochStarted | HighWatermarkMoved | BelowMinimum

NOTHING: Final[tuple[Effect, ...]] = ()


class PartitionLeadership:
    """State of one partition on the broker that leads it. One thread feeds it; it lives as long as the partition."""

    __slots__ = ("_durable_ends", "_isr", "_maximal_isr", "broker_id", "epoch", "high_watermark", "min_insync_replicas")

    def __init__(self, broker_id: BrokerId, *, min_insync_replicas: int) -> None:
        assert min_insync_replicas >= 1, "a partition without one in-sync replica could lose what it acked"
        self.broker_id = broker_id
        self.min_insync_replicas = min_insync_replicas
        self.epoch = NO_EPOCH
        self.high_watermark = Offset(0)
        self._isr: frozenset[BrokerId] = frozenset()
        self._maximal_isr: frozenset[BrokerId] = frozenset()
        self._durable_ends: dict[BrokerId, Offset] = {}

    @property
    def isr(self) -> frozenset[BrokerId]:
        """The committed in-sync replicas."""
        return self._isr

    @property
    def has_minimum(self) -> bool:
        """Whether an append that waits for commit may be taken at all."""
        return len(self._isr) >= self.min_insync_replicas

    def step(self, event: Event) -> tuple[Effect, ...]:
        """Take one event; give what must be done, in order."""
        match event:
            case DurableEndMoved():
                return self._durable_end_moved(event)
            case IsrChanged():
                return self._isr_changed(event)
            case MinimumChanged():
                return self._minimum_changed(event)
            case LeadershipStarted():
                return self._start(event)

    def _start(self, event: LeadershipStarted) -> tuple[Effect, ...]:
        assert event.epoch > self.epoch, f"epoch {event.epoch} does not follow {self.epoch}"
        assert self.broker_id in event.isr, "a leader is in sync with itself"
        assert event.high_watermark <= event.log_end, "no unclean election: a leader holds all that is committed"
        self.epoch = event.epoch
        self._isr = self._maximal_isr = event.isr
        # What followers hold is unknown until each one says so in this epoch.
        self._durable_ends = {self.broker_id: event.log_end}
        self.high_watermark = max(self.high_watermark, event.high_watermark)
        return (EpochStarted(event.epoch, event.log_end), *self._advance())

    def _durable_end_moved(self, event: DurableEndMoved) -> tuple[Effect, ...]:
        if event.offset <= self._durable_ends.get(event.replica, -1):
            return NOTHING
        self._durable_ends[event.replica] = event.offset
        return self._advance()

    def _isr_changed(self, event: IsrChanged) -> tuple[Effect, ...]:
        assert self.broker_id in event.committed, "a leader outside its own ISR has lost the leadership"
        had_minimum = self.has_minimum
        self._isr = event.committed
        self._maximal_isr = event.committed | event.proposed
        return self._after_change_of_rules(had_minimum)

    def _minimum_changed(self, event: MinimumChanged) -> tuple[Effect, ...]:
        assert event.min_insync_replicas >= 1
        had_minimum = self.has_minimum
        self.min_insync_replicas = event.min_insync_replicas
        return self._after_change_of_rules(had_minimum)

    def _after_change_of_rules(self, had_minimum: bool) -> tuple[Effect, ...]:
        if had_minimum and not self.has_minimum:
            return (BelowMinimum(),)
        return self._advance()

    def _advance(self) -> tuple[Effect, ...]:
        if len(self._isr) < self.min_insync_replicas:
            return NOTHING
        ends = self._durable_ends
        committed = min(ends.get(replica, Offset(0)) for replica in self._maximal_isr)
        if committed <= self.high_watermark:
            return NOTHING
        self.high_watermark = committed
        return (HighWatermarkMoved(committed),)
