"""A leader waits for no observer, and both know how far one is behind."""

import math

from hypothesis import given
from hypothesis import strategies as st

from logboom.base.ids import BrokerEpoch, BrokerId, Epoch, Offset, PartitionEpoch
from logboom.replication.lag import CopyLag, Lag
from logboom.replication.leadership import (
    DurableEndMoved,
    FollowerFetched,
    HighWatermarkMoved,
    IsrChanged,
    LeadershipStarted,
    PartitionLeadership,
    ProposeIsr,
    Ticked,
)

LEADER, FOLLOWER, OBSERVER = BrokerId(1), BrokerId(2), BrokerId(3)
ISR = frozenset({LEADER, FOLLOWER})


def led(log_end: int = 10) -> PartitionLeadership:
    core = PartitionLeadership(LEADER, min_insync_replicas=1, lag_max_s=5.0)
    core.step(
        LeadershipStarted(
            Epoch(1), ISR, Offset(log_end), Offset(0), ISR, PartitionEpoch(1), observers=frozenset({OBSERVER})
        )
    )
    return core


def fetched(replica: BrokerId, end: int, log_end: int, now_s: float) -> FollowerFetched:
    return FollowerFetched(replica, BrokerEpoch(1), Offset(end), Offset(log_end), now_s, PartitionEpoch(2))


def test_an_observer_moves_no_mark_and_is_never_proposed() -> None:
    core = led()
    assert core.step(fetched(OBSERVER, 10, 10, 1.0)) == ()
    assert core.high_watermark == 0
    assert core.step(fetched(FOLLOWER, 10, 10, 1.0)) == (HighWatermarkMoved(Offset(10)),)
    core.step(DurableEndMoved(LEADER, Offset(20)))
    assert core.step(fetched(FOLLOWER, 20, 20, 2.0)) == (HighWatermarkMoved(Offset(20)),), "not the observer's 10"
    assert core.step(Ticked(Offset(20), 100.0)) == (), "it is in no ISR to leave"
    assert core.observer_lag(OBSERVER, 4.0) == Lag(10, 3.0)


def test_an_observer_that_becomes_a_replica_joins_by_what_it_has() -> None:
    core = led()
    core.step(fetched(FOLLOWER, 10, 10, 1.0))
    core.step(fetched(OBSERVER, 10, 10, 1.0))
    three = frozenset({LEADER, FOLLOWER, OBSERVER})
    core.step(IsrChanged(ISR, partition_epoch=PartitionEpoch(2), replicas=three, observers=frozenset()))
    assert core.observer_lag(OBSERVER, 1.0) is None
    assert core.step(fetched(OBSERVER, 10, 10, 2.0)) == (ProposeIsr(three, PartitionEpoch(2)),)


def test_an_observer_that_is_gone_is_forgotten() -> None:
    core = led()
    core.step(fetched(OBSERVER, 10, 10, 1.0))
    core.step(IsrChanged(ISR, partition_epoch=PartitionEpoch(2), replicas=ISR, observers=frozenset()))
    assert core.observer_lag(OBSERVER, 1.0) is None
    assert core.step(fetched(OBSERVER, 10, 10, 2.0)) == ()
    assert core.durable_end(OBSERVER) is None


def test_a_copy_is_as_old_as_what_it_shows() -> None:
    lag = CopyLag()
    assert lag.lag(5.0, None) == Lag(0, math.inf), "it has not heard of its leader"
    lag.mark_received(Offset(100), 10.0)
    assert lag.lag(12.0, None) == Lag(100, math.inf)
    lag.mark_received(Offset(200), 11.0)
    lag.shows(Offset(100))
    assert lag.lag(12.0, None) == Lag(100, 2.0), "it shows what was committed at 10"
    lag.shows(Offset(200))
    assert lag.lag(12.0, None) == Lag(0, 1.0)
    assert lag.lag(20.0, 19.5) == Lag(0, 0.5), "the leader had no news then"
    assert lag.lag(60.0, 19.5) == Lag(0, 40.5), "and was not heard of since"


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5), st.floats(0.1, 2.0)), min_size=1, max_size=60))
def test_the_age_is_never_less_than_the_truth(steps: list[tuple[int, int, float]]) -> None:
    """The truth: the time since the latest moment at which nothing was committed that is not shown now."""
    lag, now_s, mark, shown = CopyLag(), 0.0, 0, 0
    marks: list[tuple[float, int]] = []
    for committed, taken, passed_s in steps:
        now_s += passed_s
        mark += committed
        marks.append((now_s, mark))
        lag.mark_received(Offset(mark), now_s)
        shown = min(shown + taken, mark)
        lag.shows(Offset(shown))
        true_s = now_s - max((at for at, there in marks if there <= shown), default=-math.inf)
        found = lag.lag(now_s, None)
        assert found.records == mark - shown
        assert found.seconds >= true_s
        if shown == mark:
            assert found.seconds == 0.0


def test_a_bound_below_zero_is_none() -> None:
    assert not Lag(10**9, math.inf).exceeds(records=-1, seconds=-0.001)
    assert Lag(11, 0.0).exceeds(records=10, seconds=-1)
    assert Lag(0, 31.0).exceeds(records=-1, seconds=30.0)
    assert not Lag(10, 30.0).exceeds(records=10, seconds=30.0)
