"""Metrics in windows: against plain Python over all events at once, and sketches against what they promise."""

import json
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logboom.base.settings import SettingsError
from logboom.pipeline.aggregate.measures import Metric, result, sketch_slots, touched, touched_by_hash
from logboom.pipeline.config.compile import compile_pipeline
from logboom.pipeline.execute.examples import run_examples
from logboom.pipeline.plan.stateful import EXIT, Asked, BatchContext, State, dropped_by
from logboom.pipeline.state.keys import fingerprints, mixed
from logboom.pipeline.transforms.aggregate import AggregateTransform

FILE = """
name: shop
sources:
  web: {type: stream, stream: web}
transforms:
  parsed: {type: parse, inputs: [web], rules: [{format: json}]}
  load:
    type: aggregate
    inputs: [parsed]
    window: 1m
    by: [service, attributes.status]
    metrics:
      requests: {type: count}
      bytes: {type: sum, of: attributes.bytes}
      least: {type: min, of: attributes.ms}
      most: {type: max, of: attributes.ms}
      duration: {type: histogram, of: attributes.ms, bounds: [10, 100]}
      latency: {type: quantiles, of: attributes.ms, quantiles: [0.5, 1]}
      users: {type: unique, of: attributes.u}
sinks:
  screen: {type: console, inputs: [load]}
"""
EXAMPLE = """
tests:
  - name: a minute of two services
    input:
      - {source: web, value: '{"ts": "2026-01-01T00:00:01Z", "app": "a", "status": 200, "ms": 5, "bytes": 10, "u": 1}'}
      - {source: web, value: '{"ts": "2026-01-01T00:00:59Z", "app": "a", "status": 200, "ms": 50, "bytes": 2, "u": 2}'}
      - {source: web, value: '{"ts": "2026-01-01T00:01:00Z", "app": "a", "status": 200, "ms": 9, "bytes": 1, "u": 2}'}
      - {source: web, value: '{"ts": "2026-01-01T00:00:02Z", "service": "b"}'}
      - source: web
        timestamp: "2026-01-01T00:02:00Z"
        value: '{"ts": "2026-01-01T00:00:02Z", "service": "b", "ms": "slow"}'
    expect:
      - {at: "dropped:load", count: 5}
      - {at: load, count: 15}
      - at: load
        fields:
          body: duration
          service: a
          time: 2026-01-01T00:01:00Z
          attributes.metric.value: 2
          attributes.metric.sum: 55
          attributes.metric.buckets: [1, 1, 0]
          attributes.metric.labels: {service: a, status: "200"}
      - {at: load, fields: {body: requests, service: b, attributes.metric.value: 2}}
      - {at: load, fields: {body: users, time: 2026-01-01T00:01:00Z, attributes.metric.value: 2}}
      - {at: load, fields: {body: bytes, time: 2026-01-01T00:02:00Z, attributes.metric.value: 1}}
"""
MINUTE = 60_000_000
Event = tuple[str | None, int, int | None, float]
"""Service, time, severity number and weight."""


def test_metrics_of_windows_in_a_pipelines_file() -> None:
    plan = compile_pipeline(FILE + EXAMPLE, "shop.yaml")
    assert plan.warnings == ()
    assert run_examples(plan, {}) == []


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("x: {type: count, of: attributes.ms}", "metrics.x: counts events, so it takes no of"),
        ("x: {type: sum}", "metrics.x: needs of: the value"),
        ("x: {type: sum, of: service}", "should be an attribute, severity_number"),
        ("x: {type: sum, of: attributes.ms, bounds: [1]}", "goes with type histogram"),
        ("x: {type: histogram, of: attributes.ms}", "needs bounds"),
        ("x: {type: histogram, of: attributes.ms, bounds: [2, 2]}", "should rise"),
        ("'': {type: count}", "'' is not a valid name of a metric"),
        ('"a\\nb": {type: count}', "'a\\nb' is not a valid name of a metric"),
        ("x: {type: quantiles, of: attributes.ms, quantiles: [99]}", "should be between 0 and 1"),
    ],
)
def test_what_is_wrong_with_a_metric_is_said(wrong: str, message: str) -> None:
    with pytest.raises(SettingsError, match="metrics") as raised:
        compile_pipeline(FILE.replace("requests: {type: count}", wrong), "p.yaml")
    assert message in str(raised.value)


def test_metrics_that_are_one_series_to_prometheus_are_a_warning() -> None:
    text = FILE.replace(
        "requests: {type: count}", "duration_count: {type: count}\n      a.b: {type: count}\n      a_b: {type: count}"
    )
    told = [(warning.where, warning.message) for warning in compile_pipeline(text, "p.yaml").warnings]
    assert told == [
        ("transforms.load.metrics.a_b", "has the series a_b in Prometheus, as 'a.b' has"),
        ("transforms.load.metrics.duration", "has the series duration_count in Prometheus, as 'duration_count' has"),
    ]


def _node(**changes: Any) -> AggregateTransform:
    settings = {"window_ms": 60_000, "lateness_ms": 0, "by": (("service", "service"),), **changes}
    metrics = (
        Metric(name="n", kind="count"),
        Metric(name="least", kind="min", of="severity_number"),
        Metric(name="total", kind="sum", of="severity_number"),
        Metric(name="parts", kind="histogram", of="severity_number", bounds=(5, 10)),
    )
    return AggregateTransform(name="load", line=1, inputs=("in",), metrics=metrics, **settings)


def _events(rows: Sequence[Event]) -> pa.RecordBatch:
    times = pa.array([time for _, time, _, _ in rows], pa.timestamp("us", tz="UTC"))
    return pa.RecordBatch.from_pydict(
        {
            "time": times,
            "observed_time": times,
            "service": pa.array([service for service, *_ in rows], pa.string()),
            "severity_number": pa.array([number for _, _, number, _ in rows], pa.int32()),
            "weight": pa.array([weight for *_, weight in rows], pa.float64()),
        }
    )


def _advance(
    node: AggregateTransform,
    state: State,
    batches: Sequence[Sequence[Event]],
    **context: Any,
) -> tuple[State, list[Any], list[Asked]]:
    """One batch of several parts, in one shard."""
    given = BatchContext(**{"batch": 1, "wall_ms": 10**12, "watermark_us": None, "watermark_after_us": None, **context})
    asked = [node.ask(_events(rows), np.zeros(len(rows), np.int8), given) for rows in batches if rows]
    done = node.advance(state, [one.rows for one in asked if one.rows.num_rows], given)
    made = [] if done.made is None else done.made.to_pylist()
    return done.state, [{**row, "attributes": json.loads(row["attributes"])} for row in made], asked


ROWS = st.tuples(
    st.sampled_from(["a", "b", None]),
    st.integers(0, 5 * MINUTE),
    st.one_of(st.none(), st.integers(0, 20)),
    st.sampled_from([1.0, 4.0]),
)


@settings(deadline=None, max_examples=50)
@given(st.lists(st.lists(st.lists(ROWS, max_size=8), max_size=3), min_size=1, max_size=5))
def test_however_events_are_cut_into_batches_and_parts_the_metrics_are_the_same(batches: list[Any]) -> None:
    node = _node()
    state: State = ()
    for parts in batches:
        state, made, asked = _advance(node, state, parts)
        assert not made
        assert all((one.exits == dropped_by(0)).all() for one in asked if one.exits is not None)
    state, found, _ = _advance(node, state, [], ends=True)
    assert state == ()
    wanted: dict[Any, list[tuple[int | None, float]]] = defaultdict(list)
    for service, time, number, weight in (row for parts in batches for part in parts for row in part):
        wanted[service, time // MINUTE].append((number, weight))
    values = {
        (row["service"], row["attributes"]["metric.end"] // MINUTE - 1, row["body"]): row["attributes"] for row in found
    }
    for (service, window), rows in wanted.items():
        assert values[service, window, "n"]["metric.value"] == sum(weight for _, weight in rows)
        numbers = [(number, weight) for number, weight in rows if number is not None]
        if numbers:
            assert values[service, window, "least"]["metric.value"] == min(number for number, _ in numbers)
            assert values[service, window, "total"]["metric.value"] == sum(a * b for a, b in numbers)
            buckets = [sum(w for n, w in numbers if low < n <= high) for low, high in ((-1, 5), (5, 10), (10, 99))]
            assert values[service, window, "parts"]["metric.buckets"] == buckets
        else:
            assert (service, window, "least") not in values
    assert len({key[:2] for key in values}) == len(wanted)


def test_events_without_a_value_of_a_metric_are_counted_by_its_name() -> None:
    _, _, (asked,) = _advance(_node(), (), [[("a", 10, 1, 1.0), ("a", 20, None, 1.0), ("b", 30, None, 1.0)]])
    assert asked.counts == {"least.without": 2, "total.without": 2, "parts.without": 2}


def test_windows_end_by_the_watermark_and_what_comes_later_is_late() -> None:
    node = _node(lateness_ms=30_000)
    state, made, _ = _advance(node, (), [[("a", 10, 1, 1.0), ("a", MINUTE, 1, 1.0)]], watermark_after_us=MINUTE)
    assert made == []
    state, made, _ = _advance(node, state, [], watermark_us=MINUTE, watermark_after_us=MINUTE + 30_000_000)
    assert [(row["body"], row["time"].timestamp()) for row in made] == [
        (name, 60) for name in ("n", "least", "total", "parts")
    ]
    mark = MINUTE + 30_000_000
    rows = [("a", 59_000_000, 1, 1.0), ("a", MINUTE + 1, 1, 1.0)]
    state, made, (asked,) = _advance(node, state, [rows], watermark_us=mark, watermark_after_us=mark)
    assert asked.exits is not None
    assert asked.exits.tolist() == [1, dropped_by(0)]
    _, made, _ = _advance(node, state, [], ends=True)
    assert made[0]["attributes"]["metric.value"] == 2.0
    assert {row[EXIT] for row in made} == {0}


def test_groups_beyond_the_limit_are_counted_together() -> None:
    node = _node(max_groups=32)  # two in a shard, and there is one shard here
    first = [(name, 1, 1, 1.0) for name in "abcd"]
    state, _, _ = _advance(node, (), [first])
    state, _, _ = _advance(node, state, [[(name, 2, 1, 4.0) for name in "aefa"]])
    _, made, _ = _advance(node, state, [], ends=True)
    counts = {
        str(row["attributes"]["metric.labels"].get("service")): row["attributes"] for row in made if row["body"] == "n"
    }
    assert {name: found["metric.value"] for name, found in counts.items()} == {"a": 9.0, "b": 1.0, "None": 10.0}
    assert counts["None"]["metric.labels"]["otel.metric.overflow"] == "true"


@given(st.lists(st.floats(-1e12, 1e12).filter(lambda x: x == 0 or abs(x) > 1e-6), min_size=1, max_size=200))
def test_quantiles_are_within_one_percent(values: list[float]) -> None:
    metric = Metric(name="q", kind="quantiles", of="x", quantiles=(0.0, 0.5, 0.9, 1.0))
    counts, total = touched(metric, np.array(values), np.ones(len(values)))
    slots = np.concatenate([counts.slots, total.slots])
    found = result(metric, slots, np.concatenate([counts.numbers, total.numbers]))["quantiles"]
    ordered = sorted(values)
    for name, estimate in found.items():
        rank = max(0, int(np.ceil(float(name) * len(values))) - 1)
        assert estimate == pytest.approx(ordered[rank], rel=0.0101)


def test_slots_of_a_sketch_are_in_the_order_of_the_values() -> None:
    values = np.array([-1e30, -5.0, -1e-3, 0.0, 1e-12, 1e-3, 5.0, 1e30])
    assert (np.diff(sketch_slots(values)) >= 0).all()


@pytest.mark.parametrize("count", [0, 1, 100, 3_000, 20_000, 1_000_000])
def test_unique_values_are_estimated(count: int) -> None:
    found = touched_by_hash(mixed(np.arange(count, dtype=np.uint64)))
    highest = np.zeros(2_048)
    np.maximum.at(highest, found.slots, found.numbers)
    slots = np.flatnonzero(highest).astype(np.int32)
    estimate = result(Metric(name="u", kind="unique", of="x"), slots, highest[slots])["value"]
    assert estimate == pytest.approx(count, rel=0.08)
    assert fingerprints([pa.array(["a"])], 1)[0].dtype == np.uint64
