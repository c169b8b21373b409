"""A broker of a cluster of the pure cores (see `cluster`): its log, and how it leads or follows one partition.

It does with the effects of the cores what the shell does with them, and with messages what the network made of them.
"""

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING
from uuid import UUID

from logboom.base.errors import UnknownLeaderEpochError
from logboom.base.ids import (
    NO_BROKER,
    BrokerEpoch,
    BrokerId,
    Epoch,
    Offset,
    PartitionEpoch,
    PartitionIndex,
    StreamId,
)
from logboom.metadata import Image, apply_all
from logboom.metadata.assignment import Assignment
from logboom.metadata.leadership import IsrProposal
from logboom.metadata.leases import BrokerLease
from logboom.replication import following, leadership
from logboom.replication.following import PartitionFollowing
from logboom.replication.leadership import PartitionLeadership
from logboom.replication.reconciliation import divergence
from logboom.storage.epochs import EpochHistory

if TYPE_CHECKING:
    from tests.replication.cluster import Cluster

STREAM = StreamId(UUID(int=1))
FIRST = PartitionIndex(0)
LEASE_S = 2.0
LAG_MAX_S = 4.0
RECORDS_PER_FETCH = 5

Record = tuple[Epoch, int]


@dataclass
class Log:
    """What a broker's disk holds of the partition."""

    records: list[Record] = field(default_factory=list)
    durable_end: int = 0
    epochs: EpochHistory = field(default_factory=EpochHistory)
    high_watermark: int = 0
    """The checkpoint of HW: as old as it happens to be."""

    @property
    def end(self) -> Offset:
        return Offset(len(self.records))

    def append(self, record: Record) -> None:
        if record[0] > self.epochs.latest:
            self.epochs.begin(record[0], self.end)
        self.records.append(record)

    def truncate(self, offset: int) -> None:
        del self.records[offset:]
        self.epochs.truncate_end(Offset(offset))
        self.durable_end = min(self.durable_end, offset)
        self.high_watermark = min(self.high_watermark, offset)

    def copy(self) -> "Log":
        epochs = EpochHistory.from_bytes(self.epochs.to_bytes())
        assert epochs is not None
        return Log(list(self.records), self.durable_end, epochs, self.high_watermark)


class BrokenPromiseError(AssertionError):
    """A promise of the log was broken."""


class Broker:
    """One process, from a start to its end."""

    def __init__(
        self, cluster: "Cluster", broker_id: BrokerId, log: Log, image: Image, broker_epoch: BrokerEpoch
    ) -> None:
        self.cluster = cluster
        self.id = broker_id
        self.log = log
        self.image = image
        self.epoch = broker_epoch
        self.applied = len(cluster.history)
        self.lease = BrokerLease(LEASE_S)
        self.paused_until = 0.0
        self.lost = False
        """Whether its copy has turned out to be damaged, and is to be made anew."""
        self.losses = 0
        self.leads = False
        self.role = (Epoch(-1), PartitionEpoch(-1))
        self.last_request = 0
        self.pending: list[Record] = []
        self.leader = self._new_leadership()
        self.follower = PartitionFollowing(log.epochs)
        self.follower.high_watermark = self.leader.high_watermark = Offset(min(log.high_watermark, log.end))
        self._follow_assignment()

    def _new_leadership(self) -> PartitionLeadership:
        return PartitionLeadership(self.id, min_insync_replicas=self.cluster.minimum, lag_max_s=LAG_MAX_S)

    @property
    def high_watermark(self) -> Offset:
        return self.leader.high_watermark if self.leads else self.follower.high_watermark

    @property
    def running(self) -> bool:
        return self.cluster.now_s >= self.paused_until

    # --- metadata and lease -------------------------------------------------------------------------------------

    def apply_metadata(self, count: int = 1) -> None:
        records = self.cluster.history[self.applied : self.applied + count]
        self.applied += len(records)
        self.image = apply_all(self.image, records)
        self._follow_assignment()

    def _follow_assignment(self) -> None:
        now = self.image.assignment(STREAM, FIRST)
        assert now is not None
        role = (now.leader_epoch, now.partition_epoch)
        if role == self.role:
            return
        self.role, before = role, self.role
        if self.lost:
            self._rest()
        elif now.leader == self.id:
            self._lead(now, before[0])
        else:
            self._follow(now, before[0])

    def _lead(self, now: Assignment, epoch_before: Epoch) -> None:
        if self.leads and now.leader_epoch == epoch_before:
            self._led(
                self.leader.step(
                    leadership.IsrChanged(
                        frozenset(now.isr),
                        frozenset(),
                        now.partition_epoch,
                        frozenset(now.replicas),
                        removing=frozenset(now.removing),
                    )
                )
            )
            return
        self.follower.step(following.FollowingStopped())
        self.pending = []
        mark = max(self.follower.high_watermark, self.leader.high_watermark)
        self.leads, had_lease, self.leader = True, self.leader.has_lease, self._new_leadership()
        if not had_lease:
            self.leader.step(leadership.LeaseEnded())
        if self.cluster.synced:
            # Everything in a leader's log is synced before it begins to lead.
            self.log.durable_end = self.log.end
        self._led(
            self.leader.step(
                leadership.LeadershipStarted(
                    now.leader_epoch,
                    frozenset(now.isr),
                    self.log.end,
                    Offset(min(mark, self.log.end)),
                    frozenset(now.replicas),
                    now.partition_epoch,
                    self.cluster.now_s,
                    removing=frozenset(now.removing),
                )
            )
        )

    def _follow(self, now: Assignment, epoch_before: Epoch) -> None:
        if self.leads:
            self._rest()
        if now.leader == NO_BROKER or self.id not in now.replicas:
            self._rest()
        elif now.leader_epoch > self.follower.epoch or self.follower.leader == NO_BROKER:
            self.pending = []
            self._followed(
                self.follower.step(
                    following.FollowingStarted(
                        now.leader,
                        now.leader_epoch,
                        self.log.end,
                        Offset(self.log.durable_end) if self.cluster.synced else self.log.end,
                        self.follower.high_watermark,
                        now.partition_epoch,
                    )
                )
            )
        else:
            self._followed(
                self.follower.step(following.PartitionChanged(now.partition_epoch, in_sync=self.id in now.isr))
            )

    def _rest(self) -> None:
        if self.leads:
            self.leads = False
            self.leader.step(leadership.LeadershipEnded())
            self.follower.high_watermark = max(self.follower.high_watermark, self.leader.high_watermark)
        self.follower.step(following.FollowingStopped())
        self.pending = []

    # --- copies that are lost -----------------------------------------------------------------------------------

    def lose(self) -> None:
        """The copy turns out to be damaged. It serves on until the controller has taken it out."""
        now = self.image.assignment(STREAM, FIRST)
        assert now is not None
        if not self.lost and {*now.isr, *now.elr} - {self.id}:
            self.lost = True
            self.losses += 1

    def report(self) -> None:
        """Tell the controller of a lost copy, until that has answered."""
        if self.lost:
            self.cluster.send(NO_BROKER, partial(self.cluster.lose_replica, self, self.losses))

    def restore(self, loss: int, known: int) -> None:
        """The controller has answered, and so much of the metadata is to be applied first."""
        if not self.lost or loss != self.losses:
            return
        self.apply_metadata(max(0, known - self.applied))
        now = self.image.assignment(STREAM, FIRST)
        assert now is not None
        self.lost, self.role = False, (Epoch(-1), PartitionEpoch(-1))
        if self.id not in (*now.isr, *now.elr):
            self._rest()
            self.log.truncate(0)
        self._follow_assignment()

    def check_lease(self) -> None:
        """Before anything else happens: rule 6."""
        holds = self.lease.holds(self.cluster.now_s)
        if holds != self.leader.has_lease:
            event = leadership.LeaseRenewed() if holds else leadership.LeaseEnded()
            effects = self.leader.step(event)
            if self.leads:
                self._led(effects)

    # --- effects ------------------------------------------------------------------------------------------------

    def _led(self, effects: tuple[leadership.Effect, ...]) -> None:
        for effect in effects:
            match effect:
                case leadership.EpochStarted(epoch, offset):
                    self.log.epochs.begin(epoch, offset)
                case leadership.HighWatermarkMoved(offset):
                    self.cluster.commit(self, offset)
                case leadership.ProposeIsr():
                    self.propose()
                case leadership.BelowMinimum() | leadership.JoinAwaited():
                    pass  # producers are not modelled, and ticks come soon enough

    def propose(self) -> None:
        wanted = self.leader.proposal
        if wanted is None or not self.leads:
            return
        epochs = {one: self.leader.broker_epoch(one) for one in wanted.isr if one != self.id}
        isr = {one: self.image.brokers[one].epoch if known is None else known for one, known in epochs.items()}
        proposal = IsrProposal(STREAM, FIRST, self.leader.epoch, wanted.partition_epoch, {**isr, self.id: self.epoch})
        self.cluster.send(NO_BROKER, lambda: self.cluster.decide_isr(self, proposal))

    def _followed(self, effects: tuple[following.Effect, ...]) -> None:
        for effect in effects:
            match effect:
                case following.Fetch():
                    self.last_request = effect.number
                    self.cluster.send(effect.leader, partial(self.cluster.fetch, self, effect))
                case following.ReportDurableEnd():
                    self.cluster.send(effect.leader, partial(self.cluster.told, self, effect))
                case following.AppendRecords():
                    records, self.pending = self.pending, []
                    for record in records:
                        self.log.append(record)
                    self._followed(self.follower.step(following.Appended(self.log.end)))
                case following.Truncate(offset, below_high_watermark):
                    if below_high_watermark:
                        raise BrokenPromiseError(f"broker {self.id} truncates below its high-water mark")
                    self.log.truncate(offset)
                    self._followed(self.follower.step(following.Truncated(self.log.end, Offset(self.log.durable_end))))
                case following.HighWatermarkMoved():
                    self.cluster.check_reads(self)
                case following.StartAt():
                    raise BrokenPromiseError("nothing is ever deleted here")

    # --- what happens to it -------------------------------------------------------------------------------------

    def produce(self, value: int) -> None:
        if self.leads and self.leader.has_minimum and self.leader.has_lease:
            self.log.append((self.leader.epoch, value))

    def flush(self) -> None:
        if self.cluster.synced:
            self.sync()
        if self.leads:
            self._led(self.leader.step(leadership.DurableEndMoved(self.id, self.log.end)))
        else:
            self._followed(self.follower.step(following.DurableEndMoved(self.log.end)))

    def sync(self) -> None:
        self.log.durable_end = len(self.log.records)

    def tell_latest(self) -> None:
        """Somebody asks for the end of the partition (KIP-207). A leader that was not fenced may not have heard that
        another one leads by choice: it commits nothing any more, and its answer is as old as its metadata."""
        latest, cluster = self.leader.high_watermark, self.cluster
        now = cluster.image.assignment(STREAM, FIRST)
        assert now is not None
        if not self.leads or (now.leader != self.id and cluster.image.is_active(self.id)):
            return
        if self.leader.has_lease and self.leader.knows_latest and latest < len(cluster.committed):
            raise BrokenPromiseError(f"broker {self.id} says that {latest} is the end, and more is committed")

    def tick(self) -> None:
        self.report()
        if self.leads:
            self._led(self.leader.step(leadership.Ticked(self.log.end, self.cluster.now_s)))
            self.propose()  # an answer may have been lost
        else:
            self._followed(self.follower.step(following.FetchFailed(self.last_request)))

    def checkpoint(self) -> None:
        self.log.high_watermark = self.high_watermark

    def answer(
        self, request: following.Fetch, fetcher: "Broker"
    ) -> tuple[following.FetchAnswered, list[Record]] | None:
        """A follower's fetch, on the leader. None: refused."""
        if not self.leads or request.epoch != self.leader.epoch:
            return None
        try:
            parted = divergence(
                self.log.epochs, self.log.end, last_epoch=request.last_epoch, fetch_offset=request.offset
            )
        except UnknownLeaderEpochError:
            return None
        mark = self.leader.high_watermark
        if parted is not None:
            return following.FetchAnswered(request.number, mark, Offset(0), diverging=parted), []
        self.follower_is_at(fetcher, request.durable_end, request.partition_epoch)
        records = self.log.records[request.offset : request.offset + RECORDS_PER_FETCH]
        end = Offset(request.offset + len(records)) if records else None
        return following.FetchAnswered(request.number, self.leader.high_watermark, Offset(0), records_end=end), records

    def follower_is_at(self, fetcher: "Broker", durable_end: Offset, partition_epoch: PartitionEpoch) -> None:
        self._led(
            self.leader.step(
                leadership.FollowerFetched(
                    fetcher.id, fetcher.epoch, durable_end, self.log.end, self.cluster.now_s, partition_epoch
                )
            )
        )

    def answered(self, answer: following.FetchAnswered, records: list[Record], epoch: Epoch) -> None:
        if epoch == self.follower.epoch and not self.leads:
            self.pending = records
            self._followed(self.follower.step(answer))
