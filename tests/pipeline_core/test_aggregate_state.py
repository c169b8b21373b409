"""What an aggregate remembers between batches: the same results however windows end, and writes that hang on a batch
and not on what is open."""

import json
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from logboom.pipeline.aggregate.cells import ASKED, coded
from logboom.pipeline.aggregate.measures import Metric
from logboom.pipeline.plan.stateful import Advanced, BatchContext, State
from logboom.pipeline.state.keys import mixed
from logboom.pipeline.state.segments import SegmentDirectory
from logboom.pipeline.transforms.aggregate import AggregateTransform

SECOND = 1_000_000
Event = tuple[str, int, int]
"""Service, time in seconds, severity number."""


def _node(**changes: Any) -> AggregateTransform:
    given: dict[str, Any] = {"window_ms": 10_000, "lateness_ms": 0, "by": (("service", "service"),), **changes}
    metrics = (
        Metric(name="n", kind="count"),
        Metric(name="most", kind="max", of="severity_number"),
        Metric(name="parts", kind="histogram", of="severity_number", bounds=(5,)),
    )
    return AggregateTransform(name="load", line=1, inputs=("in",), metrics=metrics, **given)


def _events(rows: Sequence[Event]) -> pa.RecordBatch:
    times = pa.array([time * SECOND for _, time, _ in rows], pa.timestamp("us", tz="UTC"))
    return pa.RecordBatch.from_pydict(
        {
            "time": times,
            "observed_time": times,
            "service": pa.array([service for service, *_ in rows], pa.string()),
            "severity_number": pa.array([number for *_, number in rows], pa.int32()),
            "weight": pa.array([1.0] * len(rows)),
        }
    )


def _batch(
    node: AggregateTransform, state: State, rows: Sequence[Event], mark: int | None, after: int | None, *, ends: bool
) -> tuple[Advanced, list[Event]]:
    """One batch of one shard; marks are in seconds. What came of it, and the events that were not late."""
    before_us, after_us = (None if one is None else one * SECOND for one in (mark, after))
    context = BatchContext(1, 10**12, before_us, after_us, ends)
    if not rows:
        return node.advance(state, [], context), []
    asked = node.ask(_events(rows), np.zeros(len(rows), np.int8), context)
    assert asked.exits is not None
    taken = [row for row, code in zip(rows, asked.exits.tolist(), strict=True) if code < 0]
    return node.advance(state, [asked.rows] if asked.rows.num_rows else [], context), taken


def _results(done: Advanced) -> dict[tuple[int, str, str], Any]:
    rows = [] if done.made is None else done.made.to_pylist()
    found = {}
    for row in rows:
        attributes = json.loads(row["attributes"])
        key = attributes["metric.start"] // SECOND, row["service"], row["body"]
        assert key not in found
        found[key] = attributes.get("metric.buckets", attributes["metric.value"])
    return found


def _wanted(events: Sequence[Event]) -> dict[tuple[int, str, str], Any]:
    numbers: dict[tuple[int, str], list[int]] = defaultdict(list)
    for service, time, number in events:
        numbers[time // 10 * 10, service].append(number)
    wanted: dict[tuple[int, str, str], Any] = {}
    for (window, service), found in numbers.items():
        low = sum(number <= 5 for number in found)
        wanted[window, service, "n"] = len(found)
        wanted[window, service, "most"] = max(found)
        wanted[window, service, "parts"] = [low, len(found) - low]
    return wanted


EVENTS = st.lists(st.tuples(st.sampled_from("abcdefgh"), st.integers(0, 40), st.integers(0, 20)), max_size=12)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(EVENTS, st.integers(0, 15)), min_size=1, max_size=12))
def test_each_window_comes_out_once_and_whole_however_its_batches_are_kept(batches: list[Any]) -> None:
    node = _node()
    mark: int | None = None
    names: list[str] = []
    taken: list[Event] = []
    found: dict[Any, Any] = {}
    with tempfile.TemporaryDirectory() as directory:
        for number, (events, further) in enumerate([*batches, ([], 0)]):
            segments = SegmentDirectory(Path(directory))  # as another executor opens it
            after = further if mark is None else mark + further
            done, some = _batch(node, segments.open(names), events, mark, after, ends=number == len(batches))
            names, mark = segments.keep(done.state), after
            taken += some
            more = _results(done)
            assert not more.keys() & found.keys()
            found.update(more)
    assert found == _wanted(taken)


def test_a_batch_writes_what_it_brings_however_much_is_open() -> None:
    node = _node(window_ms=3_600_000, max_groups=1_000_000)
    state: State = ()
    written = []
    for number in range(64):
        rows = [(f"s{number}-{service}", 1, 1) for service in range(50)]
        done, _ = _batch(node, state, rows, None, None, ends=False)
        before = {id(table) for table in state}
        written.append(sum(table.num_rows for table in done.state if id(table) not in before))
        assert done.remembered == 50 * (number + 1)
        state = done.state
    one_batch = 50 * 5  # a row of the group, and four of its metrics
    assert np.mean(written) < one_batch * 8  # 64 batches: each row is written again six times at most, and once first
    assert len(state) < 20
    done, _ = _batch(node, state, [("s0-0", 2, 1)], None, None, ends=False)
    assert sum(table.num_rows for table in done.state if all(table is not one for one in state)) < 20
    done, _ = _batch(node, done.state, [], None, None, ends=True)
    assert _results(done)[0, "s0-0", "n"] == 2
    assert done.state == ()
    assert done.remembered == 0


def test_a_batch_that_brings_nothing_writes_nothing() -> None:
    node = _node()
    state = _batch(node, (), [("a", 1, 1), ("a", 11, 1)], None, 10, ends=False)[0].state
    again = _batch(node, state, [], 10, 12, ends=False)[0]
    assert again.made is None
    assert all(one is other for one, other in zip(again.state, state, strict=True))


def test_a_window_that_has_ended_begins_anew_where_the_lateness_was_raised() -> None:
    done, _ = _batch(_node(), (), [("a", 1, 1), ("a", 11, 1)], None, 10, ends=False)
    assert _results(done)[0, "a", "n"] == 1
    done, _ = _batch(_node(lateness_ms=60_000), done.state, [("a", 2, 1), ("b", 12, 1)], 10, 10, ends=False)
    assert done.made is None
    found = _results(_batch(_node(), done.state, [], 10, 10, ends=True)[0])
    assert {key: value for key, value in found.items() if key[2] == "n"} == {
        (0, "a", "n"): 1,
        (10, "a", "n"): 1,
        (10, "b", "n"): 1,
    }


def test_a_state_of_one_table_is_taken_over() -> None:
    node = _node()
    asked = node.ask(_events([("a", 1, 1), ("b", 1, 7)]), np.zeros(2, np.int8), BatchContext(1, 10**12, None, None))
    state = (pa.Table.from_batches([asked.rows], ASKED),)  # how all open cells were kept before there were levels
    done, _ = _batch(node, state, [("a", 2, 9)], None, None, ends=False)
    assert done.remembered == 2
    found = _results(_batch(node, done.state, [], None, None, ends=True)[0])
    assert found == _wanted([("a", 1, 1), ("b", 1, 7), ("a", 2, 9)])


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(-3, 3), st.integers(0, 3)), min_size=1, max_size=40))
def test_rows_are_told_apart_whatever_their_hashes_are(rows: list[tuple[int, int]]) -> None:
    one, other = np.array([a for a, _ in rows]), np.array([b for _, b in rows])
    wanted = {row: number for number, row in enumerate(dict.fromkeys(rows))}
    good = mixed(one.astype(np.uint64) ^ mixed(other.astype(np.uint64)))
    for words in (good, np.zeros(len(rows), np.uint64), one.astype(np.uint64)):
        codes, firsts = coded(words, (one, other))
        assert codes.tolist() == [wanted[row] for row in rows]
        assert [rows[first] for first in firsts] == list(wanted)
