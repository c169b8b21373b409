"""The follower's side of one partition: events in, effects out.

One loop, from the assignment until the next one:

    FollowingStarted --> Fetch --> FetchAnswered --> AppendRecords --> Appended --> Fetch ...
                           ^          |
                           |          +-- diverging --> Truncate --> Truncated --+
                           |          +-- below the leader's log start --> StartAt --> Truncated --+
                           +---------------------------------------------------------------------+

- It truncates for one reason: the leader says where the two logs part (`reconciliation`). Until a fetch was answered
  with records or with nothing new, nobody knows whether its end is the leader's.
- An answer to a request of an earlier assignment changes nothing: each request has the leader epoch and a number.
- Its HW is the leader's, at most its own end. It goes back only where the leader's log says that records below it are
  not there: that takes an unclean election, which somebody asked for.
- A fetch reports the durable end. What is appended and not yet synced does not count for the leader.
- An answer may say that the fetch stands: the leader takes it as sent again from behind the records of the answer, and
  this side asks again only where it did not take them. Answers to one fetch come in their order, and one that does not
  begin where this log ends is dropped: what was before it was not taken, and the fetch is sent again from there. All
  that comes for the one before is late then.
- Each report is as of a partition epoch. Outside the ISR only one as of the latest partition epoch counts, so a
  fetch is sent again when there is a later one: a message of a copy that was lost cannot speak for the next copy, which
  begins only after the controller has taken the lost one out, in a later partition epoch (KIP-903 does this for
  processes; a copy may also be lost and rebuilt within one).
"""

from dataclasses import dataclass
from typing import Final, NamedTuple

from logboom.base.ids import NO_BROKER, NO_EPOCH, NO_PARTITION_EPOCH, BrokerId, Epoch, Offset, PartitionEpoch
from logboom.replication.reconciliation import EpochEnd, Epochs, truncation_point


@dataclass(frozen=True, slots=True)
class FollowingStarted:
    """This broker follows `leader` from now on, in its `epoch`."""

    leader: BrokerId
    epoch: Epoch
    log_end: Offset
    durable_end: Offset
    high_watermark: Offset
    partition_epoch: PartitionEpoch = NO_PARTITION_EPOCH


@dataclass(frozen=True, slots=True)
class PartitionChanged:
    """The partition has another state, with the same leader in the same epoch."""

    partition_epoch: PartitionEpoch
    in_sync: bool
    """Whether this replica is in the ISR."""


@dataclass(frozen=True, slots=True)
class FollowingStopped:
    """There is no leader to follow, or this broker leads: answers that are under way change nothing any more."""


class FetchAnswered(NamedTuple):
    """The leader's answer to the request of a number."""

    number: int
    high_watermark: Offset
    log_start: Offset
    """The first offset that the leader has."""
    diverging: EpochEnd | None = None
    """Where the logs part; then there are no records."""
    records_end: Offset | None = None
    """The offset after the last record of the answer, whose first batch is at the offset that was asked for."""
    offset: Offset | None = None
    """The offset of the fetch when this answer was made; None if it is the offset that was asked for."""
    stands: bool = False
    """Whether the fetch continues after this answer without being sent again."""
    start_is_known: bool = True
    """Whether the leader knows that what is below `log_start` was deleted; its disk may have lost it."""


class FetchFailed(NamedTuple):
    """The request with this number was refused or lost; the caller has already waited before reporting it."""

    number: int


class Appended(NamedTuple):
    """The records of the last answer are in the log, synced or not."""

    log_end: Offset


@dataclass(frozen=True, slots=True)
class Truncated:
    """The log was cut, or started over at another offset, durably: an empty one is durable to where it begins."""

    log_end: Offset
    durable_end: Offset


@dataclass(frozen=True, slots=True)
class LogStartMoved:
    """This replica has deleted records, as its leader has."""


class DurableEndMoved(NamedTuple):
    """This replica's own log is synced below `offset`."""

    offset: Offset


Event = (
    FollowingStarted
    | PartitionChanged
    | FollowingStopped
    | FetchAnswered
    | FetchFailed
    | Appended
    | Truncated
    | LogStartMoved
    | DurableEndMoved
)


class Fetch(NamedTuple):
    """Ask the leader for what comes at `offset`."""

    number: int
    leader: BrokerId
    epoch: Epoch
    """The leader epoch in which this broker follows: the leader refuses another one (KIP-320)."""
    offset: Offset
    last_epoch: Epoch
    """The epoch of the last batch before `offset`, NO_EPOCH where there is none."""
    durable_end: Offset
    partition_epoch: PartitionEpoch = NO_PARTITION_EPOCH
    """The partition epoch that this replica has applied."""
    last_answer: int = 0
    """The number of the last answer whose high-water mark counts here; 0 if none does. A leader cannot know it
    otherwise: an answer is dropped where the follower has asked again meanwhile (KIP-1166)."""
    lacks_room: bool = False
    """Whether the disk had no room for what came last: put in by the shell, which alone knows."""


class ReportDurableEnd(NamedTuple):
    """Report to the leader, besides the fetch that is waiting there, how far this log is synced and where it begins."""

    number: int
    leader: BrokerId
    epoch: Epoch
    durable_end: Offset
    partition_epoch: PartitionEpoch = NO_PARTITION_EPOCH


@dataclass(frozen=True, slots=True)
class AppendRecords:
    """Append the records of the answer as they are; `Appended` follows."""


@dataclass(frozen=True, slots=True)
class Truncate:
    """Cut the log at `offset`, durably; `Truncated` follows."""

    offset: Offset
    below_high_watermark: bool
    """Records that consumers may have read go: only after an unclean election. To be logged."""


@dataclass(frozen=True, slots=True)
class StartAt:
    """Drop all records: they are below what the leader still has. The log begins at `offset`; `Truncated` follows."""

    offset: Offset
    start_is_known: bool = True
    """Whether what is below was deleted. The leader does not know that if its disk may have lost it; this log has no
    records then."""


class HighWatermarkMoved(NamedTuple):
    """Consumers may read below `offset` here."""

    offset: Offset


Effect = Fetch | ReportDurableEnd | AppendRecords | Truncate | StartAt | HighWatermarkMoved

NOTHING: Final[tuple[Effect, ...]] = ()


class PartitionFollowing:
    """State of one partition on a broker that follows. One thread feeds it; it lives as long as the partition."""

    __slots__ = (
        "_durable_end",
        "_epochs",
        "_fetching",
        "_last_answer",
        "_log_end",
        "_number",
        "_reconciled",
        "_reported_end",
        "_waiting",
        "epoch",
        "high_watermark",
        "leader",
        "partition_epoch",
    )

    def __init__(self, epochs: Epochs) -> None:
        self._epochs = epochs
        self.leader = NO_BROKER
        self.epoch = NO_EPOCH
        self.high_watermark = Offset(0)
        self._log_end = self._durable_end = self._reported_end = Offset(0)
        self._number = 0
        """The number of the last request; an answer with another number is late."""
        self._last_answer = 0
        """The last answer whose high-water mark was taken."""
        self._fetching = False
        """Whether the last request is not answered yet."""
        self._waiting = False
        """Whether an append or a truncation is under way, which the next request has to wait for."""
        self._reconciled = False
        self.partition_epoch = NO_PARTITION_EPOCH

    @property
    def reconciled(self) -> bool:
        """Whether the leader has confirmed, in this epoch, that its log goes on where this one ends."""
        return self._reconciled

    def step(self, event: Event) -> tuple[Effect, ...]:
        """Take one event; returns what must be done, in order."""
        match event:
            case FetchAnswered():
                return self._answered(event) if self._is_due(event.number) else NOTHING
            case Appended(log_end):
                return self._log_changed(log_end)
            case Truncated(log_end, durable_end):
                self._durable_end = max(self._durable_end, durable_end)
                return self._log_changed(log_end)
            case DurableEndMoved(offset):
                return self._durable_end_moved(offset)
            case LogStartMoved():
                return self._report_durable_end() if self._fetching and self._reconciled else NOTHING
            case FetchFailed(number):
                return self._fetch() if self._is_due(number) else NOTHING
            case FollowingStarted():
                return self._start(event)
            case PartitionChanged():
                return self._partition_changed(event)
            case FollowingStopped():
                self.leader, self._fetching = NO_BROKER, False
                return NOTHING

    def _is_due(self, number: int) -> bool:
        return self._fetching and number == self._number and self.leader != NO_BROKER

    def _start(self, event: FollowingStarted) -> tuple[Effect, ...]:
        # The same epoch again where this broker was no replica for a while: a move that was taken back.
        again = event.epoch == self.epoch and self.leader == NO_BROKER
        assert event.epoch > self.epoch or again, f"epoch {event.epoch} does not follow {self.epoch}"
        self.leader, self.epoch = event.leader, event.epoch
        self.partition_epoch = event.partition_epoch
        self._log_end, self._durable_end = event.log_end, event.durable_end
        self.high_watermark = max(self.high_watermark, event.high_watermark)
        self._fetching = self._reconciled = False
        # What an answer of the former leader began is still on its way to the disk: the next request needs its outcome.
        return NOTHING if self._waiting else self._fetch()

    def _partition_changed(self, event: PartitionChanged) -> tuple[Effect, ...]:
        if event.partition_epoch <= self.partition_epoch:
            return NOTHING
        self.partition_epoch = event.partition_epoch
        return self._fetch() if self._fetching and not event.in_sync else NOTHING

    def _fetch(self) -> tuple[Effect, ...]:
        self._number += 1
        self._fetching = True
        self._reported_end = self._durable_end
        last_epoch = self._epochs.latest if self._log_end > 0 else NO_EPOCH
        return (
            Fetch(
                self._number,
                self.leader,
                self.epoch,
                self._log_end,
                last_epoch,
                self._durable_end,
                self.partition_epoch,
                self._last_answer,
            ),
        )

    def _answered(self, event: FetchAnswered) -> tuple[Effect, ...]:
        if event.offset is not None and event.offset != self._log_end:
            return self._fetch()  # an answer before this one was not taken
        self._fetching = False
        if event.diverging is not None:
            self._waiting, self._reconciled, self._last_answer = True, False, 0
            offset = truncation_point(self._epochs, self._log_end, event.diverging)
            lost = offset < self.high_watermark
            if lost:
                self.high_watermark = offset
            return (Truncate(offset, below_high_watermark=lost),)
        if event.log_start > self._log_end:
            self._waiting, self._last_answer = True, 0
            return (StartAt(event.log_start, event.start_is_known),)
        self._reconciled, self._last_answer, self._fetching = True, event.number, event.stands
        if event.records_end is None:
            return self._moved(event.high_watermark) + self._fetch_unless_it_stands()
        self._waiting = True
        # The mark of the answer holds for its records too, once they are in the log; the next answer repeats it.
        return (*self._moved(event.high_watermark), AppendRecords())

    def _log_changed(self, log_end: Offset) -> tuple[Effect, ...]:
        assert self._waiting, "nothing was asked for"
        self._waiting = False
        self._log_end = log_end
        self._durable_end = min(self._durable_end, log_end)
        return self._fetch_unless_it_stands() if self.leader != NO_BROKER else NOTHING

    def _fetch_unless_it_stands(self) -> tuple[Effect, ...]:
        # What was synced before the leader confirmed that its log goes on here was not told, and no request is to come.
        return self._tell_if_moved() if self._fetching else self._fetch()

    def _durable_end_moved(self, offset: Offset) -> tuple[Effect, ...]:
        self._durable_end = max(self._durable_end, offset)
        if not self._fetching or not self._reconciled:
            return NOTHING  # the next request tells it; an end that the leader has not confirmed says nothing
        return self._tell_if_moved()

    def _tell_if_moved(self) -> tuple[Effect, ...]:
        return NOTHING if self._reported_end >= self._durable_end else self._report_durable_end()

    def _report_durable_end(self) -> tuple[Effect, ...]:
        self._reported_end = self._durable_end
        return (ReportDurableEnd(self._number, self.leader, self.epoch, self._durable_end, self.partition_epoch),)

    def _moved(self, leaders_mark: Offset) -> tuple[Effect, ...]:
        mark = min(leaders_mark, self._log_end)
        if mark <= self.high_watermark:
            return NOTHING
        self.high_watermark = mark
        return (HighWatermarkMoved(mark),)
