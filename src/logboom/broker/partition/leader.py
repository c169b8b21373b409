"""This broker's leadership of one partition: performs the effects of the replication core.

Knows the core, the log's epochs and what each effect is for: the append queue's acks, the ceiling of reads, watchers,
proposals. Every change goes one way: event -> `PartitionLeadership.step` -> effects, in order. On the loop, except for
`start`.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple, Protocol

from logboom.base.errors import (
    LogboomError,
    NotEnoughReplicasAfterAppendError,
    NotEnoughReplicasError,
    NotLeaderError,
    OffsetNotAvailableError,
)
from logboom.base.ids import NO_PARTITION_EPOCH, BrokerEpoch, BrokerId, Epoch, Offset, PartitionEpoch
from logboom.broker.partition.append_queue import AppendQueue
from logboom.broker.partition.replication_port import Replication, StreamIdPartition
from logboom.broker.partition.services import Standing
from logboom.broker.partition.waiters import Watchers
from logboom.metadata.leadership import IsrProposal
from logboom.replication.lag import Lag
from logboom.replication.leadership import (
    LAG_MAX_S,
    BelowMinimum,
    DurableEndMoved,
    Effect,
    EpochStarted,
    Event,
    HighWatermarkMoved,
    IsrChanged,
    JoinAwaited,
    LeadershipEnded,
    LeadershipInDoubt,
    LeadershipStarted,
    LeaseEnded,
    LeaseRenewed,
    MinimumChanged,
    PartitionLeadership,
    ProposeIsr,
    RecordsDeleted,
)
from logboom.replication.log_starts import LogStarts
from logboom.storage import WriteNotifications

_ZERO: Final = Offset(0)


class BrokerEpochs(Protocol):
    """The broker epochs that the metadata has."""

    def __call__(self, broker: BrokerId, /) -> BrokerEpoch: ...


class Leading(NamedTuple):
    """A leadership as the metadata describes it."""

    epoch: Epoch
    isr: frozenset[BrokerId]
    replicas: frozenset[BrokerId] = frozenset()
    """All replicas; if empty, the ISR has all of them."""
    partition_epoch: PartitionEpoch = NO_PARTITION_EPOCH
    observers: frozenset[BrokerId] = frozenset()
    """Brokers that copy it for readers alone."""
    removing: frozenset[BrokerId] = frozenset()
    """Replicas that a reassignment removes."""
    others_eligible: bool = False
    """Whether replicas outside the ISR may be elected (ELR)."""


class LeaderEpochs(Protocol):
    """Where a log keeps its leader epochs."""

    def begin(self, epoch: Epoch, offset: Offset) -> bool: ...


class LedLog(Protocol):
    """The part of a `storage.PartitionLog` that concerns its leader."""

    @property
    def epochs(self) -> LeaderEpochs: ...
    def notify_of_writes(self, on_written: WriteNotifications | None) -> None: ...


class Readable(Protocol):
    """What may be read up to the high-water mark."""

    high_watermark: Offset


class Leader:
    """See the module. Life: that of the partition; each `start` begins a leadership, `end` ends it."""

    __slots__ = (
        "_broker_id",
        "_core",
        "_has_followers",
        "_key",
        "_log",
        "_name",
        "_on_commit",
        "_queue",
        "_readable",
        "_replication",
        "_standing",
        "watchers",
    )

    def __init__(
        self,
        name: str,
        key: StreamIdPartition,
        *,
        broker_id: BrokerId,
        min_insync_replicas: int,
        log: LedLog,
        queue: AppendQueue,
        readable: Readable,
        replication: Replication,
        standing: Standing,
        on_commit: Callable[[], None],
    ) -> None:
        """`on_commit` is called whenever the high-water mark moved, once waiting appends and fetches are answered: what
        was gathered is staged then."""
        self.watchers = Watchers()
        """Called whenever the high-water mark moved; the partition calls them on other news."""
        self._on_commit = on_commit
        self._name = name
        self._key = key
        self._broker_id = broker_id
        self._log = log
        self._queue = queue
        self._readable = readable
        self._replication = replication
        self._standing = standing
        self._has_followers = False
        self._core = PartitionLeadership(broker_id, min_insync_replicas=min_insync_replicas)
        queue.doubt = self._doubt

    # --- what it is ---------------------------------------------------------------------------------------------

    @property
    def isr(self) -> frozenset[BrokerId]:
        """The committed in-sync replicas; empty where this broker does not lead."""
        return self._core.isr

    @property
    def high_watermark(self) -> Offset:
        """Everything below is committed, as far as this leadership knows."""
        return self._core.high_watermark

    @property
    def has_lease(self) -> bool:
        """Whether this broker has its lease, also where it does not lead."""
        return self._core.has_lease and self._standing.holds_lease

    @property
    def is_certain(self) -> bool:
        """Whether no other leader has been elected, as far as the controller has let this broker know. Without this, no
        client may get a final error because what it has from another leader looks wrong."""
        return self.has_lease and self._standing.is_current

    def _doubt(self) -> LogboomError | None:
        """Why another broker may lead by now; None if none can."""
        return (
            None if self.is_certain else NotLeaderError(f"this broker is not certain that it still leads {self._name}")
        )

    def follower_end(self, replica: BrokerId) -> Offset | None:
        """The durable end of a follower as of its last fetch; None if it has not fetched in this leadership."""
        return self._core.durable_end(replica)

    def has_deleted(self, offset: Offset) -> bool:
        """Whether no other leader could bring back what this broker has deleted below `offset`."""
        return self._core.has_deleted(offset)

    @property
    def log_starts(self) -> LogStarts:
        """Where the followers' logs begin."""
        return self._core.log_starts

    def observer_lag(self, observer: BrokerId, now_s: float) -> Lag | None:
        """How far an observer is behind what is committed; None where it has not fetched in this leadership."""
        return self._core.observer_lag(observer, now_s)

    def check_latest_known(self) -> None:
        """Raises OffsetNotAvailableError while the high-water mark may be below one that another leader has announced:
        an earlier leader (KIP-207), or a later one that this broker has not heard of yet."""
        if not self.is_certain:
            raise OffsetNotAvailableError(f"this broker is not certain that it still leads {self._name}")
        if not self._core.knows_latest:
            raise OffsetNotAvailableError(f"{self._name} has a new leader, which does not know yet what is committed")

    # --- its beginning and end ----------------------------------------------------------------------------------

    def start(
        self,
        leading: Leading,
        log_end: Offset,
        high_watermark: Offset = _ZERO,
        *,
        lag_max_s: float = LAG_MAX_S,
        now_s: float = 0.0,
    ) -> None:
        """Begin a leadership of a log that is durable up to `log_end`, and committed at least to `high_watermark`."""
        had_lease, minimum = self._core.has_lease, self._core.min_insync_replicas
        # A new core for each: the high-water mark of an earlier leadership says nothing after an unclean election.
        self._core = PartitionLeadership(self._broker_id, min_insync_replicas=minimum, lag_max_s=lag_max_s)
        self._set_followers(leading)
        mark = min(high_watermark, log_end)
        self._readable.high_watermark = mark
        self._queue.begin(leading.epoch, mark)
        if not had_lease:
            self._core.step(LeaseEnded())
        self._step(
            LeadershipStarted(
                epoch=leading.epoch,
                isr=leading.isr,
                log_end=log_end,
                high_watermark=mark,
                replicas=leading.replicas,
                partition_epoch=leading.partition_epoch,
                observers=leading.observers,
                removing=leading.removing,
                others_eligible=leading.others_eligible,
                now_s=now_s,
            )
        )

    def end(self) -> None:
        """Another broker leads, or none. The queue answers those that wait for acks."""
        self._core.step(LeadershipEnded())
        if self._has_followers:
            self._has_followers = False
            self._log.notify_of_writes(None)
            self._replication.leads(self._key, False)

    def _set_followers(self, leading: Leading) -> None:
        copies = leading.replicas | leading.isr | leading.observers
        has_followers = len(copies) > 1
        if has_followers != self._has_followers:
            self._has_followers = has_followers
            self._log.notify_of_writes(_write_notifications(self._replication, self._key) if has_followers else None)
            self._replication.leads(self._key, has_followers)
        self._replication.copies(self._key, copies)

    # --- events -------------------------------------------------------------------------------------------------

    def local_end_moved(self, end: Offset) -> None:
        """This broker's own copy is as safe as the stream asks for below `end`."""
        self._queue.local_end_moved(end)
        self._step(DurableEndMoved(self._broker_id, end))

    def log_start_moved(self) -> None:
        """The oldest records were deleted here."""
        if self._has_followers:
            self._replication.moved(self._key)

    def minimum_changed(self, min_insync_replicas: int) -> None:
        """`min.insync.replicas` of the stream has this value."""
        self._step(MinimumChanged(min_insync_replicas))

    def lease_changed(self, held: bool) -> None:
        """This broker has lost its lease, or has it again."""
        event = LeaseRenewed() if held else LeaseEnded()
        if self._core.isr:
            self._step(event)
        else:
            self._core.step(event)  # it leads nothing, so nothing follows from that

    def isr_changed(self, leading: Leading) -> None:
        """The controller has committed this ISR, in the leadership that there is."""
        self._set_followers(leading)
        self._step(
            IsrChanged(
                leading.isr,
                partition_epoch=leading.partition_epoch,
                replicas=leading.replicas,
                observers=leading.observers,
                removing=leading.removing,
                others_eligible=leading.others_eligible,
            )
        )
        self.watchers.call()  # whoever waits for a deletion waits for others now

    def replication_step(self, event: Event) -> None:
        """Feed an event to the core: what followers have fetched, the outcome of a proposal, or a change of disk space
        or lease."""
        self._step(event)

    @property
    def has_proposal(self) -> bool:
        """Whether a proposal is under way."""
        return self._core.proposal is not None

    def proposal(self, own: BrokerEpoch, registered: BrokerEpochs) -> IsrProposal | None:
        """The ISR to propose to the controller, if any; each member with the broker epoch that was seen, otherwise the
        registered one."""
        wanted = self._core.proposal
        if wanted is None:
            return None
        isr = {one: self._epoch_of(one, own, registered) for one in sorted(wanted.isr)}
        return IsrProposal(self._key.stream, self._key.index, self._core.epoch, wanted.partition_epoch, isr)

    def _epoch_of(self, replica: BrokerId, own: BrokerEpoch, registered: BrokerEpochs) -> BrokerEpoch:
        if replica == self._broker_id:
            return own
        seen = self._core.broker_epoch(replica)
        return registered(replica) if seen is None else seen

    def _step(self, event: Event) -> None:
        if self._core.has_lease and not self._standing.holds_lease:
            self._core.step(LeaseEnded())  # it is told of later, if the process stood still meanwhile
        self._perform(self._core.step(event))

    def _perform(self, effects: tuple[Effect, ...]) -> None:
        self._queue.commit_refusal = None if self._core.has_minimum else _not_enough_replicas(self._name, self._core)
        for effect in effects:
            match effect:
                case HighWatermarkMoved(offset):
                    # Readable first: an ack may be followed at once by a fetch of what it acked.
                    self._readable.high_watermark = offset
                    self._queue.committed(offset)
                    self.watchers.call()
                    self._on_commit()
                    if self._has_followers:
                        self._replication.mark_moved(self._key)
                case RecordsDeleted():
                    self.watchers.call()
                case EpochStarted(epoch, start_offset):
                    self._log.epochs.begin(epoch, start_offset)
                case ProposeIsr():
                    self._replication.propose(self._key)
                case JoinAwaited():
                    self._replication.await_join(self._key)
                case LeadershipInDoubt():
                    self._queue.fail_uncommitted(
                        NotLeaderError(f"{self._name} may have another leader: this broker hears from no controller")
                    )
                case BelowMinimum():
                    # The records are in the log and may be committed later, which the error of Kafka says too.
                    self._queue.fail_uncommitted(
                        NotEnoughReplicasAfterAppendError(
                            f"{self._name} fell below min.insync.replicas before the records were committed; they may "
                            "still be"
                        )
                    )


def _write_notifications(replication: Replication, key: StreamIdPartition) -> WriteNotifications:
    """Have followers sent what was written, so that they write it while this broker's disk is syncing."""
    loop = asyncio.get_running_loop()
    return WriteNotifications(
        on_loop=partial(replication.written, key),
        from_thread=partial(loop.call_soon_threadsafe, replication.moved, key),
    )


def _not_enough_replicas(name: str, core: PartitionLeadership) -> LogboomError:
    there, wanted = len(core.isr), core.min_insync_replicas
    if there >= wanted:
        return NotEnoughReplicasError(
            f"the controller may still elect a replica of {name} that is not in sync: it has not applied yet that "
            f"min.insync.replicas is {wanted} now, or its own settings have a higher value"
        )
    return NotEnoughReplicasError(
        f"{name} has {there} in-sync replica{'' if there == 1 else 's'}, min.insync.replicas requires {wanted}"
    )
