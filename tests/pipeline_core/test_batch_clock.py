"""Times of day of batches: they only grow, and a clock that jumps closes no year of windows."""

from hypothesis import given
from hypothesis import strategies as st

from logboom.pipeline.run.batch_clock import BatchClock
from logboom.pipeline.state.watermarks import Watermarks

START, MINUTE, YEAR = 1_800_000_000_000, 60_000, 31_536_000_000


class Clocks:
    """The machine's: one that may be set, and one that may not."""

    def __init__(self) -> None:
        self.wall, self.elapsed = START, 7
        self.batches = BatchClock(lambda: self.wall, lambda: self.elapsed)

    def passed(self, ms: int) -> None:
        self.wall += ms
        self.elapsed += ms


def test_a_clock_that_is_a_year_ahead_for_seconds_is_not_followed() -> None:
    clocks = Clocks()
    seen = [clocks.batches.next(0)]
    clocks.wall += YEAR
    for _ in range(2):
        clocks.passed(5_000)
        seen.append(clocks.batches.next(seen[-1]))
    clocks.wall -= YEAR
    for _ in range(40):
        clocks.passed(5_000)
        seen.append(clocks.batches.next(seen[-1]))
    assert seen[:3] == [START, START + 65_000, START + 130_000]
    assert seen[3:6] == [START + 130_001, START + 130_002, START + 130_003]
    assert seen[-1] == clocks.wall, "back within the minutes that it had run ahead"


def test_a_clock_that_was_put_right_is_followed_in_time() -> None:
    clocks = Clocks()
    last = clocks.batches.next(0)
    clocks.wall += 60 * MINUTE
    batches = 0
    while last != clocks.wall:
        last = clocks.batches.next(last)
        batches += 1
    assert batches == 60


def test_from_start_to_start_any_time_may_have_passed() -> None:
    assert Clocks().batches.next(START - YEAR) == START
    assert Clocks().batches.next(START + YEAR) == START + YEAR + 1


@given(st.lists(st.tuples(st.integers(-YEAR, YEAR), st.integers(0, 10_000)), max_size=20))
def test_times_only_grow_and_by_what_has_passed_and_a_minute(jumps: list[tuple[int, int]]) -> None:
    clocks, last = Clocks(), 0
    last = clocks.batches.next(last)
    for jump, passed in jumps:
        clocks.wall = max(1, clocks.wall + jump)
        clocks.passed(passed)
        found = clocks.batches.next(last)
        assert last < found <= last + passed + MINUTE
        last = found


def test_events_behind_a_jump_are_not_late() -> None:
    """A partition that is silent goes on with the time of day: a batch without events would put the mark a year on."""
    clocks = Clocks()
    first = clocks.batches.next(0)
    marks = Watermarks().advanced({"web/0": first * 1_000}, first)
    clocks.wall += YEAR
    clocks.passed(5_000)
    marks = marks.advanced({}, clocks.batches.next(first))
    assert marks.mark_us is not None
    assert marks.mark_us <= (START + 5_000 + MINUTE) * 1_000
