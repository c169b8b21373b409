"""The leader's state machine against the rules it keeps."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logboom.base.ids import BrokerId, Epoch, Offset
from logboom.replication import (
    BelowMinimum,
    DurableEndMoved,
    EpochStarted,
    Event,
    HighWatermarkMoved,
    IsrChanged,
    LeadershipStarted,
    MinimumChanged,
    PartitionLeadership,
)

ONE, TWO, THREE = BrokerId(1), BrokerId(2), BrokerId(3)


def leader_of(*members: BrokerId, minimum: int = 1, log_end: int = 0) -> PartitionLeadership:
    core = PartitionLeadership(ONE, min_insync_replicas=minimum)
    core.step(LeadershipStarted(Epoch(0), frozenset(members), Offset(log_end), Offset(0)))
    return core


def test_one_replica_commits_what_it_has_synced() -> None:
    core = leader_of(ONE)
    assert core.step(DurableEndMoved(ONE, Offset(5))) == (HighWatermarkMoved(Offset(5)),)
    assert core.step(DurableEndMoved(ONE, Offset(5))) == ()
    assert core.step(DurableEndMoved(ONE, Offset(3))) == ()
    assert core.high_watermark == 5


def test_a_leadership_records_its_start_without_any_write() -> None:
    core = PartitionLeadership(ONE, min_insync_replicas=1)
    effects = core.step(LeadershipStarted(Epoch(4), frozenset({ONE}), Offset(9), Offset(0)))
    assert effects == (EpochStarted(Epoch(4), Offset(9)), HighWatermarkMoved(Offset(9)))


def test_the_leader_counts_and_the_slowest_member_decides() -> None:
    core = leader_of(ONE, TWO, THREE)
    assert core.step(DurableEndMoved(TWO, Offset(10))) == ()
    assert core.step(DurableEndMoved(THREE, Offset(4))) == ()
    assert core.step(DurableEndMoved(ONE, Offset(7))) == (HighWatermarkMoved(Offset(4)),)
    assert core.step(DurableEndMoved(THREE, Offset(9))) == (HighWatermarkMoved(Offset(7)),)


def test_pending_members_count_and_leaving_ones_still_count() -> None:
    core = leader_of(ONE, TWO)
    core.step(DurableEndMoved(ONE, Offset(10)))
    core.step(DurableEndMoved(TWO, Offset(2)))
    # Two is about to leave and Three to join: both hold HW back until the controller has answered.
    assert core.step(IsrChanged(frozenset({ONE, TWO}), frozenset({ONE, THREE}))) == ()
    assert core.step(DurableEndMoved(THREE, Offset(6))) == ()
    assert core.step(IsrChanged(frozenset({ONE, THREE}))) == (HighWatermarkMoved(Offset(6)),)


def test_below_the_minimum_nothing_moves_and_waiters_are_told() -> None:
    core = leader_of(ONE, TWO, minimum=2)
    core.step(DurableEndMoved(ONE, Offset(5)))
    assert core.step(IsrChanged(frozenset({ONE}))) == (BelowMinimum(),)
    assert not core.has_minimum
    assert core.step(DurableEndMoved(ONE, Offset(8))) == ()
    assert core.high_watermark == 0
    assert core.step(MinimumChanged(1)) == (HighWatermarkMoved(Offset(8)),)


def test_an_epoch_that_does_not_grow_is_a_broken_promise() -> None:
    core = leader_of(ONE)
    with pytest.raises(AssertionError, match="does not follow"):
        core.step(LeadershipStarted(Epoch(0), frozenset({ONE}), Offset(0), Offset(0)))


MEMBERS = st.frozensets(st.sampled_from([TWO, THREE, BrokerId(4)])).map(lambda others: others | {ONE})
EVENTS: st.SearchStrategy[Event] = st.one_of(
    st.builds(DurableEndMoved, st.sampled_from([ONE, TWO, THREE, BrokerId(4)]), st.integers(0, 50).map(Offset)),
    st.builds(IsrChanged, MEMBERS, st.one_of(st.just(frozenset[BrokerId]()), MEMBERS)),
    st.builds(MinimumChanged, st.integers(1, 4)),
)


class Model:
    """What the rules say, computed from the whole history."""

    def __init__(self) -> None:
        self.ends: dict[BrokerId, int] = {ONE: 0}
        self.isr, self.maximal, self.minimum = frozenset({ONE}), frozenset({ONE}), 1

    def take(self, event: Event) -> None:
        match event:
            case DurableEndMoved(replica, offset):
                self.ends[replica] = max(offset, self.ends.get(replica, 0))
            case IsrChanged(committed, proposed):
                self.isr, self.maximal = committed, committed | proposed
            case MinimumChanged(minimum):
                self.minimum = minimum

    def bound(self) -> int:
        return min(self.ends.get(member, 0) for member in self.maximal)


@settings(max_examples=300, deadline=None)
@given(st.lists(EVENTS, max_size=60))
def test_high_watermark_keeps_its_promises_under_any_history(events: list[Event]) -> None:
    core, model, seen = leader_of(ONE), Model(), 0
    for event in events:
        effects = core.step(event)
        model.take(event)
        allowed = len(model.isr) >= model.minimum
        moved = [effect.offset for effect in effects if isinstance(effect, HighWatermarkMoved)]
        assert core.high_watermark >= seen
        assert moved == ([core.high_watermark] if core.high_watermark > seen else [])
        assert allowed or not moved
        # It moves as soon as it may and exactly as far as it may.
        assert core.high_watermark == (max(seen, model.bound()) if allowed else seen)
        assert core.has_minimum == allowed
        seen = core.high_watermark
