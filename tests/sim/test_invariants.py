"""What must hold at every step: each check says so where it does not."""

import asyncio
from dataclasses import dataclass, field
from functools import partial
from random import Random
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest
from msgspec.structs import replace

from logboom.base.ids import NO_BROKER, BrokerId, Epoch, Offset, PartitionEpoch, StreamId, StreamName
from logboom.metadata import Flush, Image, ImageDelta, Stream
from logboom.metadata.assignment import Assignment
from logboom.records import Record, build_batch
from logboom.replication.leadership import Effect, HighWatermarkMoved, PartitionLeadership
from logboom.sim.client import TopicPartition
from logboom.sim.cluster import run_cluster_seed
from logboom.sim.cluster_scenario import ClusterScenario
from logboom.sim.disk import SimDisk, settled
from logboom.sim.history import History
from logboom.sim.invariants import GivenUpError, Invariants
from logboom.sim.simulation import Simulation

ONE, TWO, THREE = BrokerId(1), BrokerId(2), BrokerId(3)
ID = StreamId(UUID(int=7))
HELD = Assignment((ONE, TWO, THREE), (ONE, TWO), ONE, Epoch(4), PartitionEpoch(9))


class Held:
    """One replica of the partition that there is."""

    def __init__(self, **fields: Any) -> None:
        self.__dict__.update(fields)

    def __str__(self) -> str:
        return "s-0"


@dataclass
class Watched:
    """Two brokers that look like real ones to who only reads, and the watch over them."""

    history: History = field(default_factory=History)
    simulation: Simulation = field(default_factory=lambda: Simulation(1))
    brokers: dict[int, Any] = field(default_factory=dict)
    watchers: dict[int, Any] = field(default_factory=dict)
    nodes: dict[BrokerId, Any] = field(default_factory=dict)
    asked_uncleanly: set[tuple[str, int]] = field(default_factory=set)

    def __post_init__(self) -> None:
        for number in (1, 2):
            loop = SimpleNamespace(life=SimpleNamespace(host=f"n{number}"))
            state = SimpleNamespace(applied_index=1, image=Image(), watch=partial(self.watchers.__setitem__, number))
            view = SimpleNamespace(leadership=SimpleNamespace(leader=None, term=0))
            cluster = SimpleNamespace(state=state, view=view, registration=SimpleNamespace(holds_lease=True))
            self.brokers[number] = SimpleNamespace(cluster=cluster, replicas=[self.partition()], loop=loop)
            process = SimpleNamespace(loop=loop)
            broker_id, broker = BrokerId(number), self.brokers[number]
            node = SimpleNamespace(
                lost_files_of=set(),
                name=f"n{number}",
                broker_id=broker_id,
                process=process,
                broker=broker,
                disk=SimDisk(),
            )
            self.nodes[broker_id] = node
        Invariants(self.simulation, cast("Any", list(self.nodes.values())), self.history, self.asked_uncleanly)

    def partition(self) -> Any:
        leader = SimpleNamespace(high_watermark=Offset(0), isr=frozenset((ONE, TWO)), has_lease=True)
        return Held(
            stream=SimpleNamespace(id=ID, name=StreamName("s")),
            index=0,
            log=SimpleNamespace(durable_end=Offset(0), log_end_offset=Offset(0), log_start_offset=Offset(0)),
            role=SimpleNamespace(leads=False, epoch=Epoch(4), leader=leader),
            config=SimpleNamespace(flush=Flush.COMMIT),
        )

    def step(self, number: int) -> list[str]:
        """Something happened on a broker; what is wrong by now."""
        self.simulation.scheduler.after_step(self.brokers[number].loop)
        return self.history.violations

    def led(self, number: int, *, end: int, mark: int, epoch: int = 4) -> list[str]:
        """A broker leads, with this high-water mark and its own log durable to here."""
        partition = self.brokers[number].replicas[0]
        partition.role.leads, partition.role.epoch = True, Epoch(epoch)
        partition.log.durable_end = partition.log.log_end_offset = Offset(end)
        partition.role.leader.high_watermark = Offset(mark)
        return self.step(number)

    def durable(self, number: int, end: int) -> None:
        partition = self.brokers[number].replicas[0]
        partition.log.durable_end = Offset(end)
        self.step(number)

    def looks(self, number: int, *, broker_has_lease: bool, partition_has_lease: bool) -> list[str]:
        """Something happens on a broker a while after what happened last, when the leases are like this."""
        self.brokers[number].cluster.registration.holds_lease = broker_has_lease
        self.brokers[number].replicas[0].role.leader.has_lease = partition_has_lease
        self.simulation.scheduler.now_s += 1.0
        return self.step(number)

    def applies(self, number: int, index: int, before: Assignment, after: Assignment) -> list[str]:
        """A broker applies an entry that makes one assignment of the other."""
        self.step(number)
        old, new = image(before), image(after)
        delta = ImageDelta(old, new, (), (), (), (new.by_id[ID],), quotas_changed=False, broker_configs_changed=False)
        self.brokers[number].cluster.state.applied_index = index
        self.watchers[number](delta)
        return self.history.violations


def image(held: Assignment) -> Image:
    stream = Stream(StreamName("s"), ID, 1, {}, internal=False, assignments=(held,))
    return Image(by_name={stream.name: stream}, by_id={ID: stream})


def test_a_high_water_mark_that_all_of_the_isr_has() -> None:
    watched = Watched()
    watched.durable(2, 10)
    assert watched.led(1, end=12, mark=10) == []
    assert watched.led(1, end=12, mark=10) == []


@pytest.mark.parametrize(
    ("end", "mark", "says"),
    [
        (12, 11, "s-0 is committed to 11, and 2 of its ISR durable to 10"),
        (12, 3, "the high-water mark of s-0 went back from 5 to 3"),
        (9, 10, "the high-water mark 10 of s-0 is above its end"),
    ],
)
def test_a_high_water_mark_that_is_wrong(end: int, mark: int, says: str) -> None:
    watched = Watched()
    watched.durable(2, 10)
    assert watched.led(1, end=12, mark=5) == []
    assert watched.led(1, end=end, mark=mark) == [says]


def test_a_member_that_is_starting_is_durable_as_far_as_it_has_told() -> None:
    """It follows before its start has returned, and nobody can look into it. Seed 7 was called broken for that."""
    watched = Watched()
    watched.durable(2, 10)
    watched.nodes[TWO].broker = None
    assert watched.led(1, end=12, mark=10) == []
    assert watched.led(1, end=12, mark=12) == []


def test_what_is_acknowledged_before_it_is_committed() -> None:
    watched = Watched()
    watched.durable(2, 10)
    watched.led(1, end=12, mark=10)
    where = TopicPartition("s", 0)
    watched.history.acknowledge(where, 8, [1, 2])
    assert watched.history.violations == []
    watched.history.acknowledge(where, 10, [3])
    assert "acknowledged up to 11, and no leader had more than 10 committed" in watched.history.violations[0]


def test_a_partition_that_does_not_know_of_the_lease_of_its_broker() -> None:
    watched = Watched()
    for _ in range(2):
        assert watched.looks(1, broker_has_lease=True, partition_has_lease=False) == []
    says = ["s-0 on n1 does not know of the lease of its broker"]
    assert watched.looks(1, broker_has_lease=True, partition_has_lease=False) == says


@pytest.mark.parametrize(("broker_has_lease", "partition_has_lease"), [(True, True), (False, False)])
def test_a_partition_that_hears_of_the_lease_a_moment_later(broker_has_lease: bool, partition_has_lease: bool) -> None:
    watched = Watched()
    for _ in range(5):
        watched.looks(1, broker_has_lease=True, partition_has_lease=False)
        watched.looks(1, broker_has_lease=broker_has_lease, partition_has_lease=partition_has_lease)
    assert watched.history.violations == []


def test_two_leaders_of_one_epoch() -> None:
    watched = Watched()
    watched.led(1, end=0, mark=0)
    assert watched.led(2, end=0, mark=0, epoch=5) == []
    assert "2 and 1 lead" in watched.led(1, end=0, mark=0, epoch=5)[0]


def test_two_controllers_of_one_term() -> None:
    watched = Watched()
    for number, (leader, term) in ((1, (11, 3)), (2, (11, 3)), (2, (12, 4)), (1, (11, 4))):
        assert watched.history.violations == []
        watched.brokers[number].cluster.view.leadership = SimpleNamespace(leader=leader, term=term)
        watched.step(number)
    assert watched.history.violations == ["nodes 12 and 11 lead the group in term 4"]


def test_brokers_that_have_applied_different_entries() -> None:
    watched = Watched()
    shrunk = replace(HELD, isr=(ONE,), partition_epoch=PartitionEpoch(10))
    assert watched.applies(1, 5, HELD, shrunk) == []
    assert watched.applies(2, 5, HELD, shrunk) == []
    assert watched.applies(1, 6, HELD, shrunk) == []
    assert watched.applies(2, 6, HELD, HELD) == ["brokers have different metadata after entry 6 of the group's log"]


def test_a_broker_that_comes_up_while_it_applies_an_entry_has_nothing_wrong() -> None:
    """Its image is ahead of the entry that it has applied. Seed 5012 was called broken for that."""
    watched = Watched()
    watched.applies(1, 1, HELD, HELD)
    watched.brokers[2].cluster.state.image = image(replace(HELD, isr=(ONE,)))
    assert watched.step(2) == []


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"leader": THREE, "leader_epoch": Epoch(5)}, "3 leads s-0 outside the ISR [1, 2]"),
        ({"isr": (ONE, BrokerId(4))}, "s-0 has [1, 4] in ISR and ELR, and the replicas [1, 2, 3]"),
        ({"elr": (TWO,)}, "[2] are in the ISR and the ELR of s-0"),
        ({"leader": TWO}, "s-0 has the leader 2 in the old epoch 4"),
    ],
)
def test_assignments_that_are_wrong(wrong: dict[str, Any], says: str) -> None:
    assert Watched().applies(1, 5, HELD, replace(HELD, **wrong)) == [says]


def test_changes_of_the_metadata_are_counted_once() -> None:
    watched = Watched()
    alone = replace(HELD, isr=(ONE,), elr=(TWO,), partition_epoch=PartitionEpoch(10))
    watched.applies(1, 5, HELD, alone)
    watched.applies(2, 5, HELD, alone)
    watched.applies(1, 6, alone, replace(alone, leader=NO_BROKER, leader_epoch=Epoch(5), isr=(), elr=(ONE, TWO)))
    watched.applies(1, 7, alone, replace(HELD, leader=TWO, leader_epoch=Epoch(6)))
    assert {name: times for name, times in watched.simulation.trace.met.items() if times} == {
        "ISR shrinks": 2,
        "ISR expansions": 1,
        "eligible leader replicas kept": 2,
        "partitions without a leader": 1,
        "elections of partition leaders": 1,
    }


WAITS = Assignment((ONE, TWO, THREE), (ONE,), NO_BROKER, Epoch(4), PartitionEpoch(9))
"""Only a broker that is gone counts as having everything."""
CHOSEN = replace(WAITS, isr=(TWO,), leader=TWO, leader_epoch=Epoch(5), partition_epoch=PartitionEpoch(10))


def test_a_leader_that_was_not_eligible_must_have_been_asked_for() -> None:
    says = "2 leads s-0, was not eligible, and nobody has asked for it"
    assert Watched().applies(1, 5, WAITS, CHOSEN) == [says]
    assert Watched(asked_uncleanly={("s", 0)}).applies(1, 5, WAITS, CHOSEN) == []


def test_who_joins_the_isr_and_leads_by_the_same_change_was_let_in() -> None:
    """So a move ends: seed 3008 of five nodes was called broken for that."""
    moving = replace(HELD, replicas=(THREE, TWO, ONE), isr=(ONE, TWO), adding=(THREE,), removing=(ONE,))
    moved = Assignment((THREE, TWO), (TWO, THREE), THREE, Epoch(5), PartitionEpoch(10))
    assert Watched().applies(1, 5, moving, moved) == []


@pytest.mark.parametrize(
    ("held", "gives_up"),
    [((7, 8), False), ((7, 8, 9), False), ((7,), True), ((7, 9), True), ((), True)],
    ids=["all", "more than all", "one less", "another one", "nothing"],
)
def test_a_chosen_copy_that_lacks_what_somebody_was_told_ends_the_run(held: tuple[int, ...], gives_up: bool) -> None:
    """And only such a one: who has everything leads like any other."""
    watched = Watched(asked_uncleanly={("s", 0)})
    watched.history.seen[TopicPartition("s", 0)] = {Offset(n): value for n, value in enumerate((7, 8))}
    records = [Record(Offset(n), 0, None, b"%d  " % value, ()) for n, value in enumerate(held)]
    reserved = bytes(build_batch(records) if records else b"") + bytes(512)
    watched.nodes[TWO].disk.nodes["streams/s-0/00000000000000000000.log"] = settled(reserved)
    watched.applies(1, 5, WAITS, CHOSEN)
    assert watched.led(2, end=len(held), mark=0, epoch=5) == []
    met = watched.simulation.trace.met
    assert met["unclean elections"] == 1
    assert met["unclean elections that gave records up, and ended a run"] == gives_up
    ended = asyncio.Event()

    async def goes_on() -> None:
        ended.set()

    if gives_up:
        with pytest.raises(GivenUpError, match="led by 2, which lacks"):
            watched.simulation.run(goes_on())
    else:
        watched.simulation.run(goes_on())
        assert ended.is_set()


@pytest.mark.parametrize("lost_power", [False, True])
def test_a_chosen_copy_in_which_a_bit_has_flipped_is_not_judged_by_that(lost_power: bool) -> None:
    """Readers are told, and it stops to lead then: seed 650168 of three nodes took the record for a number."""
    watched = Watched(asked_uncleanly={("s", 0)})
    watched.history.seen[TopicPartition("s", 0)] = {Offset(n): 7 + n for n in range(2)}
    for offset in range(2):
        record = Record(Offset(offset), 0, None, b"%d  " % (7 + offset), ())
        node = settled(bytes(build_batch([record], base_offset=offset)))
        if offset == 0:
            node.flip(8 * len(node.data) - 14)
        kept = node.after_power_cut(Random(1)) if lost_power else node.copy()
        watched.nodes[TWO].disk.nodes[f"streams/s-0/{offset:020}.log"] = kept
    watched.applies(1, 5, WAITS, CHOSEN)
    assert watched.led(2, end=2, mark=0, epoch=5) == []
    assert watched.simulation.trace.met["unclean elections that gave records up, and ended a run"] == 0


def test_a_chosen_copy_that_has_lost_a_segment_is_not_judged_by_that() -> None:
    """Nobody has read there yet; what it has is still compared."""
    watched = Watched(asked_uncleanly={("s", 0)})
    watched.history.seen[TopicPartition("s", 0)] = {Offset(n): 7 + n for n in range(2)}
    record = Record(Offset(1), 0, None, b"8  ", ())
    watched.nodes[TWO].disk.nodes[f"streams/s-0/{1:020}.log"] = settled(bytes(build_batch([record], base_offset=1)))
    watched.nodes[TWO].lost_files_of.add("streams/s-0")
    watched.applies(1, 5, WAITS, CHOSEN)
    assert watched.led(2, end=2, mark=0, epoch=5) == []
    assert watched.simulation.trace.met["unclean elections that gave records up, and ended a run"] == 0


def advances_alone(leadership: PartitionLeadership) -> tuple[Effect, ...]:
    """Without asking what the others of the ISR have."""
    committed = leadership.durable_end(leadership.broker_id)
    if committed is None or committed <= leadership.high_watermark:
        return ()
    leadership.high_watermark = committed
    return (HighWatermarkMoved(committed),)


def test_a_leader_that_commits_what_it_alone_has_is_found_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a whole cluster, with no fault at all."""
    calm = ClusterScenario(beside=(), troubled_s=0.5).limited_to(())
    assert run_cluster_seed(1, calm).violations == ()
    monkeypatch.setattr(PartitionLeadership, "_advance", advances_alone)
    assert any("of its ISR durable to" in text for text in run_cluster_seed(1, calm).violations)
