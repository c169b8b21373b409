"""A cluster of the pure cores under one seed: the controller's commands, leaders, followers, and everything between
them that may go wrong. One partition, whose records are numbers.

Messages are delayed, lost, doubled and reordered. Processes are killed, which loses what was not synced, and paused for
longer than their leases. Copies turn out to be damaged, and are made anew. Each broker applies the metadata when it
gets round to it. What is acked to a producer, or may be read by a consumer, is written down, and must be the same for
ever; and whoever may lead knows all of it. What the controller decides is looked at each time.

With `synced=False` the stream waits for no sync: a process that is killed loses what was acked. So one is killed only
while several are in the ISR, and all of them live with copies that are whole. The minimum is two then: else a broker
that is taken for dead, and was not killed, may be the only one that has a record.

With `older_copies` a killed process may find an older copy of its disk, made while it ran, and all others may be killed
with it. One at a time, and the minimum is two: nothing is lost as long as one of those that acked a record has it.
"""

from collections.abc import Callable
from random import Random

from tests.replication.broker import FIRST, LEASE_S, STREAM, BrokenPromiseError, Broker, Log, Record

from logboom.base.errors import LogboomError
from logboom.base.ids import (
    NO_BROKER,
    BrokerEpoch,
    BrokerId,
    DirectoryId,
    Epoch,
    Offset,
    StreamName,
)
from logboom.metadata import Image, MetadataRecord, Stream, StreamCreated, apply_all
from logboom.metadata.assignment import Assignment, Eligibility, PartitionChange, PartitionUpdate, decide
from logboom.metadata.leadership import IsrProposal, LogEnd, change_isr, rebalance, recover, recovery_candidates
from logboom.metadata.leases import BrokerLeases
from logboom.metadata.membership import RegistrationRequest, fence, partitions_changed, register, unfence
from logboom.metadata.placement import start
from logboom.metadata.reassignment import reassign
from logboom.metadata.records import Placed
from logboom.replication import following, leadership


class Cluster:
    """See the module."""

    def __init__(
        self, seed: int, *, brokers: int = 3, minimum: int = 2, synced: bool = True, older_copies: bool = False
    ) -> None:
        self.random = Random(seed)
        self.happenings = {**HAPPENINGS, **LOSSES} if seed % 5 == 4 else HAPPENINGS
        if older_copies:
            self.happenings = {**HAPPENINGS, **OLDER_COPIES}
        self.synced = synced
        self.copies: dict[BrokerId, Log] = {}
        """Copies that were made of the disks of running processes."""
        self.put_back_to: tuple[BrokerId, BrokerEpoch] | None = None
        """Whose disk is an older copy, and of which process of it."""
        self.now_s = 0.0
        self.minimum = minimum
        self.image = Image()
        self.history: list[MetadataRecord] = []
        self.leases = BrokerLeases(LEASE_S)
        self.messages: list[tuple[BrokerId, Callable[[], None]]] = []
        self.committed: list[int] = []
        self.produced = 0
        self.starts = 0
        self.logs = {BrokerId(n): Log() for n in range(1, brokers + 1)}
        self.alive: dict[BrokerId, Broker] = {}
        self.healed = False
        for broker in self.logs:
            self._register(broker)
        replicas = tuple(self.logs)[:3]
        self._take(
            (
                StreamCreated(
                    name=StreamName("s"),
                    id=STREAM,
                    partitions=1,
                    config={},
                    placed=(Placed.of(start(replicas, self.image.brokers)),),
                ),
            )
        )
        for broker in self.logs:
            self.alive[broker] = Broker(self, broker, self.logs[broker], self.image, self.image.brokers[broker].epoch)
            self._heartbeat(self.alive[broker])

    def minimum_of(self, _: Stream) -> int:
        return self.minimum

    # --- the controller -----------------------------------------------------------------------------------------

    def _take(self, records: tuple[MetadataRecord, ...]) -> None:
        self.history += records
        self.image = apply_all(self.image, records)
        now = self.image.assignment(STREAM, FIRST)
        if now is not None:
            self._check_assignment(now)

    def _check_assignment(self, now: Assignment) -> None:
        isr, elr = set(now.isr), set(now.elr)
        fenced = {one for one in isr if not self.image.is_active(one)}
        if not isr | elr <= set(now.replicas) or isr & elr:
            raise BrokenPromiseError(f"in sync and eligible are not replicas apart: {now}")
        if now.leader != NO_BROKER and (now.leader not in isr or fenced - {now.leader}):
            raise BrokenPromiseError(f"led by {now.leader}, and {fenced} of the ISR have no lease: {now}")
        if now.leader != NO_BROKER and elr and len(isr) >= self.minimum:
            raise BrokenPromiseError(f"somebody is eligible who need not have everything: {now}")

    def _register(self, broker: BrokerId) -> None:
        self.starts += 1
        wanted = RegistrationRequest(broker, DirectoryId(str(broker)), str(self.starts), {})
        self._take(register(self.image, wanted, self.minimum_of))
        self._take(unfence(self.image, broker, self.image.brokers[broker].epoch, self.minimum_of))
        self.leases.renew(broker, self.now_s)

    def _end_leases(self) -> None:
        for broker in self.leases.expired(self.now_s):
            self._take(fence(self.image, broker, self.minimum_of))
            self.leases.drop(broker)

    def decide_isr(self, leader: Broker, proposal: IsrProposal) -> None:
        try:
            records = change_isr(self.image, leader.id, leader.epoch, proposal, self.minimum_of)
        except LogboomError as error:
            if type(error).__name__ == "IneligibleReplicaError":
                self.send(leader.id, lambda: self._refused(leader, proposal))
            return
        self._take(records)

    def lose_replica(self, broker: Broker, loss: int) -> None:
        """As `broker.control.broker_commands.lose_replicas` does."""
        before, stream = self.image.assignment(STREAM, FIRST), self.image.by_id[STREAM]
        if before is None or self.alive.get(broker.id) is not broker:
            return
        if broker.id in before.replicas and not {*before.isr, *before.elr} <= {broker.id}:
            wish, rules = PartitionUpdate(wiped=frozenset({broker.id})), Eligibility(self.image.is_active, self.minimum)
            change = decide(FIRST, before, wish, rules) or PartitionChange(index=FIRST)
            self._take(tuple(partitions_changed(stream, (change,))))
        known = len(self.history)
        self.send(broker.id, lambda: broker.restore(loss, known) if self.alive.get(broker.id) is broker else None)

    def _refused(self, leader: Broker, proposal: IsrProposal) -> None:
        wanted = leader.leader.proposal
        if self.alive.get(leader.id) is leader and leader.leads and wanted is not None:
            same = wanted.isr == frozenset(proposal.isr) and wanted.partition_epoch == proposal.partition_epoch
            if same and leader.leader.epoch == proposal.leader_epoch:
                leader._led(leader.leader.step(leadership.ProposalRefused()))

    def recover(self) -> None:
        """Where all who had everything were killed: the one with the longest log, once all of them are back."""
        now = self.image.assignment(STREAM, FIRST)
        assert now is not None
        candidates = recovery_candidates(now)
        if candidates and all(one in self.alive and self.image.is_active(one) for one in candidates):
            logs = {one: self.logs[one] for one in candidates}
            ends = {one: LogEnd(log.epochs.before(log.end), log.end) for one, log in logs.items()}
            self._take(recover(self.image, STREAM, FIRST, ends, self.minimum_of))

    # --- messages -----------------------------------------------------------------------------------------------

    def send(self, to: BrokerId, action: Callable[[], None]) -> None:
        if self.healed or self.random.random() > 0.05:
            self.messages.append((to, action))
        if not self.healed and self.random.random() < 0.05:
            self.messages.append((to, action))

    def deliver(self) -> None:
        if not self.messages:
            return
        to, action = self.messages.pop(self.random.randrange(len(self.messages)))
        if to == NO_BROKER:
            action()
        elif to in self.alive and self.alive[to].running:
            self.alive[to].check_lease()
            action()
        elif to in self.alive:
            self.messages.append((to, action))  # its socket holds it until it goes on

    def fetch(self, fetcher: Broker, request: following.Fetch) -> None:
        leader = self.alive[request.leader]
        if self.alive.get(fetcher.id) is not fetcher:
            return
        answer = leader.answer(request, fetcher)
        if answer is not None:
            self.send(fetcher.id, lambda: self._answered(fetcher, answer, request.epoch))

    def _answered(self, to: Broker, answer: tuple[following.FetchAnswered, list[Record]], epoch: Epoch) -> None:
        if self.alive.get(to.id) is to:
            to.answered(*answer, epoch)

    def told(self, fetcher: Broker, told: following.ReportDurableEnd) -> None:
        found = self.alive[told.leader]
        if self.alive.get(fetcher.id) is fetcher and found.leads and found.leader.epoch == told.epoch:
            found.follower_is_at(fetcher, told.durable_end, told.partition_epoch)

    def _heartbeat(self, broker: Broker) -> None:
        sent_s = self.now_s

        def received() -> None:
            known = self.image.brokers[broker.id]
            if known.epoch != broker.epoch:
                return
            if known.fenced:
                self._take(unfence(self.image, broker.id, broker.epoch, self.minimum_of))
            self.leases.renew(broker.id, self.now_s)
            self.send(broker.id, lambda: broker.lease.renewed(sent_s) if self.alive.get(broker.id) is broker else None)

        self.send(NO_BROKER, received)

    # --- what may happen ----------------------------------------------------------------------------------------

    def step(self) -> None:
        """One thing happens."""
        self.now_s += self.random.random() * 0.016
        self._end_leases()
        happening = self.random.choices(list(self.happenings), list(self.happenings.values()))[0]
        happening(self)

    def _one(self) -> Broker | None:
        """A process that runs, its lease looked at."""
        running = [one for one in self.alive.values() if one.running]
        if not running:
            return None
        chosen = self.random.choice(running)
        chosen.check_lease()
        return chosen

    def do(self, action: Callable[[Broker], None]) -> None:
        chosen = self._one()
        if chosen is not None:
            action(chosen)

    def produce(self) -> None:
        self.produced += 1
        self.do(lambda one: one.produce(self.produced))

    def kill(self) -> None:
        if self.alive and self.random.random() < 0.3 and self._may_kill():
            broker = self.random.choice(list(self.alive))
            log = self.alive.pop(broker).log
            log.truncate(self.random.randint(log.durable_end, len(log.records)))

    def copy_disk(self) -> None:
        def copied(one: Broker) -> None:
            self.copies[one.id] = copy = one.log.copy()
            copy.truncate(self.random.randint(copy.durable_end, len(copy.records)))

        self.do(copied)

    def put_back(self) -> None:
        """A process is killed, all others with it perhaps, and finds an older copy of its disk."""
        copied = [one for one in self.alive if one in self.copies]
        if not copied or self._has_an_older_copy():
            return
        broker = self.random.choice(copied)
        for one in list(self.alive) if self.random.random() < 0.8 else [broker]:
            log = self.alive.pop(one).log
            log.truncate(log.durable_end)
        self.logs[broker] = self.copies.pop(broker)
        self.put_back_to = broker, self.image.brokers[broker].epoch

    def _has_an_older_copy(self) -> bool:
        """Whether a broker has not caught up since an older copy was put back."""
        now = self.image.assignment(STREAM, FIRST)
        if now is None or self.put_back_to is None:
            return False
        broker, epoch = self.put_back_to
        return broker not in now.isr or self.image.brokers[broker].epoch <= epoch

    def _may_kill(self) -> bool:
        now = self.image.assignment(STREAM, FIRST)
        whole = [one for one, broker in self.alive.items() if not broker.lost]
        return self.synced or (now is not None and len(now.isr) > 1 and all(one in whole for one in now.isr))

    def lose(self) -> None:
        if self._may_kill():
            self.do(Broker.lose)

    def restart(self) -> None:
        for broker in self.logs:
            if broker not in self.alive and self.random.random() < 0.5:
                self._register(broker)
                self.copies.pop(broker, None)  # of an earlier process: it would be refused
                log = self.logs[broker]
                # Recovery syncs what it finds.
                log.durable_end = len(log.records)
                self.alive[broker] = Broker(self, broker, log, self.image, self.image.brokers[broker].epoch)
                self._heartbeat(self.alive[broker])

    def pause(self) -> None:
        self.do(lambda one: setattr(one, "paused_until", self.now_s + self.random.random() * 2 * LEASE_S))

    def move(self) -> None:
        if self.random.random() < 0.3 and len(self.logs) > 3:
            self._take(reassign(self.image, "s", 0, self.random.sample(list(self.logs), 3), self.minimum_of))

    def balance(self) -> None:
        self._take(rebalance(self.image, self.minimum_of, most=1))

    # --- promises -----------------------------------------------------------------------------------------------

    def commit(self, leader: Broker, end: Offset) -> None:
        """A leader tells producers that everything below `end` is committed."""
        self.check_reads(leader)
        self.committed += [value for _, value in leader.log.records[len(self.committed) : end]]

    def check_reads(self, broker: Broker) -> None:
        """What a consumer may read at `broker` is what was committed there, or is committed by this."""
        seen = [value for _, value in broker.log.records[: broker.high_watermark]]
        both = min(len(seen), len(self.committed))
        if seen[:both] != self.committed[:both]:
            raise BrokenPromiseError(f"broker {broker.id} shows other records than were committed")
        if not broker.leads and len(seen) > len(self.committed):
            raise BrokenPromiseError(f"broker {broker.id} follows and shows records that nobody has committed")

    def heal(self) -> None:
        """Nothing fails any more, and all of it drains: everything acked is on every replica."""
        self.healed = True
        for _ in range(4_000):
            self.now_s += 0.02
            self._end_leases()
            self.restart()
            self.recover()
            for _ in range(len(self.messages)):
                self.deliver()
            for one in self.alive.values():
                if one.running:
                    one.check_lease()
                    one.apply_metadata(10)
                    one.flush()
                    one.tick()
                    self._heartbeat(one)
            if self._is_whole():
                return
        raise BrokenPromiseError(f"not whole after healing: {self.image.assignment(STREAM, FIRST)}")

    def _is_whole(self) -> bool:
        now = self.image.assignment(STREAM, FIRST)
        assert now is not None
        if now.leader == NO_BROKER or set(now.isr) != set(now.replicas) or now.reassigning:
            return False
        if not all(one in self.alive for one in now.replicas):
            return False
        leader = self.alive[now.leader]
        if not leader.leads or leader.high_watermark < leader.log.end:
            return False
        logs = [self.alive[one].log.records for one in now.replicas]
        if any(log != logs[0] for log in logs):
            return False
        values = [value for _, value in logs[0]]
        if values[: len(self.committed)] != self.committed:
            raise BrokenPromiseError("committed records are gone")
        return True


HAPPENINGS: dict[Callable[[Cluster], None], float] = {
    Cluster.produce: 10,
    Cluster.deliver: 45,
    lambda cluster: cluster.do(Broker.flush): 12,
    lambda cluster: cluster.do(Broker.apply_metadata): 12,
    lambda cluster: cluster.do(Broker.tick): 4,
    lambda cluster: cluster.do(cluster._heartbeat): 6,
    lambda cluster: cluster.do(Broker.checkpoint): 1,
    lambda cluster: cluster.do(Broker.tell_latest): 2,
    lambda cluster: cluster.do(Broker.sync): 0.2,
    Cluster.kill: 0.8,
    Cluster.restart: 1,
    Cluster.pause: 0.3,
    Cluster.recover: 1,
    Cluster.balance: 0.5,
    Cluster.move: 0.2,
}
"""What happens, and how often beside the others."""
LOSSES: dict[Callable[[Cluster], None], float] = {Cluster.lose: 1}
"""What happens too, in one life of five."""

OLDER_COPIES: dict[Callable[[Cluster], None], float] = {Cluster.copy_disk: 1, Cluster.put_back: 0.3}
"""What happens too, where disks are put back."""


def run(seed: int, steps: int = 1_500, *, synced: bool = True, older_copies: bool = False) -> Cluster:
    """One life of a cluster. Raises BrokenPromiseError."""
    minimum = 2 if older_copies or not synced else 1 + seed % 2
    cluster = Cluster(seed, brokers=3 + seed % 3, minimum=minimum, synced=synced, older_copies=older_copies)
    for _ in range(steps):
        cluster.step()
    cluster.heal()
    return cluster
