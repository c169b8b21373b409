"""A partition, or a batch, that stands still while nothing is wrong is found, and one that may wait is not."""

from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest
from msgspec.structs import replace

from logboom.base.ids import NO_BROKER, BrokerId, Epoch, Offset, PartitionEpoch, StreamId, StreamName
from logboom.metadata import Image, Stream
from logboom.metadata.assignment import Assignment
from logboom.sim.client import TopicPartition
from logboom.sim.disk import SimDisk
from logboom.sim.history import History
from logboom.sim.liveness import ACK_MAX_S, STALL_MAX_S, Liveness
from logboom.sim.simulation import Simulation

ONE, TWO, THREE = BrokerId(1), BrokerId(2), BrokerId(3)
ID = StreamId(UUID(int=7))
HELD = Assignment((ONE, TWO, THREE), (ONE, TWO), ONE, Epoch(4), PartitionEpoch(9))


def _broker(number: int) -> Any:
    registered = SimpleNamespace(
        id=BrokerId(number), epoch=number, shutting_down=False, observer=False, active=True, fenced=False
    )
    cluster = SimpleNamespace(
        registration=SimpleNamespace(epoch=number),
        state=SimpleNamespace(applied_index=1, image=Image()),
        view=SimpleNamespace(serving=number == ONE),
        quorum=lambda: SimpleNamespace(voters=[SimpleNamespace(broker_id=one) for one in (ONE, TWO, THREE)]),
        registered=registered,
    )
    health = SimpleNamespace(log_dir_failure=None)
    return SimpleNamespace(cluster=cluster, health=health, replicas=[])


@dataclass
class Watched:
    """Three brokers that look like real ones to who only reads, one partition, and the watch over them."""

    history: History = field(default_factory=History)
    simulation: Simulation = field(default_factory=lambda: Simulation(1))
    brokers: list[Any] = field(default_factory=lambda: [_broker(number) for number in (1, 2, 3)])

    def __post_init__(self) -> None:
        self.nodes = [
            SimpleNamespace(
                name=f"n{number}",
                broker_id=BrokerId(number),
                broker=broker,
                running=True,
                process=SimpleNamespace(loop=SimpleNamespace(life=SimpleNamespace(stands_still=False))),
                device=SimpleNamespace(works=True),
                disk=SimDisk(),
            )
            for number, broker in enumerate(self.brokers, 1)
        ]
        self.leader = SimpleNamespace(
            stream=SimpleNamespace(id=ID),
            index=0,
            role=SimpleNamespace(leads=True, epoch=Epoch(4), leader=SimpleNamespace(high_watermark=Offset(3))),
            log=SimpleNamespace(log_end_offset=Offset(5)),
            config=SimpleNamespace(min_insync_replicas=2),
        )
        self.brokers[0].replicas.append(self.leader)
        self.assign(HELD)
        nodes = cast("Any", self.nodes)
        Liveness(self.simulation, nodes, nodes, self.history)

    def assign(self, held: Assignment) -> None:
        """Every broker has this metadata."""
        stream = Stream(StreamName("s"), ID, 1, {}, internal=False, assignments=(held,))
        brokers = {broker.cluster.registered.id: broker.cluster.registered for broker in self.brokers}
        for broker in self.brokers:
            broker.cluster.state.image = Image(
                by_name={stream.name: stream}, by_id={ID: stream}, brokers=cast("Any", brokers)
            )

    def after(self, seconds: float) -> list[str]:
        """What is wrong when so much time has passed as it is now."""
        for _ in range(int(4 * seconds)):
            self.simulation.scheduler.now_s += 0.25
            self.simulation.scheduler.after_jump()
        return self.history.violations


def test_records_that_are_not_committed_while_all_of_the_isr_is_well() -> None:
    watched = Watched()
    assert watched.after(STALL_MAX_S) == []
    (found,) = watched.after(1.0)
    assert found == (
        "s-0 stands still since 1000.250 s, for 6.2 s: 1 leads in epoch 4, ends at 5, is committed to 3; ISR [1, 2], "
        "all of them well and in touch"
    )
    assert watched.after(60.0) == [found], "once"


def test_a_mark_that_moves_is_no_standstill() -> None:
    watched = Watched()
    for mark in range(4, 50):
        watched.leader.log.log_end_offset = Offset(mark + 2)
        watched.leader.role.leader.high_watermark = Offset(mark)
        assert watched.after(STALL_MAX_S - 1) == []


@pytest.mark.parametrize("moved", [None, NO_BROKER, TWO], ids=["does not know of it", "nobody leads", "another one"])
def test_a_partition_without_a_leader_that_knows_of_it(moved: BrokerId | None) -> None:
    watched = Watched()
    watched.leader.log.log_end_offset = Offset(3)
    if moved is None:
        watched.leader.role.epoch = Epoch(3)
    else:
        watched.assign(replace(HELD, leader=moved, leader_epoch=Epoch(5)))
    assert "does not know of it" in watched.after(STALL_MAX_S + 1)[0]


def _blocked(*ends: str) -> Callable[[Watched], None]:
    return lambda watched: watched.simulation.network.block(*ends)


def _lost_majority(watched: Watched) -> None:
    _blocked("n3", "n1")(watched)
    watched.brokers[0].cluster.view.serving, watched.brokers[2].cluster.view.serving = False, True


def _below(watched: Watched) -> None:
    watched.leader.config.min_insync_replicas = 3


@pytest.mark.parametrize(
    "excuse",
    [
        lambda watched: setattr(watched.nodes[1], "running", False),
        lambda watched: setattr(watched.nodes[1], "broker", None),
        lambda watched: setattr(watched.nodes[1].process.loop.life, "stands_still", True),
        lambda watched: setattr(watched.nodes[1].device, "works", False),
        lambda watched: setattr(watched.nodes[1].disk, "capacity_bytes", 1_000),
        lambda watched: setattr(watched.brokers[1].health, "log_dir_failure", OSError()),
        lambda watched: setattr(watched.brokers[1].cluster.registration, "epoch", 7),
        lambda watched: setattr(watched.brokers[1].cluster.registered, "shutting_down", True),
        _blocked("n1", "n2"),
        _blocked("n2", "n1"),
        _lost_majority,
        _below,
        lambda watched: watched.assign(replace(HELD, adding=(THREE,))),
    ],
    ids=[
        "ended",
        "starts",
        "stands still",
        "disk fails",
        "disk full",
        "log dir offline",
        "not registered",
        "shuts down",
        "cut off",
        "cut off the other way",
        "controller without a majority",
        "below the minimum",
        "moves",
    ],
)
def test_what_may_hold_a_partition_up(excuse: Callable[[Watched], None]) -> None:
    watched = Watched()
    excuse(watched)
    watched.history.waits["p", 1] = TopicPartition("s", 0)
    assert watched.after(3 * ACK_MAX_S) == []


def test_a_broker_outside_the_isr_may_be_gone() -> None:
    watched = Watched()
    watched.nodes[2].running = False
    assert len(watched.after(STALL_MAX_S + 1)) == 1


def test_an_ack_that_does_not_come() -> None:
    """Everything is committed, and whoever sent it is not told."""
    watched = Watched()
    watched.leader.role.leader.high_watermark = Offset(5)
    watched.history.waits["p", 1] = TopicPartition("s", 0)
    assert watched.after(ACK_MAX_S) == []
    (found,) = watched.after(1.0)
    assert found.startswith("batch 1 of p waits for its ack since 1000.250 s, for 15.2 s, from s-0: 1 leads")
    del watched.history.waits["p", 1]
    watched.history.waits["p", 2] = TopicPartition("s", 0)
    watched.nodes[2].running = False
    assert watched.after(3 * ACK_MAX_S) == [found], "clients may ask one that is gone for the way"


def test_another_leader_may_refuse_a_batch_for_as_long_again() -> None:
    """Each may, a producer of which its log has nothing left: leaders went back to where they are preferred."""
    watched = Watched()
    watched.leader.role.leader.high_watermark = Offset(5)
    watched.history.waits["p", 1] = TopicPartition("s", 0)
    assert watched.after(ACK_MAX_S - 1) == []
    watched.leader.role.epoch = Epoch(5)
    watched.assign(replace(HELD, leader_epoch=Epoch(5)))
    assert watched.after(ACK_MAX_S) == []
    assert len(watched.after(1.0)) == 1
