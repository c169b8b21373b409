"""dedupe with a count of the repeats: each repeat is counted once, in the event of the opening that it repeats."""

import json
from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given as each
from hypothesis import settings
from hypothesis import strategies as st

from logboom.pipeline.config.compile import compile_pipeline
from logboom.pipeline.event.schema import EVENT_SCHEMA
from logboom.pipeline.execute.examples import run_examples
from logboom.pipeline.execute.stages import conform
from logboom.pipeline.plan.stateful import EXIT, BatchContext, State
from logboom.pipeline.transforms.dedupe import DedupeTransform

FILE = """
name: shop
sources:
  web: {type: stream, stream: web}
transforms:
  parsed: {type: parse, inputs: [web], rules: [{format: json}]}
  once:
    type: dedupe
    inputs: [parsed]
    by: [service, attributes.order.id]
    window: {dial: remembered, default: 60, min: 10}
    time: event
    keep: first
    count_repeats: true
sinks:
  kept: {type: console, inputs: [once]}
  counts: {type: console, inputs: [once.repeats]}
tests:
  - name: one order three times, another once
    input:
      - {source: web, value: '{"ts": "2025-12-31T23:59:01Z", "app": "a", "order.id": 7, "msg": "x"}'}
      - {source: web, value: '{"ts": "2025-12-31T23:59:02Z", "app": "a", "order.id": 7, "msg": "y"}'}
      - {source: web, value: '{"ts": "2025-12-31T23:59:03Z", "app": "a", "order.id": 8, "msg": "x"}'}
      - {source: web, value: '{"ts": "2025-12-31T23:59:09Z", "app": "a", "order.id": 7, "msg": "z"}'}
    expect:
      - {at: once, count: 2}
      - {at: "dropped:once", count: 2}
      - at: once.repeats
        count: 1
        fields:
          service: a
          time: 2025-12-31T23:59:09Z
          attributes.repeats.count: 2
          attributes.repeats.first: 1767225541000000
          attributes.repeats.key: {service: a, order.id: "7"}
"""
LENGTH_S = 10
EVENTS = st.lists(st.tuples(st.sampled_from(["a", "b", "c", None]), st.integers(0, 60)), max_size=15)


def test_a_file_with_counts_of_repeats() -> None:
    plan = compile_pipeline(FILE, "shop.yaml")
    assert plan.warnings == ()
    assert run_examples(plan, {}) == []
    dial = next(one for one in plan.dials() if one.name == "remembered")
    assert (dial.value, dial.min) == (60, 10)
    assert isinstance(turned := plan.turned({"remembered": 90.0}).transforms[1], DedupeTransform)
    assert (turned.window_ms, turned.outputs) == (90_000, ("once", "once.repeats"))


def _events(rows: list[tuple[str | None, int]]) -> pa.RecordBatch:
    given = [{"service": name, "weight": 2.0, "event_id": f"web:0:{at}"} for at, (name, _) in enumerate(rows)]
    batch = conform(pa.RecordBatch.from_pylist(given, schema=EVENT_SCHEMA), EVENT_SCHEMA)
    times = pa.array([time * 1_000_000 for _, time in rows], pa.int64()).cast(batch.schema.field("time").type)
    return batch.set_column(batch.schema.get_field_index("time"), "time", times)


@settings(deadline=None, max_examples=60)
@each(st.lists(st.tuples(EVENTS, st.integers(0, 15)), min_size=1, max_size=8))
def test_each_repeat_is_counted_once(batches: list[tuple[list[tuple[str | None, int]], int]]) -> None:
    node = DedupeTransform(
        name="once",
        line=1,
        inputs=("in",),
        by=("service",),
        window_ms=LENGTH_S * 1_000,
        time="event",
        count_repeats=True,
    )
    state: State = ()
    mark: int | None = None
    repeats: Counter[str] = Counter()
    told: Counter[str] = Counter()
    for number, (rows, step) in enumerate([*batches, ([], 0)]):
        after = step if mark is None else mark + step
        before_us, after_us = (None if one is None else one * 1_000_000 for one in (mark, after))
        context = BatchContext(number, 10**12, before_us, after_us, number == len(batches))
        asked = [node.ask(_events(rows), np.zeros(len(rows), np.int8), context).rows] if rows else []
        done = node.advance(state, asked, context)
        state, mark = done.state, after
        for answer in done.answers:
            repeats.update(
                str(name) for (name, _), code in zip(rows, answer.column(EXIT).to_pylist(), strict=True) if code < 0
            )
        for event in [] if done.made is None else done.made.to_pylist():
            about: dict[str, Any] = json.loads(event["attributes"])
            assert event[EXIT] == 1
            assert abs(about["repeats.last"] - about["repeats.first"]) < LENGTH_S * 1_000_000
            told[about["repeats.key"]["service"]] += int(about["repeats.count"] / 2)  # each has a weight of 2
    assert told == repeats
