"""The leader's state machine against the rules it keeps."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logboom.base.ids import BrokerEpoch, BrokerId, Epoch, Offset, PartitionEpoch
from logboom.replication.leadership import (
    BelowMinimum,
    DurableEndMoved,
    EpochStarted,
    Event,
    FollowerFetched,
    HighWatermarkMoved,
    IsrChanged,
    JoinAwaited,
    LeadershipEnded,
    LeadershipStarted,
    LeaseEnded,
    LeaseRenewed,
    MinimumChanged,
    PartitionLeadership,
    ProposalRefused,
    ProposeIsr,
    RecordsDeleted,
    Ticked,
    WriteRefused,
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


def test_nothing_is_committed_while_somebody_outside_the_isr_may_be_elected() -> None:
    """A lower minimum counts once the controller has forgotten those whom it would elect by the higher one."""
    core = leader_of(ONE, TWO, minimum=2)
    core.step(IsrChanged(frozenset({ONE}), partition_epoch=PartitionEpoch(1), others_eligible=True))
    assert core.step(MinimumChanged(1)) == ()
    assert core.step(DurableEndMoved(ONE, Offset(8))) == ()
    assert not core.has_minimum
    forgotten = IsrChanged(frozenset({ONE}), partition_epoch=PartitionEpoch(2))
    assert core.step(forgotten) == (HighWatermarkMoved(Offset(8)),)


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
                counts = replica in self.maximal
                self.ends[replica] = max(offset, self.ends.get(replica, 0)) if counts else offset
            case IsrChanged(committed, proposed):
                self.ends = {one: end for one, end in self.ends.items() if one in committed}
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


# --- followers, proposals, the lease ----------------------------------------------------------------------------


def fetched(
    replica: BrokerId,
    end: int,
    *,
    log_end: int = 10,
    now_s: float = 0.0,
    process: int = 1,
    state: int = 99,
    start: int = 0,
    leaders_start: int = 0,
    lacks_room: bool = False,
) -> FollowerFetched:
    """`state`: the partition epoch that the follower knows; `start`: where its log begins."""
    epoch, known = BrokerEpoch(process), PartitionEpoch(state)
    log_end_offset, starts = Offset(log_end), (Offset(start), Offset(leaders_start))
    return FollowerFetched(replica, epoch, Offset(end), log_end_offset, now_s, known, *starts, lacks_room)


def leader_at_ten(*isr: BrokerId, minimum: int = 1) -> PartitionLeadership:
    """Its log has ten records, all synced, and was empty when it began to lead."""
    core = PartitionLeadership(ONE, min_insync_replicas=minimum, lag_max_s=5.0)
    core.step(
        LeadershipStarted(
            Epoch(1), frozenset(isr), Offset(0), Offset(0), frozenset({ONE, TWO, THREE}), PartitionEpoch(7)
        )
    )
    core.step(DurableEndMoved(ONE, Offset(10)))
    return core


def test_a_follower_is_proposed_once_it_has_what_is_committed_and_holds_the_mark_back_from_then_on() -> None:
    core = leader_at_ten(ONE)
    assert core.step(fetched(TWO, 9)) == ()
    assert core.step(fetched(TWO, 10)) == (ProposeIsr(frozenset({ONE, TWO}), PartitionEpoch(7)),)
    assert core.step(DurableEndMoved(ONE, Offset(12))) == (), "it may be a member already"
    assert core.step(fetched(THREE, 10)) == (), "one proposal at a time"
    assert core.step(IsrChanged(frozenset({ONE, TWO}), partition_epoch=PartitionEpoch(8))) == ()
    assert core.step(fetched(TWO, 12, log_end=12)) == (HighWatermarkMoved(Offset(12)),)


def test_a_follower_joins_only_once_it_has_what_the_leader_began_with() -> None:
    core = PartitionLeadership(ONE, min_insync_replicas=2)
    core.step(LeadershipStarted(Epoch(1), frozenset({ONE}), Offset(10), Offset(4), frozenset({ONE, TWO})))
    assert not core.knows_latest
    assert core.step(fetched(TWO, 9)) == ()
    assert core.step(fetched(TWO, 10)) == (ProposeIsr(frozenset({ONE, TWO}), PartitionEpoch(-1)),)
    core.step(IsrChanged(frozenset({ONE, TWO}), partition_epoch=PartitionEpoch(0)))
    assert core.knows_latest


def test_records_are_deleted_once_all_of_the_isr_have_deleted_them() -> None:
    core = leader_at_ten(ONE, TWO, THREE, minimum=2)
    assert core.has_deleted(Offset(0))
    assert not core.has_deleted(Offset(4))
    assert core.step(fetched(TWO, 5, start=4, leaders_start=4)) == (RecordsDeleted(),)
    assert not core.has_deleted(Offset(4)), "another one may lead that has not"
    core.step(fetched(THREE, 5, start=3, leaders_start=4))
    core.step(IsrChanged(frozenset({ONE, TWO}), partition_epoch=PartitionEpoch(8)))
    assert core.has_deleted(Offset(4)), "who is out of the ISR is not elected"
    core.step(LeaseEnded())
    assert not core.has_deleted(Offset(4)), "others may be in the ISR by now"
    core.step(LeaseRenewed())
    core.step(IsrChanged(frozenset({ONE}), partition_epoch=PartitionEpoch(9)))
    assert not core.has_deleted(Offset(4)), "below the minimum, who left stays eligible"


def test_who_has_what_is_deleted_does_not_join() -> None:
    core = leader_at_ten(ONE)
    assert core.step(fetched(TWO, 10, start=3, leaders_start=4)) == (RecordsDeleted(),)
    joins = ProposeIsr(frozenset({ONE, TWO}), PartitionEpoch(7))
    assert core.step(fetched(TWO, 10, start=4, leaders_start=4)) == (RecordsDeleted(), joins)
    assert not core.has_deleted(Offset(5)), "it may be a member already"


def test_who_has_stopped_is_proposed_to_leave_and_counts_until_that_is_decided() -> None:
    core = leader_at_ten(ONE, TWO)
    core.step(fetched(TWO, 10, now_s=1.0))
    core.step(DurableEndMoved(ONE, Offset(20)))
    assert core.step(fetched(TWO, 15, log_end=20, now_s=3.0)) == (HighWatermarkMoved(Offset(15)),)
    assert core.step(Ticked(Offset(20), 6.0)) == ()
    assert core.step(Ticked(Offset(20), 6.1)) == (ProposeIsr(frozenset({ONE}), PartitionEpoch(7)),)
    assert core.high_watermark == 15
    assert core.step(ProposalRefused()) == ()
    assert core.proposal is None
    core.step(Ticked(Offset(20), 6.2))
    moved = core.step(IsrChanged(frozenset({ONE}), partition_epoch=PartitionEpoch(8)))
    assert moved == (HighWatermarkMoved(Offset(20)),)


def test_a_leader_without_room_proposes_the_others_where_they_are_enough() -> None:
    core = leader_at_ten(ONE, TWO, THREE, minimum=2)
    assert core.step(WriteRefused()) == (ProposeIsr(frozenset({TWO, THREE}), PartitionEpoch(7)),)
    assert core.step(WriteRefused()) == (), "one proposal at a time"
    core.step(fetched(TWO, 10))
    assert core.step(fetched(THREE, 10)) == (HighWatermarkMoved(Offset(10)),), "it counts until that is decided"
    assert core.step(ProposalRefused()) == ()
    assert core.step(WriteRefused()) == ()
    core.step(Ticked(Offset(10), 1.0))
    assert core.step(WriteRefused()) == (ProposeIsr(frozenset({TWO, THREE}), PartitionEpoch(7)),)


@pytest.mark.parametrize(("isr", "minimum"), [((ONE,), 1), ((ONE, TWO), 2)])
def test_a_leader_without_room_stays_where_nobody_could_commit_without_it(
    isr: tuple[BrokerId, ...], minimum: int
) -> None:
    assert leader_at_ten(*isr, minimum=minimum).step(WriteRefused()) == ()


def test_who_is_as_fast_as_the_leader_stays_and_so_does_who_has_nothing_to_fetch() -> None:
    core = leader_at_ten(ONE, TWO, THREE)
    core.step(fetched(THREE, 10))
    for second in range(1, 30):
        # Two has at each fetch what the log held at the fetch before, and never all of it.
        core.step(fetched(TWO, 10 * second, log_end=10 * second + 10, now_s=float(second)))
    core.step(DurableEndMoved(ONE, Offset(300)))
    (proposal,) = core.step(Ticked(Offset(300), 30.0))
    assert proposal == ProposeIsr(frozenset({ONE, TWO}), PartitionEpoch(7))
    idle = leader_at_ten(ONE, TWO)
    idle.step(fetched(TWO, 10))
    assert idle.step(Ticked(Offset(10), 1_000.0)) == ()


def test_who_had_nothing_to_fetch_for_long_has_the_whole_time_to_get_what_is_written_then() -> None:
    core = leader_at_ten(ONE, TWO)
    core.step(fetched(TWO, 10, now_s=1.0))
    assert core.step(Ticked(Offset(10), 1_000.0)) == ()
    core.step(DurableEndMoved(ONE, Offset(20)))
    assert core.step(Ticked(Offset(20), 1_000.1)) == (), "it is behind since a moment ago"
    (proposal,) = core.step(Ticked(Offset(20), 1_005.1))
    assert proposal == ProposeIsr(frozenset({ONE}), PartitionEpoch(7))


def test_who_is_silent_though_it_has_everything_leaves_after_the_same_time() -> None:
    core, silent = leader_at_ten(ONE, TWO), frozenset({TWO})
    core.step(fetched(TWO, 10, now_s=1.0))
    assert core.step(Ticked(Offset(10), 1_000.0, silent)) == (), "the leader may have stood still itself"
    assert core.step(Ticked(Offset(10), 1_005.0, silent)) == ()
    (proposal,) = core.step(Ticked(Offset(10), 1_005.1, silent))
    assert proposal == ProposeIsr(frozenset({ONE}), PartitionEpoch(7))
    back = leader_at_ten(ONE, TWO)
    back.step(fetched(TWO, 10, now_s=1.0))
    for second in range(2, 30):
        assert back.step(Ticked(Offset(10), float(second), silent if second % 3 else frozenset())) == ()


def test_a_follower_without_room_is_proposed_to_leave_at_once_and_comes_back_when_it_has_caught_up() -> None:
    core = leader_at_ten(ONE, TWO, THREE, minimum=2)
    core.step(DurableEndMoved(ONE, Offset(20)))
    core.step(fetched(THREE, 20, log_end=20))
    leaves = ProposeIsr(frozenset({ONE, THREE}), PartitionEpoch(7))
    assert core.step(fetched(TWO, 15, log_end=20, lacks_room=True)) == (HighWatermarkMoved(Offset(15)), leaves)
    moved = core.step(IsrChanged(frozenset({ONE, THREE}), partition_epoch=PartitionEpoch(8)))
    assert moved == (HighWatermarkMoved(Offset(20)),)
    assert core.step(fetched(TWO, 20, log_end=20, lacks_room=True)) == (), "not with a disk that takes nothing"
    joins = ProposeIsr(frozenset({ONE, TWO, THREE}), PartitionEpoch(8))
    assert core.step(fetched(TWO, 20, log_end=20)) == (joins,)


def test_a_follower_without_room_stays_where_too_few_would_be_left() -> None:
    core = leader_at_ten(ONE, TWO, minimum=2)
    core.step(DurableEndMoved(ONE, Offset(20)))
    assert core.step(fetched(TWO, 10, log_end=20, lacks_room=True)) == (HighWatermarkMoved(Offset(10)),)


def test_a_new_process_of_a_follower_has_what_it_says_and_no_more() -> None:
    core = leader_at_ten(ONE)
    core.step(fetched(TWO, 10))
    core.step(ProposalRefused())
    core.step(Ticked(Offset(10), 1.0))
    assert core.step(fetched(TWO, 3, process=2)) == (), "its disk has lost what it had synced"
    assert core.broker_epoch(TWO) == 2
    assert core.broker_epoch(THREE) is None


def test_a_replica_that_left_and_has_lost_its_records_joins_only_once_it_has_them_again() -> None:
    """It found damage and began anew, or was moved away and back, in one process and one leadership."""
    for before, after in ((frozenset({ONE, TWO, THREE}), frozenset({ONE, TWO, THREE})), (frozenset({ONE}),) * 2):
        core = leader_at_ten(*before)
        for replica in (TWO, THREE):
            core.step(fetched(replica, 10))
        core.step(IsrChanged(frozenset({ONE}), frozenset(), PartitionEpoch(8), frozenset({ONE, THREE})))
        core.step(IsrChanged(frozenset({ONE}), frozenset(), PartitionEpoch(9), after | {TWO, THREE}))
        assert core.step(fetched(TWO, 0)) == ()
        assert core.step(fetched(TWO, 9)) == ()
        assert core.step(fetched(TWO, 10)) == (ProposeIsr(frozenset({ONE, TWO}), PartitionEpoch(9)),)


def test_a_late_message_of_a_copy_that_was_lost_does_not_speak_for_the_next_one() -> None:
    core = leader_at_ten(ONE, TWO)
    core.step(fetched(TWO, 10, state=7))
    core.step(IsrChanged(frozenset({ONE}), partition_epoch=PartitionEpoch(8)))
    assert core.step(fetched(TWO, 10, state=7)) == ()
    assert core.durable_end(TWO) is None
    assert core.step(fetched(TWO, 0, state=8)) == ()
    assert core.step(fetched(TWO, 10, state=7)) == ()
    assert core.durable_end(TWO) == 0
    assert core.step(fetched(TWO, 10, state=8)) == (ProposeIsr(frozenset({ONE, TWO}), PartitionEpoch(8)),)


def test_what_a_replica_outside_the_isr_has_is_forgotten_with_each_change_of_the_partition() -> None:
    """It may have been lost and reported: where it was not in the ISR, that only raises the partition epoch."""
    core = leader_at_ten(ONE)
    core.step(fetched(TWO, 8, state=7))
    core.step(IsrChanged(frozenset({ONE}), partition_epoch=PartitionEpoch(8)))
    assert core.durable_end(TWO) is None


def test_a_member_of_the_isr_counts_whatever_state_of_the_partition_it_knows() -> None:
    core = leader_at_ten(ONE, TWO)
    core.step(IsrChanged(frozenset({ONE, TWO}), partition_epoch=PartitionEpoch(8)))
    assert core.step(fetched(TWO, 10, state=7)) == (HighWatermarkMoved(Offset(10)),)


def test_what_a_replica_outside_the_isr_says_last_counts() -> None:
    core = leader_at_ten(ONE)
    core.step(fetched(TWO, 8))
    assert core.step(fetched(TWO, 0)) == ()
    core.step(DurableEndMoved(ONE, Offset(11)))
    assert core.step(fetched(TWO, 10, log_end=11, now_s=1.0)) == ()


def test_without_a_lease_nothing_is_committed_or_proposed() -> None:
    core = leader_at_ten(ONE)
    core.step(LeaseEnded())
    assert core.step(DurableEndMoved(ONE, Offset(20))) == ()
    assert core.step(fetched(TWO, 20, log_end=20)) == ()
    assert (core.high_watermark, core.has_lease) == (10, False)
    assert core.step(LeaseRenewed()) == (HighWatermarkMoved(Offset(20)),)


def test_who_leads_no_more_commits_nothing() -> None:
    core = leader_at_ten(ONE)
    core.step(LeadershipEnded())
    assert core.step(DurableEndMoved(ONE, Offset(20))) == ()
    assert core.step(fetched(TWO, 20, log_end=20)) == ()
    assert not core.has_minimum


def test_an_overtaken_change_of_the_isr_and_a_replica_that_is_none_any_more_change_nothing() -> None:
    core = leader_at_ten(ONE, TWO)
    three = frozenset({ONE, TWO, THREE})
    core.step(IsrChanged(three, partition_epoch=PartitionEpoch(9), replicas=three))
    assert core.step(IsrChanged(frozenset({ONE}), partition_epoch=PartitionEpoch(8))) == ()
    assert core.isr == three
    assert core.step(fetched(BrokerId(9), 10)) == ()


# --- followers under a load that does not pause ---------------------------------------------------------------------


def steady_load(core: PartitionLeadership, milliseconds: range, *, behind_ms: dict[BrokerId, int]) -> list[ProposeIsr]:
    """A record each millisecond, which the leader syncs at once, and a report of each follower, `behind_ms` old: with
    several, it reports while its next records are on their way. Returns what was proposed; nobody decides it."""
    proposals: list[ProposeIsr] = []
    for now_ms in milliseconds:
        now_s, log_end = now_ms / 1_000, Offset(now_ms)
        effects = core.step(DurableEndMoved(ONE, log_end))
        for follower, behind in behind_ms.items():
            effects += core.step(fetched(follower, now_ms - behind, log_end=log_end, now_s=now_s))
        if now_ms % 500 == 0:
            effects += core.step(Ticked(log_end, now_s))
        proposals += [one for one in effects if isinstance(one, ProposeIsr)]
    return proposals


def test_a_member_whose_reports_overlap_stays_in_sync_under_a_load_that_does_not_pause() -> None:
    core = leader_at_ten(ONE, TWO)
    assert steady_load(core, range(11, 20_000), behind_ms={TWO: 3}) == []
    assert core.high_watermark == 19_996


def test_a_follower_that_is_always_a_little_behind_what_is_committed_joins_under_a_load_that_does_not_pause() -> None:
    core = leader_at_ten(ONE, TWO)
    joins = ProposeIsr(frozenset({ONE, TWO, THREE}), PartitionEpoch(7))
    assert steady_load(core, range(11, 200), behind_ms={TWO: 1, THREE: 8}) == [joins]
    marks = core.high_watermark
    assert marks == 191, "the proposed one is waited for like a member"


def awaited_at(now_s: float = 1.0) -> PartitionLeadership:
    """A leader that holds its mark at 100 for a follower that has 90."""
    core = leader_at_ten(ONE)
    core.step(DurableEndMoved(ONE, Offset(100)))
    assert core.step(fetched(TWO, 80, log_end=90, now_s=now_s - 0.01)) == ()
    assert core.step(fetched(TWO, 90, log_end=100, now_s=now_s)) == (JoinAwaited(),)
    assert core.step(DurableEndMoved(ONE, Offset(110))) == (), "held"
    return core


def test_a_wait_for_a_follower_that_does_not_come_ends_and_is_not_repeated_soon() -> None:
    core = awaited_at(1.0)
    assert core.step(Ticked(Offset(110), 1.5)) == (HighWatermarkMoved(Offset(110)),)
    core.step(fetched(TWO, 100, log_end=110, now_s=1.6))
    core.step(DurableEndMoved(ONE, Offset(120)))
    assert core.step(fetched(TWO, 110, log_end=120, now_s=1.7)) == ()
    core.step(DurableEndMoved(ONE, Offset(130)))
    assert core.step(fetched(TWO, 120, log_end=130, now_s=10.8)) == ()
    assert core.step(fetched(TWO, 125, log_end=130, now_s=10.9)) == ()
    core.step(DurableEndMoved(ONE, Offset(140)))
    assert core.step(fetched(TWO, 130, log_end=140, now_s=11.0)) == (JoinAwaited(),)


def test_a_follower_that_was_waited_for_is_proposed_and_the_mark_goes_on_with_it() -> None:
    core = awaited_at(1.0)
    assert core.step(fetched(TWO, 99, log_end=110, now_s=1.01)) == ()
    joins = ProposeIsr(frozenset({ONE, TWO}), PartitionEpoch(7))
    assert core.step(fetched(TWO, 105, log_end=110, now_s=1.02)) == (joins, HighWatermarkMoved(Offset(105)))


@pytest.mark.parametrize(
    "event",
    [
        MinimumChanged(1),
        LeaseRenewed(),
        fetched(TWO, 90, log_end=110, now_s=1.01),
        fetched(TWO, 95, log_end=110, now_s=1.01, lacks_room=True),
    ],
)
def test_a_wait_goes_on_over_what_is_not_its_end(event: Event) -> None:
    core = awaited_at(1.0)
    core.step(event)
    assert core.high_watermark == 100
    assert core.step(Ticked(Offset(110), 1.5)) == (HighWatermarkMoved(Offset(110)),)


@pytest.mark.parametrize(
    "event",
    [
        IsrChanged(frozenset({ONE}), partition_epoch=PartitionEpoch(8)),
        fetched(TWO, 90, log_end=110, now_s=1.01, process=2),
    ],
)
def test_a_wait_ends_where_the_follower_may_have_another_log_and_may_begin_anew_at_once(event: Event) -> None:
    core = awaited_at(1.0)
    assert core.step(event) == (HighWatermarkMoved(Offset(110)),)
    core.step(DurableEndMoved(ONE, Offset(120)))
    assert core.step(fetched(TWO, 100, log_end=110, now_s=1.02, process=2)) == ()
    assert core.step(fetched(TWO, 110, log_end=120, now_s=1.03, process=2)) == (JoinAwaited(),)


def test_who_is_not_known_to_keep_pace_is_not_waited_for() -> None:
    core = leader_at_ten(ONE)
    core.step(DurableEndMoved(ONE, Offset(100)))
    assert core.step(fetched(TWO, 10, log_end=100)) == (), "the first report says nothing about pace"
    assert core.step(fetched(TWO, 90, log_end=100, now_s=0.1)) == (), "not yet what the leader had at the first one"
    core.step(DurableEndMoved(ONE, Offset(200)))
    assert core.step(fetched(TWO, 100, log_end=200, now_s=0.3)) == (), "as of 0.3 s ago"


def test_nobody_is_waited_for_below_the_minimum_nor_while_a_proposal_is_under_way() -> None:
    core = leader_at_ten(ONE, minimum=2)
    core.high_watermark = Offset(10)
    assert core.step(fetched(TWO, 5, log_end=8, now_s=0.1)) == ()
    assert core.step(fetched(TWO, 8, log_end=10, now_s=0.11)) == ()
    proposing = leader_at_ten(ONE, THREE)
    proposing.step(fetched(THREE, 10))
    proposing.step(Ticked(Offset(10), 9.0, silent=frozenset({THREE})))
    proposing.step(DurableEndMoved(ONE, Offset(20)))
    proposing.step(Ticked(Offset(20), 19.0, silent=frozenset({THREE})))
    assert proposing.proposal is not None
    proposing.step(fetched(TWO, 5, log_end=8, now_s=19.1))
    assert proposing.step(fetched(TWO, 8, log_end=20, now_s=19.11)) == ()
