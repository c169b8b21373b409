"""The transform `reshape`: what each edit does, values that are set, and events for which they cannot be."""

import json
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.pipeline_core.batches import passed

from logboom.base.settings import SettingsError
from logboom.pipeline.config.compile import compile_pipeline
from logboom.pipeline.event.schema import EVENT_SCHEMA
from logboom.pipeline.execute.examples import run_examples
from logboom.pipeline.execute.stages import FAILURES, conform, execution_stages
from logboom.pipeline.plan.layout import KernelPass, Layout
from logboom.pipeline.plan.nodes import Plan
from logboom.pipeline.registry import read_plan
from logboom.pipeline.reshape.edits import CASTS, flatten, remove, take
from logboom.pipeline.route.values import simple_value
from logboom.pipeline.transforms.reshape import ReshapeTransform


def compiled(keys: Mapping[str, Any]) -> Plan:
    document = {
        "name": "tests",
        "sources": {"web": {"type": "stream", "stream": "web"}},
        "transforms": {
            "parsed": {"type": "parse", "inputs": ["web"], "rules": [{"format": "json"}]},
            "shaped": {"type": "reshape", "inputs": ["parsed"], **keys},
        },
        "sinks": {"out": {"type": "console", "inputs": ["shaped"]}},
    }
    return compile_pipeline(json.dumps(document), "test.yaml")


def reshaped(keys: Mapping[str, Any], *events: Mapping[str, Any], values: Mapping[str, Any] | None = None) -> list[Any]:
    """Events as plain data behind a reshape; `values`: what Spark has computed."""
    node = compiled(keys).transforms[1]
    assert isinstance(node, ReshapeTransform)
    rows = [{"severity_number": 9, **event, "attributes": json.dumps(event.get("attributes", {}))} for event in events]
    batch = conform(pa.RecordBatch.from_pylist(rows, schema=EVENT_SCHEMA), EVENT_SCHEMA)
    for name, texts in (values or {}).items():
        batch = batch.append_column(name, pa.array(texts, pa.string()))
    found: list[Any] = node.run(batch, {}).to_pylist()
    for row in found:
        row["attributes"] = json.loads(row["attributes"])
    return found


def attributes(keys: Mapping[str, Any], tree: Mapping[str, Any]) -> Any:
    return reshaped(keys, {"attributes": tree})[0]["attributes"]


def test_names_change() -> None:
    keys = {"rename": {"attributes.a.b": "attributes.c", "attributes.app": "service", "host": "attributes.node"}}
    first, second = reshaped(
        keys,
        {"host": "h1", "service": "old", "attributes": {"a": {"b": 1, "x": 2}, "c": 3, "app": {"n": 1}}},
        {"service": "kept", "attributes": {"a.b": "t"}},
    )
    assert (first["host"], first["service"]) == (None, '{"n":1}')
    assert first["attributes"] == {"a": {"x": 2}, "c": 1, "node": "h1"}
    assert (second["host"], second["service"], second["attributes"]) == (None, "kept", {"c": "t"})


def test_what_is_removed_is_gone_in_every_spelling() -> None:
    tree = {"a.b": 1, "a": {"b": 2, "c": 3}, "debug": {"x": 1}, "debug.y": 2, "debugger": 4}
    assert attributes({"remove": ["attributes.a.b", "attributes.debug.*"]}, tree) == {
        "a": {"c": 3},
        "debug": {},
        "debugger": 4,
    }
    (row,) = reshaped({"remove": ["host", "severity_number"]}, {"host": "h", "service": "s"})
    assert (row["host"], row["severity_number"], row["service"]) == (None, 0, "s")


@pytest.mark.parametrize(
    ("kind", "value", "wanted"),
    [
        ("int", "12", 12),
        ("int", " -3 ", -3),
        ("int", 1.9, 1),
        ("int", "1e3", 1000),
        ("int", "9" * 400, "9" * 400),
        ("int", True, 1),
        ("int", "n/a", "n/a"),
        ("int", None, None),
        ("float", "1.50", 1.5),
        ("float", "1e999", "1e999"),
        ("float", "NaN", "NaN"),
        ("float", 3, 3.0),
        ("boolean", "TRUE", True),
        ("boolean", 0, False),
        ("boolean", 2, 2),
        ("text", {"a": [1]}, '{"a":[1]}'),
        ("text", 1.5, "1.5"),
        ("json", '{"a": [1]}', {"a": [1]}),
        ("json", "{", "{"),
    ],
)
def test_casts(kind: str, value: Any, wanted: Any) -> None:
    found = attributes({"cast": {"attributes.x.y": kind}}, {"x": {"y": value}})["x"]["y"]
    assert (found, type(found)) == (wanted, type(wanted))


def test_objects_are_flattened() -> None:
    tree = {"a": {"b": {"c": 1, "d": []}, "e": {}}, "a.b.c": 2, "x": {"y": 1}}
    assert attributes({"flatten": "attributes.a"}, tree) == {
        "a.b.c": 2,
        "x": {"y": 1},
        "a.b.c_2": 1,
        "a.b.d": [],
        "a.e": {},
    }
    assert attributes({"flatten": "attributes"}, {"x": {"y": {"z": 1}}, "n": 1}) == {"n": 1, "x.y.z": 1}


def test_simple_values_are_set_without_spark() -> None:
    keys = {
        "set": {
            "service": "coalesce(attributes.app, service, 'nobody')",
            "attributes.team": "'shop'",
            "attributes.where": "host || ':' || attributes.port",
            "attributes.old": "attributes.nobody",
            "attributes.n": "17",
            "attributes.level": "severity_number",
        }
    }
    assert compiled(keys).transforms[1].event_values == ()  # type: ignore[attr-defined]
    first, second = reshaped(
        keys, {"host": "h", "attributes": {"app": "a", "port": 80, "old": 1}}, {"service": "s", "attributes": {}}
    )
    assert (first["service"], second["service"]) == ("a", "s")
    assert first["attributes"] == {"app": "a", "port": 80, "team": "shop", "where": "h:80", "n": 17, "level": 9}
    assert second["attributes"] == {"team": "shop", "n": 17, "level": 9}


@pytest.mark.parametrize(
    "sql", ["lower(service)", "1 + 1", "time", "concat(service, 1)", "coalesce(1, 2)", "", "'a' 'b'"]
)
def test_other_values_are_spark_s(sql: str) -> None:
    assert simple_value(sql) is None


def test_an_event_whose_value_fails_is_a_dead_letter_as_it_came() -> None:
    keys = {
        "rename": {"attributes.a": "attributes.b"},
        "set": {"time": "to_timestamp(body)", "attributes.len": "length(body)", "trace_id": "body"},
    }
    rows = reshaped(
        keys,
        *({"body": body, "attributes": {"a": 1}} for body in ("ab" * 16, "x", "0" * 32, "AB" * 16)),
        values={
            "set_shaped_0": [
                '{"v":"2026-01-02T03:04:05.000006Z"}',
                None,
                "{}",
                '{"v":"+12026-01-02T03:04:05.000006Z"}',
            ],
            "set_shaped_1": ['{"v":32}'] * 4,
        },
    )
    assert rows[0]["dead_reason"] is None
    assert rows[0]["time"].isoformat() == "2026-01-02T03:04:05.000006+00:00"
    assert rows[0]["attributes"] == {"b": 1, "len": 32}
    assert [row["dead_reason"] for row in rows[1:]] == [
        "time cannot be set: its expression fails on this event: to_timestamp(body)",
        f'trace_id cannot be "{"0" * 32}", the value of: body',
        'time cannot be "+12026-01-02T03:04:05.000006Z", the value of: to_timestamp(body)',
    ]
    assert all(row["attributes"] == {"a": 1} and row["dead_stage"] == "shaped" for row in rows[1:])
    assert rows[1]["time"] is None


PIPELINE = r"""
name: shop
sources: {web: {type: stream, stream: web}}
transforms:
  parsed: {type: parse, inputs: [web], rules: [{format: json}]}
  first:
    type: reshape
    inputs: [parsed]
    set: {attributes.words: "split(body, ' ')", severity_number: "variant_get(attributes, '$.sev', 'int')"}
  second:
    type: reshape
    inputs: [first, parsed]
    set:
      body: "upper(attributes.words)"
      time: "timestamp_micros(1)"
      attributes.none: "CAST(NULL AS INT)"
      attributes.at: observed_time
    cast: {attributes.sev: int}
sinks: {all: {type: console, inputs: [second]}}
tests:
  - name: values of Spark
    input:
      - {source: web, value: '{"msg": "a b", "sev": "17"}', timestamp: "2026-01-01T00:00:00.123456Z"}
      - {source: web, value: '{"msg": "x", "sev": "high"}'}
    expect:
      - at: "dead:first"
        count: 1
        condition: "dead_reason LIKE 'severity_number cannot be set: % on this event: variant_get(attributes%'"
        fields: {body: x}
      - at: all
        count: 1
        fields:
          body: '["A","B"]'
          severity_number: 17
          time: "1970-01-01T00:00:00.000001Z"
          attributes.sev: 17
          attributes.words: [a, b]
          attributes.at: "2026-01-01T00:00:00.123456Z"
      - {at: all, count: 2, condition: "attributes.words IS NULL AND variant_get(attributes, '$.none', 'int') IS NULL"}
"""


def test_values_of_spark_are_computed_where_the_event_is() -> None:
    plan = compile_pipeline(PIPELINE, "shop.yaml")
    assert read_plan(plan.to_json()) == plan
    stages = execution_stages(Layout(plan).steps)
    assert [stage.values_of is not None for stage in stages] == [False, True, True]
    assert all(isinstance(step, KernelPass) for stage in stages[1:] for step in stage.steps[:1])
    assert run_examples(plan, {}) == []


def test_a_task_counts_values_that_a_field_cannot_hold() -> None:
    good = "4bf92f3577b34da6a3ce929d0e0e4736"
    rows, counts = passed(compiled({"set": {"trace_id": "body"}}), {"msg": good}, {"msg": "zz"}, {"msg": good})
    assert [row["trace_id"] for row in rows if row["dead_reason"] is None] == [good, good]
    assert counts[f"{FAILURES}:shaped (trace_id)"] == 1


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({}, "changes nothing"),
        ({"set": {"event_id": "'x'"}}, "'event_id' cannot be changed here"),
        ({"set": {"servce": "'x'"}}, "unknown field 'servce' (did you mean 'service'?)"),
        ({"rename": {"attributes.a": "time"}}, "'time' cannot be changed here"),
        ({"cast": {"attributes.a": "integer"}}, "unknown type 'integer'"),
        ({"cast": {"body": "int"}}, "'body' cannot be changed here"),
        ({"flatten": ["body"]}, "'body' cannot be changed here"),
        ({"remove": ["attributes."]}, "unknown field 'attributes.'"),
        ({"set": {"severity_number": "99999999999"}}, "severity_number cannot be 99999999999, so every event would be"),
        ({"set": {"trace_id": "'zz'"}}, 'trace_id cannot be "zz", so every event would be a dead letter'),
    ],
)
def test_faults_of_a_file(keys: Mapping[str, Any], message: str) -> None:
    with pytest.raises(SettingsError) as caught:
        compiled(keys)
    assert message in str(caught.value)


NAMES = st.sampled_from(("a", "b", "a.b", "c", "a.b.c", "b_2"))
TREES = st.recursive(
    st.dictionaries(NAMES, st.integers(0, 9), max_size=4),
    lambda inner: st.dictionaries(NAMES, st.one_of(st.integers(0, 9), inner, st.lists(inner, max_size=2)), max_size=4),
    max_leaves=8,
)


def leaves(value: Any) -> list[Any]:
    if isinstance(value, dict) and value:
        return [leaf for inner in value.values() for leaf in leaves(inner)]
    return [json.dumps(value)]


@given(TREES)
def test_flattening_loses_nothing_and_leaves_no_object(tree: dict[str, Any]) -> None:
    before = sorted(leaves(tree)) if tree else []
    flatten(tree, None)
    assert sorted(json.dumps(value) for value in tree.values()) == before
    assert not any(isinstance(value, dict) and value for value in tree.values())
    assert not flatten(tree, None)


@given(TREES, NAMES)
def test_what_was_removed_cannot_be_found(tree: dict[str, Any], name: str) -> None:
    remove(tree, [name])
    assert take(tree, name) == (False, None)


@given(st.sampled_from(sorted(CASTS)), st.one_of(st.text(), st.integers(), st.floats(), st.none(), st.booleans()))
def test_a_cast_gives_what_json_can_hold(kind: str, value: Any) -> None:
    found = CASTS[kind](value)
    assert isinstance(found, str | int | float | bool | list | dict | type(None))
    if kind == "int" and isinstance(found, int) and not isinstance(value, int):
        assert abs(found) < 2**63
