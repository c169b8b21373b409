"""The leader's side of one partition: events in, effects out.

Its rules, each with its source:

- The high-water mark (HW) is the smallest DURABLE end over the maximal ISR: the committed members, and those whose
  joining or leaving is proposed and not yet decided, since every committed record must be on every member after either
  decision (KIP-497).
- HW never goes back, and moves only while the committed ISR has at least `min.insync.replicas` members, and while the
  controller would elect nobody outside the ISR (KIP-966). The second follows from the first, unless the minimum has
  just been lowered, or the controller's broker has a higher default than this one.
- The durable end of an ISR member never goes back within one leadership and one process of its broker; a late report
  changes nothing. For a new process the leader uses the reported end, even if it is lower: its disk may have lost what
  the previous process had synced. The same holds for a replica outside the ISR: one that found damage, or was moved
  away and back, begins empty.
- A new leadership has a higher epoch and records where it starts even when nothing is written in it (KIP-101).
- A leader whose lease is over commits nothing until the lease is renewed. The caller reports the end of the lease
  before any other event.
- A leader without a lease for a longer time tells waiting clients to ask another broker. Otherwise, if it is cut off
  from the other brokers but not from its clients, the clients would wait until their timeouts.
- The leader proposes ISR changes, the controller decides; there is one proposal at a time. A follower joins when its
  durable end has reached HW and the start of this leadership; it leaves when it was not caught up for
  `replica.lag.time.max.ms` (`followers`), or sent nothing for this long even if nothing was written.
- HW is held for a moment if a follower keeps pace but never reaches HW, because its disk is slower than those of the
  ISR (`join_wait`). Kafka has no such rule: there the follower stays outside the ISR until the load pauses.
- A leader whose own disk is full proposes the ISR without itself, if enough others are left to commit: the controller
  then elects one of them. The old leader becomes a follower that does not keep up until it has space.
- If a follower's disk is full, the leader proposes at once that it leaves, if enough others are left, since nothing can
  be committed with it until it has space. It rejoins like any other follower, when it has caught up.
- The leader proposes that replicas which a reassignment removes leave the ISR, when all others are in sync and these
  replicas have fetched from this leader: so a previous leader knows that it no longer leads, before anything is
  committed without it.
- Observers only fetch, as followers do: HW does not wait for them, and they are never proposed for the ISR.
- Records are deleted once every member of the maximal ISR has deleted them (KIP-107), and a replica that still has
  records deleted by this leader does not join the ISR: as a leader it would restore them.
- Records that were above HW when the leadership began may be committed or not. The "latest" offset is unknown until HW
  has passed them (KIP-207).
"""

from dataclasses import dataclass
from typing import Final, NamedTuple

from logboom.base.ids import NO_EPOCH, NO_PARTITION_EPOCH, BrokerEpoch, BrokerId, Epoch, Offset, PartitionEpoch
from logboom.replication.followers import Followers
from logboom.replication.join_wait import KEEPS_PACE_S, JoinWait
from logboom.replication.lag import Lag
from logboom.replication.log_starts import FIRST_OFFSET, LogStarts

LAG_MAX_S: Final = 30.0
"""Kafka's default of `replica.lag.time.max.ms`."""


@dataclass(frozen=True, slots=True)
class LeadershipStarted:
    """This broker leads from now on: its log is durable below `log_end`, HW is at least `high_watermark`."""

    epoch: Epoch
    isr: frozenset[BrokerId]
    log_end: Offset
    high_watermark: Offset
    replicas: frozenset[BrokerId] = frozenset()
    """All replicas, including this broker; empty: the ISR has all replicas."""
    partition_epoch: PartitionEpoch = NO_PARTITION_EPOCH
    now_s: float = 0.0
    observers: frozenset[BrokerId] = frozenset()
    """Copies that only serve readers; none of them is a replica."""
    removing: frozenset[BrokerId] = frozenset()
    """Replicas that a reassignment removes."""
    others_eligible: bool = False
    """Whether the controller may elect replicas outside the ISR (ELR), since nothing was committed without them."""


@dataclass(frozen=True, slots=True)
class LeadershipEnded:
    """Another broker leads, or none: this broker commits nothing any more."""


class DurableEndMoved(NamedTuple):
    """Everything below `offset` is fsynced on `replica`."""

    replica: BrokerId
    offset: Offset


class FollowerFetched(NamedTuple):
    """A follower has asked for records in this leadership, and says how far its log is synced.

    Sent only after `reconciliation.divergence` has found that the follower's log matches this one up to the requested
    offset.
    """

    replica: BrokerId
    broker_epoch: BrokerEpoch
    """The epoch of the process that fetches: only this process may be proposed (KIP-903)."""
    durable_end: Offset
    log_end: Offset
    """The leader's log end at that moment."""
    now_s: float
    partition_epoch: PartitionEpoch = NO_PARTITION_EPOCH
    """The partition epoch under which the follower reported it: reports of an earlier copy that was lost do not count
    for the copy that replaces it."""
    log_start: Offset = FIRST_OFFSET
    """The first offset of the follower's log."""
    leaders_start: Offset = FIRST_OFFSET
    """The first offset of the leader's log at that moment."""
    lacks_room: bool = False
    """Whether its disk had no space for the last fetched records."""


@dataclass(frozen=True, slots=True)
class Ticked:
    """Time has passed."""

    log_end: Offset
    now_s: float
    silent: frozenset[BrokerId] = frozenset()
    """Followers that have not sent any request for some time, for any partition."""


@dataclass(frozen=True, slots=True)
class LeaseEnded:
    """The lease of this broker is over: its leadership is no longer valid."""


@dataclass(frozen=True, slots=True)
class LeaseRenewed:
    """This broker has a lease (again)."""


@dataclass(frozen=True, slots=True)
class LeaseMissed:
    """This broker has had no lease for so long that others may lead and clients can ask them."""


@dataclass(frozen=True, slots=True)
class IsrChanged:
    """The controller's committed ISR, and the members of a proposal without an answer (empty if there is none)."""

    committed: frozenset[BrokerId]
    proposed: frozenset[BrokerId] = frozenset()
    partition_epoch: PartitionEpoch = NO_PARTITION_EPOCH
    replicas: frozenset[BrokerId] = frozenset()
    """All replicas; empty: unchanged."""
    observers: frozenset[BrokerId] | None = None
    """Copies that only serve readers; None: unchanged."""
    removing: frozenset[BrokerId] = frozenset()
    """Replicas that a reassignment removes."""
    others_eligible: bool = False
    """As in `LeadershipStarted`."""


@dataclass(frozen=True, slots=True)
class ProposalRefused:
    """The controller refused the proposal: the committed ISR stays, and nothing is proposed until `Ticked`.

    There is no such event if the outcome is unknown, or if the controller knows a later state of the partition: the
    proposal then stays open until `IsrChanged`, or is sent again.
    """


@dataclass(frozen=True, slots=True)
class WriteRefused:
    """This broker's disk has no room for a record."""


@dataclass(frozen=True, slots=True)
class MinimumChanged:
    """`min.insync.replicas` of the stream has a new value."""

    min_insync_replicas: int


Event = (
    LeadershipStarted
    | LeadershipEnded
    | DurableEndMoved
    | FollowerFetched
    | Ticked
    | LeaseEnded
    | LeaseRenewed
    | LeaseMissed
    | IsrChanged
    | ProposalRefused
    | MinimumChanged
    | WriteRefused
)


@dataclass(frozen=True, slots=True)
class EpochStarted:
    """Record durably, before anything is appended, that `epoch` starts at `start_offset`."""

    epoch: Epoch
    start_offset: Offset


class HighWatermarkMoved(NamedTuple):
    """Everything below `offset` is committed: answer the appends and fetches that wait for it."""

    offset: Offset


@dataclass(frozen=True, slots=True)
class RecordsDeleted:
    """A follower has deleted records: ask `has_deleted` again."""


@dataclass(frozen=True, slots=True)
class BelowMinimum:
    """The ISR fell below its minimum: appends that wait for commit fail with NOT_ENOUGH_REPLICAS_AFTER_APPEND."""


@dataclass(frozen=True, slots=True)
class LeadershipInDoubt:
    """Another replica may lead by now: appends that wait for commit fail with NOT_LEADER_OR_FOLLOWER."""


@dataclass(frozen=True, slots=True)
class ProposeIsr:
    """Ask the controller for this ISR, under the leader epoch in force and this partition epoch."""

    isr: frozenset[BrokerId]
    partition_epoch: PartitionEpoch


@dataclass(frozen=True, slots=True)
class JoinAwaited:
    """HW is held for a follower that is to join: send `Ticked` after `join_wait.JOIN_WAIT_S`, which ends the wait."""


Effect = (
    EpochStarted | HighWatermarkMoved | RecordsDeleted | BelowMinimum | LeadershipInDoubt | ProposeIsr | JoinAwaited
)

NOTHING: Final[tuple[Effect, ...]] = ()


class PartitionLeadership:
    """State of one partition on the broker that leads it. Used by one thread; lives as long as the partition."""

    __slots__ = (
        "_durable_ends",
        "_followers",
        "_has_lease",
        "_isr",
        "_join_wait",
        "_maximal_isr",
        "_may_propose",
        "_observers",
        "_others_eligible",
        "_partition_epoch",
        "_proposed",
        "_removing",
        "_replicas",
        "_start_offset",
        "broker_id",
        "epoch",
        "high_watermark",
        "log_starts",
        "min_insync_replicas",
    )

    def __init__(self, broker_id: BrokerId, *, min_insync_replicas: int, lag_max_s: float = LAG_MAX_S) -> None:
        assert min_insync_replicas >= 1, "a partition without one in-sync replica could lose what it acked"
        self.broker_id = broker_id
        self.min_insync_replicas = min_insync_replicas
        self.epoch = NO_EPOCH
        self.high_watermark = Offset(0)
        self._start_offset = Offset(0)
        self._has_lease = True
        self._may_propose = True
        self._replicas: frozenset[BrokerId] = frozenset()
        self._observers: frozenset[BrokerId] = frozenset()
        self._removing: frozenset[BrokerId] = frozenset()
        self._isr: frozenset[BrokerId] = frozenset()
        self._maximal_isr: frozenset[BrokerId] = frozenset()
        self._proposed: frozenset[BrokerId] | None = None
        self._partition_epoch = NO_PARTITION_EPOCH
        self._others_eligible = False
        self._durable_ends: dict[BrokerId, Offset] = {}
        self.log_starts = LogStarts()
        """Where the followers' logs begin."""
        self._join_wait = JoinWait()
        self._followers = Followers(lag_max_s)

    @property
    def isr(self) -> frozenset[BrokerId]:
        """The committed in-sync replicas."""
        return self._isr

    @property
    def has_minimum(self) -> bool:
        """Whether an append that waits for commit may be accepted."""
        return len(self._isr) >= self.min_insync_replicas and not self._others_eligible

    @property
    def has_lease(self) -> bool:
        """Whether this broker may commit anything."""
        return self._has_lease

    @property
    def proposal(self) -> ProposeIsr | None:
        """The open proposal, to be sent again if its answer was lost."""
        return None if self._proposed is None else ProposeIsr(self._proposed, self._partition_epoch)

    @property
    def knows_latest(self) -> bool:
        """Whether HW has passed all records that were in the log when this leadership began (KIP-207), and this leader
        has not proposed an ISR without itself: the leader of such an ISR would commit without this one."""
        stays = self._proposed is None or self.broker_id in self._proposed
        return stays and self.high_watermark >= self._start_offset

    def broker_epoch(self, replica: BrokerId) -> BrokerEpoch | None:
        """The process of a follower whose fetches this leadership has seen last."""
        return self._followers.broker_epoch(replica)

    def durable_end(self, replica: BrokerId) -> Offset | None:
        """The durable end of a replica, as far as this leadership knows; None before its first fetch."""
        return self._durable_ends.get(replica)

    def has_deleted(self, offset: Offset) -> bool:
        """Whether no replica that may lead after this one has records below `offset`, which this one has deleted."""
        followers = self._maximal_isr - {self.broker_id}
        return self._has_lease and self.has_minimum and self.log_starts.have_reached(offset, followers)

    def observer_lag(self, observer: BrokerId, now_s: float) -> Lag | None:
        """How many records an observer lacks; None if it is none, or has not fetched in this leadership."""
        end = self._durable_ends.get(observer) if observer in self._observers else None
        if end is None:
            return None
        behind = self.high_watermark - end
        return Lag(behind, self._followers.not_caught_up_s(observer, now_s)) if behind > 0 else Lag(0, 0.0)

    def step(self, event: Event) -> tuple[Effect, ...]:
        """Process one event; return the effects, in order."""
        match event:
            case DurableEndMoved():
                return self._durable_end_moved(event.replica, event.offset)
            case FollowerFetched():
                return self._follower_fetched(event)
            case Ticked():
                self._join_wait.end()
                return self._advance() + self._shrink(event)
            case IsrChanged():
                return self._isr_changed(event)
            case MinimumChanged():
                return self._minimum_changed(event)
            case WriteRefused():
                return self._dismiss(self.broker_id)
            case LeadershipStarted():
                return self._start(event)
            case LeadershipEnded():
                self._proposed, self._isr, self._maximal_isr = None, frozenset(), frozenset()
                return NOTHING
            case ProposalRefused():
                self._proposed, self._maximal_isr, self._may_propose = None, self._isr, False
                return self._advance()
            case LeaseMissed():
                return (LeadershipInDoubt(),) if len(self._replicas) > 1 and not self._has_lease else NOTHING
            case LeaseEnded() | LeaseRenewed():
                self._has_lease = isinstance(event, LeaseRenewed)
                return self._advance()

    def _start(self, event: LeadershipStarted) -> tuple[Effect, ...]:
        assert event.epoch > self.epoch, f"epoch {event.epoch} does not follow {self.epoch}"
        assert self.broker_id in event.isr, "a leader is in sync with itself"
        assert event.high_watermark <= event.log_end, "no unclean election: a leader holds all that is committed"
        self.epoch = event.epoch
        self._start_offset = event.log_end
        self._replicas = event.replicas | event.isr
        self._observers = event.observers - self._replicas
        self._removing, self._others_eligible = event.removing, event.others_eligible
        self._isr = self._maximal_isr = event.isr
        self._proposed, self._partition_epoch = None, event.partition_epoch
        # The durable ends of followers are unknown until each one reports it in this epoch.
        self._durable_ends, self.log_starts = {self.broker_id: event.log_end}, LogStarts()
        self._join_wait, self._may_propose = JoinWait(), True
        self._followers.start((self._replicas | self._observers) - {self.broker_id}, event.now_s)
        self.high_watermark = max(self.high_watermark, event.high_watermark)
        return (EpochStarted(event.epoch, event.log_end), *self._advance())

    def _durable_end_moved(self, replica: BrokerId, end: Offset) -> tuple[Effect, ...]:
        counts = replica == self.broker_id or replica in self._maximal_isr
        if counts and end <= self._durable_ends.get(replica, -1):
            return NOTHING
        self._durable_ends[replica] = end
        return self._advance()

    def _follower_fetched(self, event: FollowerFetched) -> tuple[Effect, ...]:
        observes = event.replica in self._observers
        if not (observes or event.replica in self._replicas) or event.replica == self.broker_id:
            return NOTHING  # it was reassigned away, and has not applied that yet
        trusted = observes or event.replica in self._maximal_isr
        if not trusted and event.partition_epoch < self._partition_epoch:
            return NOTHING  # it may have lost records since; it reports its end again when it knows it
        if self._followers.broker_epoch(event.replica) not in (None, event.broker_epoch):
            self._durable_ends.pop(event.replica, None)
            self.log_starts.forget(event.replica)
            self._join_wait.settled(event.replica)
        behind_s = self._followers.fetched(
            event.replica, event.broker_epoch, event.durable_end, log_end=event.log_end, now_s=event.now_s
        )
        if observes:
            self._durable_ends[event.replica] = event.durable_end  # nothing waits for it
            return NOTHING
        deleted = (RecordsDeleted(),) if self.log_starts.reported(event.replica, event.log_start) else NOTHING
        moved = self._durable_end_moved(event.replica, event.durable_end)
        if event.lacks_room:
            return deleted + moved + self._dismiss(event.replica)
        joins = self._expand(event.replica, event.leaders_start)
        return deleted + moved + (joins or self._await_join(event, behind_s)) + self._release()

    def _expand(self, replica: BrokerId, log_start: Offset) -> tuple[Effect, ...]:
        """Propose a follower that has every record that is committed or may become so in this leadership, and no
        deleted record."""
        end = self._durable_ends.get(replica, Offset(0))
        if replica in self._isr or not self._can_propose or self.log_starts.of(replica) < log_start:
            return NOTHING
        if end < self.high_watermark or end < self._start_offset:
            return NOTHING
        self._join_wait.settled(replica)
        return self._propose(self._isr | {replica})

    def _await_join(self, event: FollowerFetched, behind_s: float) -> tuple[Effect, ...]:
        """Hold HW for a follower that keeps pace, so that it can join."""
        replica = event.replica
        if behind_s > KEEPS_PACE_S or replica in self._isr | self._removing or not self._can_propose:
            return NOTHING
        may_join = self.has_minimum and self.log_starts.of(replica) >= event.leaders_start
        return (JoinAwaited(),) if may_join and self._join_wait.begin(replica, event.now_s) else NOTHING

    def _shrink(self, event: Ticked) -> tuple[Effect, ...]:
        self._may_propose = True
        self._followers.looked_at(self._durable_ends, event.silent, log_end=event.log_end, now_s=event.now_s)
        if not self._can_propose:
            return NOTHING
        followers = self._isr - {self.broker_id}
        lagging = self._followers.lagging(followers, event.now_s)
        return self._propose(self._isr - lagging) if lagging else self._release()

    def _release(self) -> tuple[Effect, ...]:
        """Propose the ISR without replicas that a reassignment removes, once all others are in it.

        A previous leader must know that it no longer leads, which its fetch shows. Until then it may tell clients the
        end of its log, and outside the ISR it would not learn what is committed.
        """
        going = self._removing & self._isr
        if not going or self.broker_id in going or not self._can_propose:
            return NOTHING
        knows = all(self._followers.broker_epoch(one) is not None for one in going)
        return self._propose(self._isr - going) if knows and self._replicas - self._removing <= self._isr else NOTHING

    def _dismiss(self, replica: BrokerId) -> tuple[Effect, ...]:
        """Propose the ISR without this replica, if the others are enough to commit."""
        others = self._isr - {replica}
        if replica not in self._isr or not self._can_propose or len(others) < self.min_insync_replicas:
            return NOTHING
        return self._propose(others)

    @property
    def _can_propose(self) -> bool:
        return self._proposed is None and self._may_propose and self._has_lease and bool(self._isr)

    def _propose(self, isr: frozenset[BrokerId]) -> tuple[Effect, ...]:
        self._proposed = isr
        self._maximal_isr = self._isr | isr
        self._join_wait.end()  # nobody else joins before this is decided
        return (ProposeIsr(isr, self._partition_epoch), *self._advance())

    def _isr_changed(self, event: IsrChanged) -> tuple[Effect, ...]:
        assert self.broker_id in event.committed, "a leader outside its own ISR has lost the leadership"
        if event.partition_epoch < self._partition_epoch:
            return NOTHING  # overtaken by a later one
        had_minimum = self.has_minimum
        self._partition_epoch = event.partition_epoch
        self._replicas = (event.replicas or self._replicas) | event.committed
        self._observers = (self._observers if event.observers is None else event.observers) - self._replicas
        self._removing, self._others_eligible = event.removing, event.others_eligible
        for replica in self._durable_ends.keys() - event.committed - self._observers:
            del self._durable_ends[replica]  # it may have lost everything: only later reports count
            self.log_starts.forget(replica)
            self._followers.begin_anew(replica)
            self._join_wait.settled(replica)
        self._followers.keep(self._replicas | self._observers)
        self._proposed = None
        self._isr = event.committed
        self._maximal_isr = event.committed | event.proposed
        return self._after_change_of_rules(had_minimum) + self._release()

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
        if not self._has_lease or not self.has_minimum or self._join_wait.is_on:
            return NOTHING
        ends = self._durable_ends
        committed = min(ends.get(replica, Offset(0)) for replica in self._maximal_isr)
        if committed <= self.high_watermark:
            return NOTHING
        self.high_watermark = committed
        return (HighWatermarkMoved(committed),)
