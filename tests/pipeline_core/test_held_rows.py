"""Traces that are decided late and events that are joined: nothing is lost, bounds hold, and a loop says the same."""

import json
import tracemalloc
from collections import Counter, defaultdict
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logboom.base.units import MIB
from logboom.pipeline.event.schema import LIVE_SCHEMA
from logboom.pipeline.stateful import interval_join as join
from logboom.pipeline.stateful import tail_sampling as tail
from logboom.pipeline.stateful.held_rows import TABLES_MAX

NOON_MS = 1_795_176_000_000
TRACES = tail.TailRules(name="tail", wait_ms=3_000, rate=4, slower_ms=None, rare=0, events_max=10**6, bytes_max=10**9)
JOIN = join.JoinRules(window_ms=3_000, matches_max=100, prefix="other", events_max=10**6, bytes_max=10**9)


def events(count: int, start: int, **columns: Any) -> pa.Table:
    """Events with ids from `start` on, and more columns."""
    live: dict[str, Any] = {name: pa.nulls(count, LIVE_SCHEMA.field(name).type) for name in LIVE_SCHEMA.names}
    live["event_id"] = pa.array([f"web:0:{start + number}" for number in range(count)], pa.string())
    live["attributes"] = pa.array([json.dumps({"n": start + number}) for number in range(count)], pa.string())
    live["weight"] = pa.array(np.ones(count))
    live |= {name: pa.array(values, LIVE_SCHEMA.field(name).type) for name, values in columns.items() if name in live}
    table = pa.table(live, schema=LIVE_SCHEMA)
    for name, values in columns.items():
        if name not in live:
            table = table.append_column(name, values)
    return table


def traced(rows: list[tuple[int, bool]], start: int, times: list[int] | None = None) -> pa.Table:
    """Events of traces, some of which a rule keeps."""
    count = len(rows)
    return events(
        count,
        start,
        **{
            tail.TRACE: pa.array([trace + 1 for trace, _ in rows], pa.uint64()),
            tail.ALONE: pa.array([False] * count, pa.bool_()),
            tail.KEEPS: pa.array([keeps for _, keeps in rows], pa.bool_()),
            tail.SIZE: pa.array([100] * count, pa.int64()),
            tail.TIME: pa.array(times or [NOON_MS] * count, pa.int64()),
            tail.RARE: pa.array([0] * count, pa.uint64()),
        },
    )


def ids(table: pa.Table | pa.RecordBatch | None) -> list[str]:
    return [] if table is None else table.column("event_id").to_pylist()


# --- traces ---------------------------------------------------------------------------------------------------------

TRACED = st.lists(st.tuples(st.integers(0, 6), st.booleans()), max_size=12)


@settings(max_examples=40)
@given(st.lists(st.tuples(st.integers(1, 2_500), TRACED), min_size=1, max_size=14), st.sampled_from([5, 10**6]))
def test_every_event_of_a_trace_leaves_once_in_time_and_with_the_others(
    batches: list[tuple[int, list[tuple[int, bool]]]], events_max: int
) -> None:
    rules = tail.TailRules(
        name="tail", wait_ms=3_000, rate=4, slower_ms=None, rare=0, events_max=events_max, bytes_max=10**9
    )
    state: tuple[pa.Table, ...] = ()
    now_ms, came, left = NOON_MS, 0, Counter[str]()
    arrived: dict[str, int] = {}
    for number, (waited_ms, rows) in enumerate([*batches, (1, [])]):
        now_ms += waited_ms
        table = traced(rows, came)
        arrived |= dict.fromkeys(ids(table), now_ms)
        came += len(rows)
        decided = tail.advance(rules, state, table, now_ms, ends=number == len(batches))
        again = tail.advance(rules, state, table, now_ms, ends=number == len(batches))
        assert ids(again.rows) == ids(decided.rows)
        assert all(one.equals(other) for one, other in zip(again.state, decided.state, strict=True))
        left.update(ids(decided.rows))
        state = decided.state
        assert left.total() + decided.held == came
        assert decided.held <= events_max
        assert len(state) <= 3 + TABLES_MAX
        assert all(now_ms - since < 3_000 for event, since in arrived.items() if not left[event])
        if decided.rows is not None:
            by_trace = defaultdict(set)
            keeps: dict[int, bool] = defaultdict(bool)
            for row, stay in zip(
                decided.rows.select([tail.TRACE, tail.KEEPS]).to_pylist(),
                decided.stays.tolist(),
                strict=True,
            ):
                by_trace[row[tail.TRACE]].add(stay)
                keeps[row[tail.TRACE]] |= row[tail.KEEPS]
            assert all(len(fates) == 1 for fates in by_trace.values())
            assert all(by_trace[trace] == {True} for trace, kept in keeps.items() if kept)
    assert left == Counter(dict.fromkeys(arrived, 1))


def test_weights_of_decided_traces_estimate_how_many_there_were() -> None:
    count = 60_000
    decided = tail.advance(TRACES, (), traced([(n, n % 50 == 0) for n in range(count)], 0), NOON_MS, ends=True)
    assert float(decided.weights[decided.stays].sum()) == pytest.approx(count, rel=0.03)
    assert Counter(decided.weights[decided.stays].tolist())[1.0] == count // 50


def test_late_events_follow_a_trace_that_a_rule_kept() -> None:
    first = tail.advance(TRACES, (), traced([(1, True), (1, False)], 0), NOON_MS)
    second = tail.advance(TRACES, first.state, traced([], 2), NOON_MS + 3_000)
    assert (ids(second.rows), second.stays.tolist(), second.held) == (["web:0:0", "web:0:1"], [True, True], 0)
    third = tail.advance(TRACES, second.state, traced([(1, False)], 2), NOON_MS + 4_000)
    assert (ids(third.rows), third.stays.tolist(), third.weights.tolist()) == (["web:0:2"], [True], [1.0])
    assert tail.advance(TRACES, third.state, traced([(1, False)], 3), NOON_MS + 400_000).held == 1


def test_slow_traces_and_the_first_of_rare_services_stay() -> None:
    rules = tail.TailRules(
        name="tail", wait_ms=1_000, rate=0, slower_ms=2_000, rare=2, events_max=10**6, bytes_max=10**9
    )
    rows = traced(
        [(number // 2, False) for number in range(20)], 0, [NOON_MS + 100 * n for n in range(19)] + [NOON_MS + 9_000]
    )
    rows = rows.set_column(
        rows.schema.get_field_index(tail.RARE), tail.RARE, pa.array([7] * 10 + [0] * 10, pa.uint64())
    )
    decided = tail.advance(rules, (), rows, NOON_MS)
    decided = tail.advance(rules, decided.state, traced([], 20), NOON_MS + 1_000)
    assert decided.rows is not None
    kept = np.unique(decided.rows.column(tail.TRACE).to_numpy()[decided.stays]).tolist()
    assert kept == [1, 2, 10]  # two of those of the service, and the slow one
    more = traced([(30, False)], 20)
    more = more.set_column(more.schema.get_field_index(tail.RARE), tail.RARE, pa.array([7], pa.uint64()))
    again = tail.advance(rules, decided.state, more, NOON_MS + 2_000, ends=True)
    assert again.stays.tolist() == [False]
    later = tail.advance(rules, decided.state, more, NOON_MS + 62_000, ends=True)
    assert later.stays.tolist() == [True]


def test_what_waits_is_bounded_in_bytes_and_the_oldest_traces_go_first() -> None:
    rules = tail.TailRules(
        name="tail", wait_ms=60_000, rate=1, slower_ms=None, rare=0, events_max=10**6, bytes_max=1_000
    )
    first = tail.advance(rules, (), traced([(number, False) for number in range(6)], 0), NOON_MS)
    assert (first.held, first.early) == (6, 0)
    second = tail.advance(rules, first.state, traced([(number, False) for number in range(10, 20)], 6), NOON_MS + 1)
    assert (second.held, second.early, ids(second.rows)) == (10, 6, [f"web:0:{number}" for number in range(6)])


# --- pairs ----------------------------------------------------------------------------------------------------------

SIDED = st.lists(
    st.tuples(st.integers(0, 3), st.sampled_from([join.LEFT, join.RIGHT]), st.integers(0, 9_000)),
    max_size=10,
)


def sided(rows: list[tuple[int, int, int]], start: int) -> pa.Table:
    """Events of keys on two sides, at times."""
    return events(
        len(rows),
        start,
        **{
            join.KEY: pa.array([key for key, _, _ in rows], pa.uint64()),
            join.SIDE: pa.array([side for _, side, _ in rows], pa.int64()),
            join.TIME: pa.array([NOON_MS + time for _, _, time in rows], pa.int64()),
            join.SIZE: pa.array([100] * len(rows), pa.int64()),
        },
    )


def met(batch: pa.RecordBatch | None) -> set[tuple[int, int]]:
    texts = [] if batch is None else batch.column("attributes").to_pylist()
    found = [json.loads(text) for text in texts]
    assert len({json.dumps(one) for one in found}) == len(found)
    return {(one["n"], one["other"]["attributes"]["n"]) for one in found}


@settings(max_examples=40)
@given(st.lists(st.tuples(st.integers(1, 2_500), SIDED), min_size=1, max_size=14), st.sampled_from([5, 10**6]))
def test_events_meet_as_in_a_loop_over_all_of_them(
    batches: list[tuple[int, list[tuple[int, int, int]]]], events_max: int
) -> None:
    rules = join.JoinRules(window_ms=3_000, matches_max=100, prefix="other", events_max=events_max, bytes_max=10**9)
    state: tuple[pa.Table, ...] = ()
    now_ms, expired, gone = NOON_MS, 0, 0
    seen: list[tuple[int, int, int, int]] = []
    waiting: list[int] = []
    all_met: set[int] = set()
    alone: list[str] = []
    for number, (waited_ms, rows) in enumerate([*batches, (1, [])]):
        now_ms += waited_ms
        joined = join.advance(rules, state, sided(rows, len(seen)), now_ms, ends=number == len(batches))
        again = join.advance(rules, state, sided(rows, len(seen)), now_ms, ends=number == len(batches))
        assert met(again.pairs) == met(joined.pairs)
        assert all(one.equals(other) for one, other in zip(again.state, joined.state, strict=True))
        state = joined.state
        new = list(range(len(seen), len(seen) + len(rows)))
        seen += [(*row, now_ms) for row in rows]
        waiting += new
        wanted = {
            (left, right)
            for left in waiting
            for right in waiting
            if (left in new or right in new)
            and seen[left][0] == seen[right][0]
            and (seen[left][1], seen[right][1]) == (join.LEFT, join.RIGHT)
            and abs(seen[left][2] - seen[right][2]) <= 3_000
        }
        assert (met(joined.pairs), joined.cut) == (wanted, 0)
        all_met |= {event for pair in wanted for event in pair}
        goes = [event for event in waiting if seen[event][3] + 3_000 <= now_ms or number == len(batches)]
        goes = waiting[: max(len(goes), len(waiting) - events_max)]
        waiting = waiting[len(goes) :]
        expired += len(goes)
        alone += ids(joined.alone)
        gone += joined.met
        assert alone == [f"web:0:{event}" for event in range(expired) if event not in all_met]
        assert joined.held == len(waiting)
        assert len(alone) + gone + joined.held == len(seen)
        assert len(state) <= 2 + TABLES_MAX
    assert joined.held == 0


def test_a_key_that_all_have_is_bounded() -> None:
    rules = join.JoinRules(window_ms=3_000, matches_max=3, prefix="other", events_max=10**6, bytes_max=10**9)
    rows = [(1, side, 0) for side in (join.LEFT, join.RIGHT) for _ in range(2_000)]
    joined = join.advance(rules, (), sided(rows, 0), NOON_MS)
    by_side = list(zip(*met(joined.pairs), strict=True))
    assert all(max(Counter(side).values()) <= 3 for side in by_side)
    assert joined.cut == 2_000 * 2_000 - len(met(joined.pairs))
    joined = join.advance(rules, joined.state, sided(rows, 4_000), NOON_MS + 1)
    assert len(met(joined.pairs)) <= 3 * 2 * 4_000


def test_pairs_that_no_array_could_hold_are_not_made_and_counted() -> None:
    """Whoever writes a thousand large records of one key on both sides would end every attempt at the batch."""
    rows = sided([(1, side, 0) for side in (join.LEFT, join.RIGHT) for _ in range(50)], 0)
    large = pa.array([join.PAIRS_MAX_BYTES // 8] * 100, pa.int64())
    rows = rows.set_column(rows.schema.get_field_index(join.SIZE), join.SIZE, large)
    joined = join.advance(JOIN, (), rows, NOON_MS, ends=True)
    assert (len(met(joined.pairs)), joined.cut) == (4, 2_496)
    assert (joined.alone.num_rows, joined.met) == (0, 100)


def test_very_many_of_one_key_take_memory_within_bounds() -> None:
    rules = join.JoinRules(window_ms=3_000, matches_max=10_000, prefix="other", events_max=10**6, bytes_max=10**9)
    rows = sided([(1, side, 0) for side in (join.LEFT, join.RIGHT) for _ in range(30_000)], 0)
    large = pa.array([join.PAIRS_MAX_BYTES // 8] * 60_000, pa.int64())
    rows = rows.set_column(rows.schema.get_field_index(join.SIZE), join.SIZE, large)
    tracemalloc.start()
    try:
        joined = join.advance(rules, (), rows, NOON_MS)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 700 * MIB
    assert joined.cut == 30_000 * 30_000 - 4


def test_a_joined_event_has_both_and_the_greater_weight() -> None:
    rows = sided([(1, join.LEFT, 0), (1, join.RIGHT, 5)], 0)
    rows = rows.set_column(LIVE_SCHEMA.names.index("weight"), "weight", pa.array([2.0, 10.0]))
    rows = rows.set_column(LIVE_SCHEMA.names.index("body"), "body", pa.array(["GET /", 'no "tea"']))
    rows = rows.set_column(
        LIVE_SCHEMA.names.index("attributes"),
        "attributes",
        pa.array(['{"a":1,"other":{"b":2},"c":"other"}', '{"x":{"y":1}}']),
    )
    found = join.advance(JOIN, (), rows, NOON_MS).pairs
    assert found is not None
    row = found.to_pylist()[0]
    attributes = json.loads(row["attributes"])
    assert (row["body"], row["weight"], row["event_id"]) == ("GET /", 10.0, None)
    assert (attributes["a"], attributes["c"]) == (1, "other")
    assert attributes["other"]["body"] == 'no "tea"'
    assert attributes["other"]["attributes"] == {"x": {"y": 1}}
    assert row["attributes"].count('"other":') == 1
