"""Transforms that decide by key: through a pipeline's file, its own tests, and what is wrong with their keys."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.pipeline_core.test_stateful import Pipeline, layout_of

from logboom.base.settings import SettingsError
from logboom.pipeline.config.compile import compile_pipeline
from logboom.pipeline.drawing.graph import graph_of
from logboom.pipeline.execute.examples import run_examples
from logboom.pipeline.plan.stateful import StatefulTransform
from logboom.pipeline.registry import read_plan

HEAD: dict[str, Any] = {
    "name": "t",
    "sources": {"s": {"type": "stream", "stream": "web"}, "o": {"type": "stream", "stream": "orders"}},
}
PARSED = {"type": "parse", "inputs": ["s", "o"], "rules": [{"format": "json"}]}


def document(transforms: dict[str, Any], sinks: Sequence[str], **more: Any) -> str:
    made = {name: {"type": "console", "inputs": [edge]} for name, edge in zip("abcdef", sinks, strict=False)}
    return json.dumps({**HEAD, "transforms": {"parsed": PARSED, **transforms}, "sinks": made, **more})


def line(number: int, source: str = "s", **fields: Any) -> dict[str, Any]:
    return {"source": source, "value": json.dumps({"msg": f"line {number}", "service": "web", **fields})}


def failures(transforms: dict[str, Any], sinks: Sequence[str], given: list[Any], expect: list[Any]) -> list[str]:
    text = document(transforms, sinks, tests=[{"name": "one", "input": given, "expect": expect}])
    plan = compile_pipeline(text, "t.yaml")
    assert read_plan(plan.to_json()) == plan
    types = {"parse", "route", *(str(node["type"]) for node in transforms.values())}
    boxes = [box for column in graph_of(plan).columns for box in column]
    assert {box.type for box in boxes if box.kind == "transform"} <= types
    return [failure.message for failure in run_examples(plan, {})]


def test_a_sample_by_key_keeps_so_many_of_each() -> None:
    fair = {
        "type": "sample",
        "inputs": ["parsed"],
        "per_second": 3,
        "by": "service",
        "exclude": "severity_number >= 17",
    }
    given = [line(number, service=service) for service in ("web", "db") for number in range(12)]
    given += [line(100 + number, level="error") for number in range(5)]
    expect = [
        {"at": "a", "count": 3, "condition": "service = 'web' AND weight = 4.0 AND severity_number < 17"},
        {"at": "a", "count": 3, "condition": "service = 'db' AND weight = 4.0"},
        {"at": "a", "count": 5, "condition": "severity_number >= 17 AND weight = 1.0"},
        {"at": "dropped:fair", "count": 18},
    ]
    assert failures({"fair": fair}, ["fair"], given, expect) == []


def test_a_target_keeps_about_so_many() -> None:
    held = {"type": "sample", "inputs": ["parsed"], "target_per_second": 50, "by": "service"}
    given = [line(number) for number in range(100)] + [line(number, service="db") for number in range(20)]
    expect = [
        {"at": "a", "count": 20, "condition": "service = 'db' AND weight = 1.0"},
        {"at": "a", "condition": "service = 'web' AND weight = 2.0"},
        {"at": "dropped:held"},
    ]
    assert failures({"held": held}, ["held"], given, expect) == []


@pytest.mark.parametrize("cap", [{"events": 2}, {"bytes": 150}])
def test_a_limit_diverts_what_is_over(cap: dict[str, int]) -> None:
    capped = {"type": "limit", "inputs": ["parsed"], **cap, "by": "attributes.team", "over": "divert"}
    given = [line(number, team=team) for number in range(5) for team in ("red", "blue")]
    expect = [
        {"at": "a", "count": 2, "condition": "attributes.team = 'red'"},
        {"at": "b", "count": 3, "condition": "attributes.team = 'blue'"},
    ]
    assert failures({"capped": capped}, ["capped", "capped.over"], given, expect) == []


def test_a_limit_samples_what_is_over() -> None:
    capped = {"type": "limit", "inputs": ["parsed"], "events": 10, "over": "sample", "rate": 5}
    given = [line(number) for number in range(200)]
    expect = [
        {"at": "a", "count": 10, "condition": "weight = 1.0"},
        {"at": "a", "condition": "weight = 5.0"},
        {"at": "dropped:capped"},
    ]
    assert failures({"capped": capped}, ["capped"], given, expect) == []


def test_whole_traces_stay() -> None:
    tail = {
        "type": "tail_sample",
        "inputs": ["parsed"],
        "keep": {"errors": "severity_number >= 17"},
        "slower_than": "2s",
    }
    traces = {"bad": "a" * 32, "slow": "b" * 32, "fine": "c" * 32}
    times = ("2026-11-20T12:00:00Z", "2026-11-20T12:00:01Z", "2026-11-20T12:00:05Z")
    given = [
        line(1, trace_id=traces["bad"], time=times[0]),
        line(2, trace_id=traces["bad"], time=times[1], level="error"),
        line(3, trace_id=traces["slow"], time=times[0]),
        line(4, trace_id=traces["fine"], time=times[0]),
        line(5, trace_id=traces["slow"], time=times[2]),
        line(6, trace_id=traces["fine"], time=times[1]),
        line(7, level="error"),
        line(8),
    ]
    expect = [
        {"at": "a", "count": 2, "condition": f"trace_id = '{traces['bad']}' AND weight = 1.0"},
        {"at": "a", "count": 2, "condition": f"trace_id = '{traces['slow']}'"},
        {"at": "a", "count": 1, "condition": "trace_id IS NULL"},
        {"at": "a", "count": 5},
    ]
    assert failures({"tail": tail}, ["tail"], given, expect) == []


def test_events_of_two_inputs_are_joined() -> None:
    split = {"type": "route", "inputs": ["parsed"], "routes": {"orders": "source = 'o'", "shop": "source = 's'"}}
    joined = {
        "type": "join",
        "left": "split.orders",
        "right": ["split.shop"],
        "on_right": "attributes.id",
        "into": "log",
    }
    joined["on"] = "attributes.order"
    given = [
        line(1, "o", order="x"),
        line(2, "o", order="y"),
        line(3, id="x", code=7),
        line(4, id="x", code=8),
        line(5, id="z"),
        line(6),
    ]
    expect = [
        {"at": "a", "count": 2},
        {"at": "a", "count": 1, "fields": {"body": "line 1", "attributes.log.attributes.code": 7}},
        {"at": "a", "count": 1, "fields": {"attributes.log.body": "line 4", "attributes.order": "x"}},
        {"at": "b", "count": 1, "fields": {"body": "line 2"}},
        {"at": "c", "count": 2},
        {"at": "c", "count": 1, "fields": {"body": "line 6"}},
    ]
    sinks = ["joined", "joined.left", "joined.right"]
    assert failures({"split": split, "joined": joined}, sinks, given, expect) == []
    merged = [{"at": "a", "count": 5}]
    assert failures({"split": split, "joined": {**joined, "unmatched": "merged"}}, ["joined"], given, merged) == []


def test_lines_get_templates() -> None:
    known = {"type": "patterns", "inputs": ["parsed"]}
    given = [line(0, msg=f"Accepted password for {name} from 10.0.0.1 port {22 + n}") for n, name in enumerate("abc")]
    given += [line(0, msg="Accepted password for bob from 10.0.0.2 port 99", service="db"), line(0, msg="")]
    template = "Accepted password for <*> from <*> port <*>"
    expect = [
        {"at": "a", "count": 3, "fields": {"attributes.pattern.template": template}},
        {"at": "a", "count": 1, "condition": 'attributes[\'pattern.values\'] = \'["b","10.0.0.1","23"]\''},
        {"at": "a", "count": 1, "condition": "attributes['pattern.id'] IS NULL"},
    ]
    assert failures({"known": known}, ["known"], given, expect) == []


BATCHES = """
name: t
sources: {web: {type: stream, stream: web}}
transforms:
  parsed: {type: parse, inputs: [web], rules: [{format: json}]}
  split: {type: route, inputs: [parsed], routes: {even: "attributes.side = 'even'"}}
  fair: {type: sample, inputs: [parsed], per_second: 2, by: service}
  held: {type: sample, inputs: [parsed], target_per_second: 5, by: service}
  capped: {type: limit, inputs: [parsed], events: 25, by: service}
  tail: {type: tail_sample, inputs: [parsed], keep: {errors: severity_number >= 17}, rate: 2, max_events: 64}
  joined: {type: join, left: split.even, right: split.unmatched, into: other, max_events: 160}
  known: {type: patterns, inputs: [parsed]}
sinks:
  out: {type: console, inputs: [fair, held, capped, tail, joined, joined.left, joined.right, known]}
"""


def test_batches_that_are_done_again_in_another_process_come_out_the_same(tmp_path: Path) -> None:
    """The harness holds each attempt at a batch against the first; the cap holds over all batches."""
    pipeline, passed = Pipeline(layout_of(BATCHES), tmp_path), 0
    for batch in range(6):
        lines = [
            line(number, service="web", side=("even", "odd")[number % 2], trace_id=f"{number // 4 + 1:032x}")["value"]
            for number in range(20 * (batch % 3))
        ]
        ends = pipeline.run(lines, crashes=batch % 2)
        passed += sum(place == "capped" for place, _ in ends)
        assert sum(place == "known" for place, _ in ends) == len(lines)
    assert passed == 25


def test_what_waits_leaves_by_time_alone_and_gets_batches_without_records() -> None:
    nodes = [node for node in layout_of(BATCHES).plan.transforms if isinstance(node, StatefulTransform)]
    assert {node.name for node in nodes if node.leaves_by_time} == {"tail", "joined"}


def test_weights_that_are_no_samples_may_not_stand_between_samples_of_one_key() -> None:
    transforms: dict[str, Any] = {
        "one": {"type": "sample", "inputs": ["parsed"], "rate": 2},
        "fair": {"type": "sample", "inputs": ["one"], "per_second": 10},
        "two": {"type": "sample", "inputs": ["fair"], "rate": 2},
    }
    with pytest.raises(SettingsError, match="samples by trace_id behind samples by trace_id and the weights of fair"):
        compile_pipeline(document(transforms, ["two"]), "t.yaml")
    compile_pipeline(document({**transforms, "two": {**transforms["two"], "key": "host"}}, ["two"]), "t.yaml")


@pytest.mark.parametrize(
    ("transform", "message"),
    [
        ({"type": "limit"}, "needs exactly one of events and bytes"),
        ({"type": "limit", "events": 1, "over": "sample"}, "needs rate with over: sample"),
        ({"type": "limit", "events": 1, "rate": 2}, "rate goes with over: sample alone"),
        ({"type": "limit", "events": 1, "by": "upper(service)"}, "should be a field, an attribute"),
        ({"type": "tail_sample"}, "keeps nothing"),
        ({"type": "tail_sample", "keep": {"x": "upper(body) = 'A'"}}, "should be made of comparisons"),
        ({"type": "tail_sample", "rate": 2, "key": "offset + 1"}, "should be a field, an attribute"),
        ({"type": "patterns", "by": "abs(offset)"}, "should be a field, an attribute"),
        ({"type": "sample", "per_second": 1, "rate": 2}, "needs exactly one of rate"),
        ({"type": "sample", "rate": 2, "by": "service"}, "goes with per_second or target_per_second"),
        ({"type": "sample", "per_second": 2, "over": "1s"}, "goes with target_per_second"),
        ({"type": "sample", "per_second": 2, "key": "abs(offset)"}, "should be a field, an attribute"),
    ],
)
def test_what_is_wrong_is_told(transform: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        compile_pipeline(document({"x": {"inputs": ["parsed"], **transform}}, ["x"]), "t.yaml")


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"left": ["parsed"], "right": ["parsed"]}, "which is also in left"),
        ({"left": ["parsed"], "right": ["other"], "inputs": ["parsed"]}, "a join reads its inputs left and right"),
        ({"left": ["parsed"], "right": ["othr"]}, "unknown input 'othr'"),
        ({"left": ["parsed"], "right": ["other"], "on": "abs(offset)"}, "should be a field, an attribute"),
        ({"left": ["parsed"], "right": []}, "right"),
        ({"left": ["parsed"], "right": ["other"], "into": ""}, "into"),
    ],
)
def test_what_is_wrong_with_a_join_is_told(keys: dict[str, Any], message: str) -> None:
    other = {"type": "filter", "inputs": ["parsed"], "condition": "true"}
    with pytest.raises(SettingsError, match=message):
        compile_pipeline(document({"other": other, "x": {"type": "join", "into": "o", **keys}}, ["x"]), "t.yaml")
