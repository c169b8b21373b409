"""The decisions of the log cleaner: which log is next, how fast it is compacted, and when it rests for clients."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logboom.base.ids import Offset
from logboom.broker.disk.cleaning_schedule import (
    FALLEN_BEHIND,
    MANY_APPENDED_BATCHES_PER_S,
    MANY_APPENDED_BYTES_PER_S,
    MANY_READ_BYTES_PER_S,
    PAUSE_MAX_S,
    PAUSE_SHARE,
    Backlogs,
    CleanableLog,
    ClientBackoff,
    RateLimit,
    Served,
    most_urgent,
)
from logboom.storage import Dirt


def dirt(clean: int, dirty: int, *, late: bool = False) -> Dirt:
    return Dirt(clean, dirty, Offset(0), Offset(9), late)


def test_the_dirtiest_log_is_next_and_one_that_waited_too_long_before_it() -> None:
    quiet = CleanableLog("quiet", dirt(100, 0, late=True), 0.0)
    below = CleanableLog("below", dirt(60, 40), 0.5)
    dirty = CleanableLog("dirty", dirt(10, 90), 0.5)
    dirtier = CleanableLog("dirtier", dirt(1, 99), 0.5)
    late = CleanableLog("late", dirt(99, 1, late=True), 0.5)
    assert most_urgent([]) is None
    assert most_urgent([quiet, below]) is None
    for candidates, expected in (([dirty, quiet, dirtier, below], dirtier), ([dirtier, late, dirty], late)):
        assert most_urgent(candidates) is expected


def test_a_log_that_fails_comes_behind_those_that_failed_less_often() -> None:
    stuck = CleanableLog("stuck", dirt(1, 99, late=True), 0.5, failures=2)
    dirty = CleanableLog("dirty", dirt(10, 90), 0.5, failures=1)
    clean = CleanableLog("clean", dirt(90, 10), 0.5)
    assert most_urgent([stuck, dirty, clean]) is dirty
    assert most_urgent([stuck, clean]) is stuck


@given(
    st.lists(st.tuples(st.integers(1, 1 << 20), st.floats(0, 0.5)), min_size=1, max_size=50),
    st.integers(1 << 16, 1 << 24),
)
def test_never_more_than_the_limit_from_any_moment_on(steps: list[tuple[int, float]], limit: int) -> None:
    """In each stretch of work, what was done before its last step fits into the time that the waits made it take."""
    rate, now_s, done = RateLimit(), 100.0, list[tuple[float, int]]()
    for size_bytes, busy_s in steps:
        now_s += busy_s
        done.append((now_s, size_bytes))
        now_s += rate.spend(size_bytes, limit, now_s)
    for start in range(len(done)):
        for end in range(start + 1, len(done)):
            spent = sum(size_bytes for _, size_bytes in done[start:end])
            assert spent <= limit * (done[end][0] - done[start][0]) * (1 + 1e-6) + 1
    assert RateLimit().spend(1 << 40, None, 5.0) == 0


BUSY = [
    Served(int(1.5 * MANY_READ_BYTES_PER_S), 0, 0),
    Served(0, int(1.5 * MANY_APPENDED_BYTES_PER_S), 0),
    Served(0, 0, int(1.5 * MANY_APPENDED_BATCHES_PER_S)),
]
"""In a second."""


def _after(seconds: float, busy: Served) -> Served:
    return Served(
        int(busy.read_bytes * seconds), int(busy.appended_bytes * seconds), int(busy.appended_batches * seconds)
    )


@pytest.mark.parametrize("busy", BUSY)
def test_a_compaction_rests_as_long_as_clients_are_busy(busy: Served) -> None:
    backoff, now_s = ClientBackoff(), 100.0
    backoff.begin(Served(0, 0, 0), now_s)
    assert backoff.pause_s(_after(0.03, busy), now_s + 0.03) == 0, "nobody knows yet"
    backoff.go_on(now_s + 0.17)
    assert backoff.pause_s(_after(0.2, busy), now_s + 0.2) == pytest.approx(PAUSE_SHARE * 0.03)
    backoff.go_on(now_s + 0.26)
    assert backoff.pause_s(_after(0.2, busy), now_s + 0.27) == pytest.approx(PAUSE_SHARE * 0.01), "a gap of 70 ms"
    backoff.go_on(now_s + 0.28)
    assert backoff.pause_s(_after(0.2, busy), now_s + 0.5) == 0, "they are quiet"
    assert backoff.pause_s(_after(9.0, busy), now_s + 9.0) == PAUSE_MAX_S
    backoff.begin(_after(9.0, busy), now_s)
    assert backoff.pause_s(_after(9.0, busy), now_s) == 0, "in simulated time work takes none"


def test_little_that_clients_do_does_not_slow_a_compaction_down() -> None:
    backoff, now_s = ClientBackoff(), 100.0
    backoff.begin(Served(5_000, 5_000, 5_000), now_s)
    little = Served(5_000 + MANY_READ_BYTES_PER_S // 2, 5_000 + MANY_APPENDED_BYTES_PER_S // 2, 5_250)
    assert backoff.pause_s(little, now_s + 1) == 0


def _dirty(size_bytes: int) -> Dirt:
    return Dirt(0, size_bytes, Offset(0), Offset(9), max_lag_exceeded=False)


def test_a_promise_in_time_and_a_log_that_outgrows_its_compaction_do_not_wait_for_clients() -> None:
    backlogs = Backlogs[str]()
    assert backlogs.may_rest("log", _dirty(100))
    assert backlogs.may_rest("log", _dirty(FALLEN_BEHIND * 100))
    assert not backlogs.may_rest("log", _dirty(FALLEN_BEHIND * 100 + 1))
    assert not backlogs.may_rest("log", replace(_dirty(100), max_lag_exceeded=True))


@pytest.mark.parametrize("percent", [101, 110, 150, 199])
def test_a_log_that_grows_slowly_from_one_compaction_to_the_next_does_not_fall_behind_for_ever(percent: int) -> None:
    backlogs, size_bytes, largest = Backlogs[str](), 100_000, 0
    for _ in range(200):
        rests = backlogs.may_rest("log", _dirty(size_bytes))
        largest = max(largest, size_bytes)
        size_bytes = size_bytes * percent // 100 if rests else 100_000  # one without rests catches up
    assert largest <= FALLEN_BEHIND * 100_000 * percent // 100
