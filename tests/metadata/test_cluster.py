"""Brokers come and go, ISRs shrink and grow, replicas move: whoever leads has every committed record.

The machine below runs the commands of `logboom.metadata` on one partition, beside a model of what each broker's disk
holds. Disks lie: a process that is killed may lose what it wrote last, although it was acked, or an older copy of its
disk is put back. Such a disk must not cost a committed record as long as another replica has it.
"""

import contextlib
from dataclasses import dataclass, field, replace
from random import Random
from uuid import UUID

import pytest
from msgspec.structs import replace as change_struct

from logboom.base.errors import (
    DuplicateBrokerError,
    ElectionNotNeededError,
    FencedLeaderEpochError,
    IneligibleReplicaError,
    InvalidAssignmentError,
    InvalidReplicationFactorError,
    InvalidRequestError,
    InvalidUpdateVersionError,
    LogboomError,
    NoReassignmentInProgressError,
    NotLeaderError,
    PreferredLeaderNotAvailableError,
    StaleBrokerEpochError,
    UnknownBrokerError,
)
from logboom.base.ids import (
    NO_BROKER,
    BrokerEpoch,
    BrokerId,
    DirectoryId,
    Epoch,
    Offset,
    PartitionEpoch,
    PartitionIndex,
    StreamId,
    StreamName,
)
from logboom.metadata import (
    Image,
    MetadataRecord,
    Stream,
    StreamCreated,
    apply_all,
    assignment,
    decode,
    encode,
)
from logboom.metadata.assignment import Assignment, Election, ordered
from logboom.metadata.leadership import (
    IsrProposal,
    LogEnd,
    change_isr,
    elect,
    rebalance,
    recover,
    recovery_candidates,
)
from logboom.metadata.leases import BrokerLease, BrokerLeases
from logboom.metadata.membership import (
    RegistrationRequest,
    begin_shutdown,
    drain,
    fence,
    register,
    unfence,
    unregister,
)
from logboom.metadata.placement import Load, place, start
from logboom.metadata.reassignment import cancel, check_replicas, reassign
from logboom.metadata.records import Placed

STREAM = StreamId(UUID(int=1))
NAME = "orders"
FIRST = PartitionIndex(0)
BROKERS = [BrokerId(n) for n in range(1, 6)]


def minimum_of(stream: Stream) -> int:
    return int(stream.overrides.get("min.insync.replicas", "1"))


def registration(broker: BrokerId, *, incarnation: str = "a", clean: BrokerEpoch | None = None) -> RegistrationRequest:
    return RegistrationRequest(
        broker, DirectoryId(f"disk-{broker}"), incarnation, {"client": ("h", 9)}, clean_epoch=clean
    )


def cluster(brokers: int, *, replicas: int = 0, minimum: int = 1) -> Image:
    """Active brokers from 1 on; with `replicas`, a stream of one partition on the first of them."""
    image = Image()
    for broker in BROKERS[:brokers]:
        image = apply_all(image, register(image, registration(broker), minimum_of))
        image = apply_all(image, unfence(image, broker, image.brokers[broker].epoch, minimum_of))
    if replicas:
        placed = Placed.of(start(tuple(BROKERS[:replicas]), image.brokers))
        config = {"min.insync.replicas": str(minimum)}
        created = StreamCreated(name=StreamName(NAME), id=STREAM, partitions=1, config=config, placed=(placed,))
        image = apply_all(image, (created,))
    return image


def the_partition(image: Image) -> Assignment:
    found = image.assignment(STREAM, FIRST)
    assert found is not None
    return found


def proposal(image: Image, isr: set[BrokerId], **other: int) -> IsrProposal:
    now = the_partition(image)
    return IsrProposal(
        STREAM,
        FIRST,
        Epoch(other.get("leader_epoch", now.leader_epoch)),
        PartitionEpoch(other.get("partition_epoch", now.partition_epoch)),
        {broker: image.brokers[broker].epoch for broker in isr},
    )


@dataclass
class Host:
    """A broker of the model: its disk, and what the rules have to know of it."""

    alive: bool = True
    starts: int = 0
    disks: int = 0
    """How many it has lost."""
    clean: BrokerEpoch | None = None
    records: set[int] = field(default_factory=set)
    lied: bool = False
    """It lost records that it had acked, and was not brought up to date since."""


class ClusterMachine:
    """See the module."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.image = cluster(5, replicas=3, minimum=2)
        self.hosts = {broker: Host() for broker in BROKERS}
        self.committed: set[int] = set()
        self.produced = 0
        self.written: list[MetadataRecord] = list(self.image.snapshot())
        self.excused = False
        """No replica was left that both has everything and may be trusted: what is lost now, a disk has lost."""

    def take(self, records: tuple[MetadataRecord, ...]) -> None:
        before = the_partition(self.image)
        self.written += [decode(encode(record)) for record in records]
        self.image = apply_all(self.image, records)
        after = the_partition(self.image)
        assert after.leader_epoch >= before.leader_epoch
        assert after.partition_epoch >= before.partition_epoch
        if after.leader != before.leader and after.leader != NO_BROKER:
            assert after.leader_epoch > before.leader_epoch
        if after != before:
            assert after.partition_epoch > before.partition_epoch

    def acts(self, broker: BrokerId) -> bool:
        return self.hosts[broker].alive and self.image.is_active(broker)

    def a_replica(self) -> BrokerId:
        return self.random.choice(the_partition(self.image).replicas)

    @property
    def leader(self) -> BrokerId:
        """Who serves."""
        leader = the_partition(self.image).leader
        return leader if leader != NO_BROKER and self.hosts[leader].alive else NO_BROKER

    def produce(self) -> None:
        now = the_partition(self.image)
        if self.leader == NO_BROKER or not all(self.hosts[one].alive for one in now.isr):
            return
        self.produced += 1
        self.hosts[self.leader].records.add(self.produced)
        if len(now.isr) < min(2, len(now.replicas)):
            return  # written by the leader, never acked
        for one in now.isr:
            self.hosts[one].records = set(self.hosts[self.leader].records)
        self.committed = set(self.hosts[self.leader].records)

    def propose(self) -> None:
        broker, joins = self.a_replica(), self.random.random() < 0.7
        if self.leader == NO_BROKER or broker == self.leader:
            return
        isr = set(the_partition(self.image).isr)
        if joins and broker in the_partition(self.image).replicas and self.acts(broker):
            self.hosts[broker].records = set(self.hosts[self.leader].records)
            self.hosts[broker].lied = False
            isr.add(broker)
        elif not joins:
            isr.discard(broker)
        if self.leader not in the_partition(self.image).removing and set(the_partition(self.image).target) <= isr:
            isr -= set(the_partition(self.image).removing)
        try:
            self.take(
                change_isr(
                    self.image,
                    self.leader,
                    self.image.brokers[self.leader].epoch,
                    proposal(self.image, isr),
                    minimum_of,
                )
            )
        except IneligibleReplicaError:
            assert not all(map(self.image.is_active, isr))

    def kill(self) -> None:
        broker, loses = self.a_replica(), self.random.random() < 0.5
        host = self.hosts[broker]
        if not host.alive:
            return
        host.alive, host.clean = False, None
        if loses and host.records:
            kept = self.random.choice(sorted(host.records))
            lost = {record for record in host.records if record > kept}
            host.records -= lost
            host.lied = host.lied or bool(lost & self.committed)

    def shut_down(self) -> None:
        broker = self.a_replica()
        host = self.hosts[broker]
        if not host.alive or broker not in self.image.brokers:
            return
        epoch = self.image.brokers[broker].epoch
        self.take(begin_shutdown(self.image, broker, epoch, minimum_of))
        host.alive, host.clean = False, epoch

    def lease_ends(self) -> None:
        broker = self.a_replica()
        if broker in self.image.brokers and not self.hosts[broker].alive:
            self.take(fence(self.image, broker, minimum_of))

    def restart(self) -> None:
        broker = self.random.choice(BROKERS)
        host = self.hosts[broker]
        if host.alive:
            return
        host.starts += 1
        wanted = registration(broker, incarnation=str(host.starts), clean=host.clean)
        if host.disks:
            wanted = replace(wanted, directory_id=DirectoryId(f"disk-{broker}-{host.disks}"))
        self.take(register(self.image, wanted, minimum_of))
        host.alive = True
        self.take(unfence(self.image, broker, self.image.brokers[broker].epoch, minimum_of))

    def move(self) -> None:
        replicas, led = self.random.sample(BROKERS, 3), self.image.is_active(the_partition(self.image).leader)
        try:
            self.take(reassign(self.image, NAME, 0, replicas, minimum_of))
        except InvalidAssignmentError:
            assert not set(replicas) <= set(self.image.brokers)
        assert self.image.is_active(the_partition(self.image).leader) >= led, "a move takes no leader away"

    def move_back(self) -> None:
        led = self.image.is_active(the_partition(self.image).leader)
        with contextlib.suppress(NoReassignmentInProgressError, InvalidAssignmentError):
            self.take(cancel(self.image, NAME, 0, minimum_of))
        assert self.image.is_active(the_partition(self.image).leader) >= led

    def balance(self) -> None:
        self.take(rebalance(self.image, minimum_of, most=1))

    def recover_with_all(self) -> None:
        """The caller waits for every candidate. Later records have higher numbers, and later leaders write them."""
        candidates = recovery_candidates(the_partition(self.image))
        if not candidates or not all(one in self.image.brokers and self.acts(one) for one in candidates):
            return
        ends = {one: LogEnd(Epoch(0), Offset(max(self.hosts[one].records, default=0))) for one in candidates}
        self.take(recover(self.image, STREAM, FIRST, ends, minimum_of))
        if all(self.hosts[one].lied for one in candidates):
            self.excused = True

    def elect_anybody(self) -> None:
        try:
            self.take(elect(self.image, NAME, 0, Election.UNCLEAN, minimum_of))
        except LogboomError:
            return
        leader = the_partition(self.image).leader
        self.committed &= self.hosts[leader].records  # what was lost was given up in so many words
        self.hosts[leader].lied = False

    def remove_for_good(self) -> None:
        broker = self.a_replica()
        host = self.hosts[broker]
        if broker not in self.image.brokers or host.alive:
            return
        if set(the_partition(self.image).relied_on) <= {broker}:
            return  # an operator who removes the last copy loses it
        self.take(fence(self.image, broker, minimum_of))
        self.take(unregister(self.image, broker, minimum_of))
        host.records, host.clean, host.lied = set(), None, False
        host.disks += 1

    def the_state_is_sound(self) -> None:
        now = the_partition(self.image)
        assert len(set(now.replicas)) == len(now.replicas) > 0
        assert now.leader == NO_BROKER or now.leader in now.isr
        assert set(now.isr) | set(now.elr) | set(now.last_known) <= set(now.replicas)
        assert not set(now.isr) & set(now.elr)
        assert not (set(now.isr) | set(now.elr)) & set(now.last_known)
        assert set(now.adding) | set(now.removing) <= set(now.replicas)
        if len(now.isr) >= 2 and now.leader != NO_BROKER:
            assert not now.elr
        assert len([one for one in now.replicas if one not in now.removing]) == 3

    def the_leader_has_every_committed_record(self) -> None:
        leader = self.leader
        if leader == NO_BROKER or not self.acts(leader):
            return
        host = self.hosts[leader]
        if self.excused or host.lied:
            assert self.excused, f"broker {leader} lost records and leads, while others had them"
            self.committed &= host.records
            host.lied = self.excused = False
        assert self.committed <= host.records

    def the_log_and_its_snapshot_give_the_same_image(self) -> None:
        assert apply_all(Image(), self.written) == self.image
        assert apply_all(Image(), [decode(encode(record)) for record in self.image.snapshot()]) == self.image


ACTIONS = {
    ClusterMachine.produce: 30,
    ClusterMachine.propose: 20,
    ClusterMachine.kill: 8,
    ClusterMachine.lease_ends: 10,
    ClusterMachine.restart: 10,
    ClusterMachine.shut_down: 3,
    ClusterMachine.move: 3,
    ClusterMachine.move_back: 1,
    ClusterMachine.balance: 3,
    ClusterMachine.recover_with_all: 3,
    ClusterMachine.elect_anybody: 0.5,
    ClusterMachine.remove_for_good: 0.5,
}
"""What happens, and how often beside the others."""


def run(seed: int) -> None:
    machine = ClusterMachine(Random(seed))
    for action in machine.random.choices(list(ACTIONS), list(ACTIONS.values()), k=120):
        action(machine)
        machine.the_state_is_sound()
        machine.the_leader_has_every_committed_record()
    machine.the_log_and_its_snapshot_give_the_same_image()


@pytest.mark.in_turn(2)
@pytest.mark.parametrize("first", range(0, 400, 100))
def test_whoever_leads_has_every_committed_record(first: int) -> None:
    """`run` asserts it after each step of a random run."""
    for seed in range(first, first + 100):
        run(seed)


def _nobody_leaves_after_a_crash(after: Assignment, lost: frozenset[BrokerId]) -> Assignment:
    return after


def _all_who_leave_stay_eligible(
    before: Assignment, after: Assignment, lost: frozenset[BrokerId], minimum: int
) -> Assignment:
    there = (set(before.isr) | set(before.elr)) & set(after.replicas) - set(after.isr)
    return change_struct(after, elr=assignment.ordered(there), last_known=())


def _a_move_ends_at_once(after: Assignment) -> Assignment:
    staying = tuple(one for one in after.replicas if one not in after.removing)
    return assignment._only_replicas(change_struct(after, replicas=staying, adding=(), removing=()))


def _anybody_leads(after: Assignment, wish: assignment.PartitionUpdate, rules: assignment.Eligibility) -> Assignment:
    active = [one for one in after.replicas if rules.is_active(one)]
    return change_struct(after, leader=active[0], isr=ordered({active[0], *after.isr})) if active else after


@pytest.mark.parametrize(
    ("rule", "fault"),
    [
        ("_without_lost", _nobody_leaves_after_a_crash),
        ("_with_eligible_replicas", _all_who_leave_stay_eligible),
        ("_with_completed_reassignment", _a_move_ends_at_once),
        ("_with_leader", _anybody_leads),
    ],
)
def test_the_machine_finds_a_broken_rule(monkeypatch: pytest.MonkeyPatch, rule: str, fault: object) -> None:
    monkeypatch.setattr(assignment, rule, fault)
    with pytest.raises(AssertionError):
        list(map(run, range(300)))


# --- commands one by one ----------------------------------------------------------------------------------------


def test_a_process_takes_over_from_the_one_before_in_the_same_directory_and_no_other() -> None:
    image = cluster(3, replicas=3)
    with pytest.raises(DuplicateBrokerError, match="logboom cluster remove 1"):
        register(image, replace(registration(BROKERS[0]), directory_id=DirectoryId("new"), incarnation="b"), minimum_of)
    assert register(image, registration(BROKERS[0]), minimum_of) == (), "a repeated request"
    after = apply_all(image, register(image, registration(BROKERS[0], incarnation="b"), minimum_of))
    assert after.brokers[BROKERS[0]].epoch > image.brokers[BROKERS[0]].epoch
    assert after.brokers[BROKERS[0]].fenced
    assert (the_partition(after).leader, the_partition(after).isr) == (2, (2, 3))
    for outdated in (unfence, begin_shutdown):
        with pytest.raises(StaleBrokerEpochError):
            outdated(after, BROKERS[0], image.brokers[BROKERS[0]].epoch, minimum_of)


def test_a_process_is_refused_whose_directory_knows_nothing_of_the_process_before() -> None:
    image = cluster(3, replicas=3)
    next_one = registration(BROKERS[0], incarnation="c")
    with pytest.raises(DuplicateBrokerError, match="is an older copy"):
        register(image, replace(next_one, earlier=("z",)), minimum_of)
    for earlier in ((), ("a",), ("z", "a", "b")):  # b died before it was registered
        assert register(image, replace(next_one, earlier=earlier), minimum_of)


def test_a_single_node_leads_on_in_a_new_epoch_after_every_start() -> None:
    image = cluster(1, replicas=1)
    for start_number in range(3):
        records = register(image, registration(BROKERS[0], incarnation=f"start {start_number}"), minimum_of)
        assert len(records) == 1, "no record for each partition"
        image = apply_all(image, records)
        image = apply_all(image, unfence(image, BROKERS[0], image.brokers[BROKERS[0]].epoch, minimum_of))
    assert the_partition(image) == Assignment((BROKERS[0],), (BROKERS[0],), BROKERS[0], Epoch(3), PartitionEpoch(3))
    assert apply_all(Image(), image.snapshot()) == image


def test_a_proposal_is_checked_against_both_epochs_and_the_members_processes() -> None:
    image = cluster(4, replicas=3)
    leader, epoch = BROKERS[0], image.brokers[BROKERS[0]].epoch

    def refused(error: type[LogboomError], wanted: IsrProposal, who: BrokerId = leader) -> None:
        with pytest.raises(error):
            change_isr(image, who, image.brokers[who].epoch, wanted, minimum_of)

    both = {BROKERS[0], BROKERS[1]}
    refused(FencedLeaderEpochError, proposal(image, both, leader_epoch=-1))
    refused(NotLeaderError, proposal(image, both), BROKERS[1])
    refused(InvalidUpdateVersionError, proposal(image, both, partition_epoch=7))
    refused(IneligibleReplicaError, proposal(image, {BROKERS[0], BROKERS[3]}))
    refused(IneligibleReplicaError, proposal(image, set()))
    earlier = replace(proposal(image, both), isr={BROKERS[0]: epoch, BROKERS[1]: BrokerEpoch(-1)})
    refused(IneligibleReplicaError, earlier)
    image = apply_all(image, change_isr(image, leader, epoch, proposal(image, both), minimum_of))
    assert (the_partition(image).isr, the_partition(image).leader_epoch) == ((1, 2), 0)
    image = apply_all(image, fence(image, BROKERS[2], minimum_of))
    refused(IneligibleReplicaError, proposal(image, {*both, BROKERS[2]}))


def test_a_leader_that_proposes_an_isr_without_itself_has_another_member_lead() -> None:
    image = cluster(4, replicas=3)
    leader, epoch = BROKERS[0], image.brokers[BROKERS[0]].epoch
    without = proposal(image, {BROKERS[1], BROKERS[2]})
    after = the_partition(apply_all(image, change_isr(image, leader, epoch, without, minimum_of)))
    assert (after.isr, after.leader, after.leader_epoch) == ((2, 3), 2, 1)
    assert leader in after.replicas

    image = apply_all(image, fence(image, BROKERS[2], minimum_of))
    image = apply_all(image, fence(image, BROKERS[1], minimum_of))
    with pytest.raises(IneligibleReplicaError):
        change_isr(image, leader, epoch, proposal(image, set()), minimum_of)
    with pytest.raises(IneligibleReplicaError):
        change_isr(image, leader, epoch, proposal(image, {BROKERS[1]}), minimum_of)


def test_elections_are_refused_where_they_change_nothing_or_have_no_winner() -> None:
    image = cluster(3, replicas=2)
    with pytest.raises(ElectionNotNeededError):
        elect(image, NAME, 0, Election.PREFERRED, minimum_of)
    with pytest.raises(ElectionNotNeededError):
        elect(image, NAME, 0, Election.UNCLEAN, minimum_of)
    image = apply_all(image, fence(image, BROKERS[0], minimum_of))
    with pytest.raises(PreferredLeaderNotAvailableError):
        elect(image, NAME, 0, Election.PREFERRED, minimum_of)
    image = apply_all(image, fence(image, BROKERS[1], minimum_of))
    assert (the_partition(image).leader, the_partition(image).elr) == (NO_BROKER, (2,))
    with pytest.raises(LogboomError, match="no replica of orders-0 is active"):
        elect(image, NAME, 0, Election.UNCLEAN, minimum_of)
    image = apply_all(image, unfence(image, BROKERS[0], image.brokers[BROKERS[0]].epoch, minimum_of))
    assert the_partition(image).leader == NO_BROKER, "it does not have what broker 2 committed alone"
    image = apply_all(image, elect(image, NAME, 0, Election.UNCLEAN, minimum_of))
    assert (the_partition(image).leader, the_partition(image).isr, the_partition(image).elr) == (1, (1,), ())


def test_leaderships_go_back_to_the_preferred_leader_a_few_at_a_time() -> None:
    image = cluster(3)
    placed = [Placed.of(start((BROKERS[0], BROKERS[1]), image.brokers)) for _ in range(4)]
    image = apply_all(
        image, [StreamCreated(name=StreamName(NAME), id=STREAM, partitions=4, config={}, placed=tuple(placed))]
    )
    epoch = image.brokers[BROKERS[0]].epoch
    image = apply_all(image, begin_shutdown(image, BROKERS[0], epoch, minimum_of))
    assert {one.leader for one in image.by_id[STREAM].assignments} == {2}
    assert rebalance(image, minimum_of, most=9) == (), "broker 1 is not back"
    image = apply_all(image, register(image, registration(BROKERS[0], incarnation="b", clean=epoch), minimum_of))
    image = apply_all(image, unfence(image, BROKERS[0], image.brokers[BROKERS[0]].epoch, minimum_of))
    for index in range(4):
        one = image.by_id[STREAM].assignments[index]
        isr = {broker: image.brokers[broker].epoch for broker in BROKERS[:2]}
        wanted = IsrProposal(STREAM, PartitionIndex(index), one.leader_epoch, one.partition_epoch, isr)
        image = apply_all(image, change_isr(image, BROKERS[1], isr[BROKERS[1]], wanted, minimum_of))
    image = apply_all(image, rebalance(image, minimum_of, most=3))
    assert [one.leader for one in image.by_id[STREAM].assignments] == [1, 1, 1, 2]


def test_a_broker_leaves_for_good_only_once_it_has_ended() -> None:
    image = cluster(3, replicas=3)
    with pytest.raises(InvalidRequestError, match="stop it before"):
        unregister(image, BROKERS[2], minimum_of)
    with pytest.raises(UnknownBrokerError):
        unregister(image, BROKERS[4], minimum_of)
    image = apply_all(image, fence(image, BROKERS[2], minimum_of))
    image = apply_all(image, unregister(image, BROKERS[2], minimum_of))
    assert list(image.brokers) == [1, 2]
    assert the_partition(image).isr == (1, 2)


def test_a_drained_broker_gets_nothing_new_and_stays_drained_after_a_restart() -> None:
    image = cluster(3)
    image = apply_all(image, drain(image, BROKERS[0], draining=True))
    image = apply_all(image, register(image, registration(BROKERS[0], incarnation="b"), minimum_of))
    placed = place(image.brokers, Load(), partitions=6, replication_factor=2, first=0)
    assert {broker for replicas in placed for broker in replicas} == {2, 3}
    with pytest.raises(InvalidReplicationFactorError, match="3 cannot be had with 2 brokers"):
        place(image.brokers, Load(), partitions=1, replication_factor=3, first=0)


def test_replicas_are_even_over_brokers_and_racks_and_never_share_a_failure_domain() -> None:
    image = Image()
    for broker in map(BrokerId, range(1, 10)):
        wanted = replace(registration(broker), rack=f"rack {broker % 3}", failure_domain=f"machine {(broker - 1) // 3}")
        image = apply_all(image, register(image, wanted, minimum_of))
        image = apply_all(image, unfence(image, broker, image.brokers[broker].epoch, minimum_of))
    load = Load()
    for first in range(7):
        for replicas in place(image.brokers, load, partitions=9, replication_factor=3, first=first):
            chosen = [image.brokers[one] for one in replicas]
            assert len({one.domain for one in chosen}) == 3
            assert len({one.rack for one in chosen}) == 3
    assert max(load.preferred.values()) - min(load.preferred.values()) <= 1
    assert max(load.replicas.values()) - min(load.replicas.values()) <= 2
    with pytest.raises(InvalidReplicationFactorError, match="9 brokers in 3 failure domains"):
        place(image.brokers, load, partitions=1, replication_factor=4, first=0)
    with pytest.raises(InvalidAssignmentError, match="brokers 1 and 2 fail together"):
        check_replicas(image, [1, 2])


@pytest.mark.parametrize("replicas", [[], [1, 1], [1, 9]])
def test_replicas_that_cannot_be(replicas: list[int]) -> None:
    image = cluster(3, replicas=3)
    with pytest.raises(InvalidAssignmentError):
        reassign(image, NAME, 0, replicas, minimum_of)
    with pytest.raises(NoReassignmentInProgressError):
        cancel(image, NAME, 0, minimum_of)


def test_the_broker_knows_that_its_lease_is_over_before_the_controller_does() -> None:
    mine, theirs = BrokerLease(2.0), BrokerLeases(2.0)
    assert not mine.holds(0.0), "no heartbeat was answered yet"
    theirs.begin(BROKERS[:2], now_s=100.0)
    theirs.renew(BROKERS[0], now_s=103.1)  # sent at 103.0
    mine.renewed(sent_s=103.0)
    mine.renewed(sent_s=102.0)  # an answer that was overtaken
    assert mine.holds(104.9)
    assert not mine.holds(105.0)
    assert theirs.expired(105.2) == (2,)
    theirs.drop(BROKERS[1])
    assert theirs.expired(105.2) == ()
    assert theirs.expired(105.31) == (1,)
    assert theirs.next_end_s == pytest.approx(105.3)


def test_a_heartbeat_that_is_heard_after_a_later_one_shortens_no_lease() -> None:
    """The broker has the answer to the later one, and counts on it."""
    leases = BrokerLeases(2.0)
    leases.begin(BROKERS[:1], now_s=100.0)
    leases.renew(BROKERS[0], now_s=103.0)
    leases.renew(BROKERS[0], now_s=102.0)
    assert leases.expired(now_s=105.1) == ()
    assert leases.expired(now_s=105.3) == (BROKERS[0],)
