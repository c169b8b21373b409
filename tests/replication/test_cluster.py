"""Lives of a cluster of the pure cores: nothing acked is lost, nothing read changes, and after healing all is whole."""

from collections.abc import Callable

import pytest
from tests.replication import cluster
from tests.replication.cluster import BrokenPromiseError, Broker, run

from logboom.base.ids import NO_BROKER, BrokerId, Epoch
from logboom.metadata.assignment import Assignment
from logboom.replication import following, leadership
from logboom.replication.leadership import PartitionLeadership


@pytest.mark.parametrize("first", range(0, 80, 20))
def test_whatever_happens_to_brokers_and_messages_every_acked_record_stays(first: int) -> None:
    committed = sum(len(run(seed).committed) for seed in range(first, first + 20))
    assert committed > 200, "hardly anything was written"


def truncate_to_the_high_watermark(patch: pytest.MonkeyPatch) -> None:
    """What Kafka did before KIP-101."""
    follow = Broker._follow

    def first_truncates(self: Broker, now: Assignment, epoch: Epoch) -> None:
        if now.leader not in (NO_BROKER, self.id) and now.leader_epoch > self.follower.epoch:
            self.log.truncate(self.high_watermark)
        follow(self, now, epoch)

    patch.setattr(Broker, "_follow", first_truncates)


def compare_no_epochs(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(cluster, "divergence", lambda *_, **__: None)


def cut_at_the_leaders_end_of_the_epoch_alone(patch: pytest.MonkeyPatch) -> None:
    """One round of KIP-101 without KIP-279."""
    patch.setattr(following, "truncation_point", lambda _, end, diverging: min(end, diverging.end_offset))


def count_no_pending_members(patch: pytest.MonkeyPatch) -> None:
    """What KIP-497 mends."""
    propose = PartitionLeadership._propose

    def with_committed_members(self: PartitionLeadership, isr: frozenset[BrokerId]) -> tuple[leadership.Effect, ...]:
        effects = propose(self, isr)
        self._maximal_isr = self._isr
        return effects

    patch.setattr(PartitionLeadership, "_propose", with_committed_members)


def let_anybody_join(patch: pytest.MonkeyPatch) -> None:
    def at_once(self: PartitionLeadership, replica: BrokerId) -> tuple[leadership.Effect, ...]:
        return self._propose(self._isr | {replica}) if replica not in self._isr and self._can_propose else ()

    patch.setattr(PartitionLeadership, "_expand", at_once)


def ignore_the_minimum(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(PartitionLeadership, "has_minimum", property(lambda self: bool(self._isr)))


@pytest.mark.parametrize(
    "fault",
    [
        truncate_to_the_high_watermark,
        compare_no_epochs,
        cut_at_the_leaders_end_of_the_epoch_alone,
        count_no_pending_members,
        let_anybody_join,
        ignore_the_minimum,
    ],
)
def test_a_broken_rule_is_found_within_two_hundred_lives(
    monkeypatch: pytest.MonkeyPatch, fault: Callable[[pytest.MonkeyPatch], None]
) -> None:
    fault(monkeypatch)
    with pytest.raises(AssertionError):
        _run_all(range(200))


def _run_all(seeds: range) -> None:
    for seed in seeds:
        run(seed)


def test_the_same_seed_gives_the_same_life() -> None:
    once, again = run(7, steps=400), run(7, steps=400)
    assert (once.history, once.committed, once.now_s) == (again.history, again.committed, again.now_s)


def test_healing_that_does_not_come_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Broker, "flush", lambda self: None)
    with pytest.raises(BrokenPromiseError, match="not whole"):
        run(3, steps=50)
