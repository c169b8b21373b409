"""How far times have come, over partitions that are behind or silent."""

from hypothesis import given
from hypothesis import strategies as st

from logboom.pipeline.state.watermarks import Watermarks

SECOND = 1_000_000


def test_the_partition_furthest_behind_holds_the_mark() -> None:
    progress = Watermarks().advanced({"web/0": 90 * SECOND, "web/1": 50 * SECOND}, 100_000)
    assert progress.mark_us == 50 * SECOND


def test_time_goes_on_for_a_silent_partition() -> None:
    progress = Watermarks().advanced({"web/0": 90 * SECOND, "web/1": 50 * SECOND}, 100_000)
    progress = progress.advanced({"web/0": 130 * SECOND}, 130_000)
    assert progress.mark_us == 80 * SECOND
    assert progress.advanced({}, 140_000).mark_us == 90 * SECOND


def test_a_time_ahead_of_the_clock_counts_as_the_clocks() -> None:
    assert Watermarks().advanced({"web/0": 10**18}, 100_000).mark_us == 100 * SECOND


def test_a_partition_that_was_silent_for_a_day_is_forgotten_unless_it_is_the_last() -> None:
    day = 86_400_000
    progress = Watermarks().advanced({"old/0": 5 * SECOND, "web/0": 10 * SECOND}, 10_000)
    progress = progress.advanced({"web/0": day * 1_000}, day)
    assert progress.advanced({"web/0": day * 1_000 + SECOND}, day + 10_000).partitions.keys() == {"web/0"}
    assert progress.advanced({}, 9 * day).mark_us == 9 * day * 1_000


@given(st.lists(st.tuples(st.dictionaries(st.sampled_from("abc"), st.integers(0, 10**9)), st.integers(1, 10**6))))
def test_the_mark_never_goes_back_and_is_never_ahead_of_the_clock(batches: list[tuple[dict[str, int], int]]) -> None:
    progress, wall_ms = Watermarks(), 0
    for seen, step in batches:
        wall_ms += step
        after = progress.advanced(seen, wall_ms)
        if progress.mark_us is not None:
            assert after.mark_us is not None
            assert after.mark_us >= progress.mark_us
        assert after.mark_us is None or after.mark_us <= wall_ms * 1_000
        progress = after
