"""One event made into many: what they are, what is counted, what is too much, and how repeats of them are known."""

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.pipeline_core.batches import passed

from logboom.base.settings import SettingsError
from logboom.pipeline.config.compile import compile_pipeline
from logboom.pipeline.execute.examples import run_examples
from logboom.pipeline.execute.stages import COPIES, MASKED
from logboom.pipeline.plan.nodes import Plan
from logboom.pipeline.sinks.repeats.origins import RecordKeys, RepeatFilter, marks_after

FILE = """
name: shop
sources:
  web: {type: stream, stream: web}
transforms:
  parsed: {type: parse, inputs: [web], rules: [{format: json}]}
  masked: {type: mask, inputs: [parsed], rules: [{kind: email}]}
  each: {type: reshape, inputs: [masked], split: SPLIT}
sinks:
  screen: {type: console, inputs: [each]}
"""


def _plan(split: str, more: str = "") -> Plan:
    return compile_pipeline(FILE.replace("SPLIT", split) + more, "shop.yaml")


def test_each_element_is_an_event() -> None:
    tests = """
tests:
  - name: records of one line
    input: {source: web, value: '{"msg": "m", "records": [{"id": 1, "u": "x"}, {"id": 2}], "zone": "z"}'}
    expect:
      - {at: each, count: 2}
      - {at: each, fields: {body: m, attributes.records.id: 1, attributes.records.u: x, attributes.zone: z}}
      - {at: each, fields: {attributes.records.id: 2}, condition: "event_id LIKE '%.1'"}
  - name: an event without the list goes on as it is
    input: {source: web, value: '{"msg": "m", "records": "none"}'}
    expect: {at: each, count: 1, fields: {attributes.records: none}, condition: "event_id NOT LIKE '%.%'"}
"""
    plan = _plan("{of: attributes.records}", tests)
    assert plan.warnings == ()
    assert run_examples(plan, {}) == []


@pytest.mark.parametrize(
    ("split", "wanted"),
    [
        ("{of: attributes.r, into: attributes.one}", [({"a": 1, "one": 5}, None), ({"a": 1, "one": {"b": 2}}, None)]),
        ("{of: attributes.r, into: body}", [({"a": 1}, "5"), ({"a": 1}, '{"b":2}')]),
        ("{of: attributes.r, into: attributes}", [({"a": 1}, None), ({"a": 1, "b": 2}, None)]),
    ],
)
def test_where_an_element_goes(split: str, wanted: list[Any]) -> None:
    rows, counts = passed(_plan(split), {"a": 1, "r": [5, {"b": 2}]}, {"a": 2, "r": []})
    assert [(json.loads(row["attributes"]), row["body"]) for row in rows[:2]] == wanted
    assert [row["event_id"].partition(":3:")[2] for row in rows] == ["100.0", "100.1", "101"]
    assert json.loads(rows[2]["attributes"]) == {"a": 2, "r": []}
    assert counts[COPIES] == 1
    failed = [row["dead_reason"] for row in rows]
    if split.endswith("attributes}"):
        assert failed == ["attributes cannot be 5, element 0 of a list", None, None]
    else:
        assert failed == [None] * 3


def test_what_a_mask_has_replaced_is_counted_once() -> None:
    line = {"msg": "from ann@example.com", "r": [1, 2, 3], "to": "bob@example.com"}
    rows, counts = passed(_plan("{of: attributes.r}"), line, {"msg": "x@example.com"})
    assert len(rows) == 4
    assert counts[f"{MASKED}:email"] == 3
    assert all("@" not in row["body"] + row["attributes"] for row in rows)


def test_a_record_does_not_make_memory_of_any_size() -> None:
    plan = _plan("{of: attributes.r}")
    many, large, fine = [0] * 10_001, {"p": "x" * 100_000, "r": [0] * 9_000}, {"r": [0] * 10_000}
    rows, counts = passed(plan, {"r": many}, large, fine)
    assert [row["dead_reason"] is None for row in rows] == [False, False, *[True] * 10_000]
    assert rows[0]["dead_stage"] == "each"
    assert "would be split into 10001 events" in rows[0]["dead_reason"]
    assert json.loads(rows[1]["attributes"]) == large
    assert counts[COPIES] == 9_999


def test_many_large_records_are_taken_in_pieces() -> None:
    lines = [{"p": "x" * 50_000, "r": list(range(5))} for _ in range(100)]  # 5 MB in, 25 out
    rows, _ = passed(_plan("{of: attributes.r}"), *lines)
    assert [row["offset"] for row in rows] == [100 + at // 5 for at in range(100 * 5)]


@pytest.mark.parametrize(
    ("split", "message"),
    [
        ("{of: body}", "needs into: an attribute, body, or attributes"),
        ("{of: body, into: time}", "into"),
        ("{of: attributes.r, into: attribute.x}", "into"),
        ("attributes.r", "split"),
    ],
)
def test_faults_of_a_split(split: str, message: str) -> None:
    with pytest.raises(SettingsError) as raised:
        _plan(split)
    assert message in str(raised.value)
    assert "line 8" in str(raised.value) or "shop.yaml:8" in str(raised.value)


def test_parts_of_one_line_are_no_repeats_of_each_other() -> None:
    more = "  once: {type: dedupe, inputs: [each]}\nsinks:\n  all: {type: console, inputs: [once]}\n"
    tests = """
tests:
  - name: a line that came twice
    input:
      - &line
        source: web
        value: '{"r": [1, 2], "host": "h", "log.file.id": "f", "log.file.position": 7}'
      - *line
    expect: [{at: once, count: 2}, {at: "dropped:once", count: 2}]
"""
    text = FILE.replace("SPLIT", "{of: attributes.r}").partition("sinks:")[0] + more + tests
    assert run_examples(compile_pipeline(text, "shop.yaml"), {}) == []


# --- repeats ---------------------------------------------------------------------------------------------------------

EVENTS = st.lists(st.tuples(st.integers(1, 3), st.sampled_from([("",), ("0", "1", "2"), ("0.0", "0.1", "1.0", "")])))


@settings(deadline=None)
@given(EVENTS, st.lists(st.integers(0, 40), max_size=4), st.lists(st.integers(1, 9), min_size=1))
def test_each_part_is_delivered_once_however_attempts_are_cut(
    steps: list[tuple[int, tuple[str, ...]]], cuts: list[int], sizes: list[int]
) -> None:
    offsets = np.cumsum([step for step, _ in steps]).tolist()
    whole = [(offset, part) for offset, (_, parts) in zip(offsets, steps, strict=True) for part in parts]
    written = [event for cut in [*cuts, len(whole)] for event in whole[:cut]]
    marks: dict[str, int] = {"_p.each web 1": 99, "_p.each web 1 #4": 99}
    found, at, number = [], 0, 0
    while at < len(written):
        piece = written[at : at + sizes[number % len(sizes)]]
        at, number = at + len(piece), number + 1
        filter_ = RepeatFilter(marks, frozenset())
        for half in (piece[: len(piece) // 2], piece[len(piece) // 2 :]):
            kept = filter_.fresh(
                pa.table(
                    {
                        "stream": pa.array(["web"] * len(half), pa.string()),
                        "partition": pa.array([0] * len(half), pa.int32()),
                        "offset": pa.array([offset for offset, _ in half], pa.int64()),
                        "event_id": pa.array(
                            [f"web:0:{offset}{'.' if part else ''}{part}" for offset, part in half], pa.string()
                        ),
                    }
                ),
                np.arange(len(half)),
                pa.array(["_p.each"] * len(half), pa.string()),
                RecordKeys(pa.nulls(len(half), pa.binary())),
            )
            found += [event for event, fresh in zip(half, kept.tolist(), strict=True) if fresh]
        marks = marks_after(marks, [filter_.high_water])
    assert sorted(found) == sorted(whole)
    assert (marks["_p.each web 1"], marks["_p.each web 1 #4"]) == (99, 99)
    assert len(marks) <= 2 + 1 + 4
