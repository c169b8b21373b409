"""The pipeline of a replay: what it is made of, and that it is the same when it goes on."""

from pathlib import Path

import pytest

from logboom.pipeline.config.compile import compile_pipeline
from logboom.pipeline.errors import PipelineError
from logboom.pipeline.plan.layout import Layout
from logboom.pipeline.registry import read_plan
from logboom.pipeline.run.replay import Replay, remember, remembered, replay_plan

FILE = """\
name: shop
sources:
  web: {type: stream, stream: web}
  host: {type: stream, stream: host}
transforms:
  parsed: {type: parse, inputs: [web], rules: [{format: json}]}
  chosen: {type: filter, inputs: [parsed], condition: "severity_number > 4"}
  lines: {type: parse, inputs: [host], rules: [{format: text}]}
  split: {type: route, inputs: [chosen], routes: {errors: "severity_number >= 17"}}
sinks:
  errors: {type: stream, inputs: [split.errors], stream: errors}
  screen: {type: console, inputs: [lines, split.unmatched]}
"""
PLAN = compile_pipeline(FILE, "shop.yaml")


def replay(**options: object) -> Replay:
    return Replay(name="r1", from_ms=1_000, to_ms=2_000, **{"sink": "errors", **options})  # type: ignore[arg-type]


def test_it_has_what_leads_to_the_sink_alone() -> None:
    plan = replay_plan(PLAN, replay())
    assert [node.name for node in plan.nodes()] == [
        "web",
        "parsed",
        "chosen",
        "split",
        "chosen_2",
        "replayed",
        "errors",
    ]
    assert (plan.name, plan.checkpoint) == ("shop.replay.r1", "checkpoints/shop/replays/r1")
    assert (plan.sources[0].from_ms, plan.sources[0].until_ms) == (1_000, 2_000)
    assert {place.node for place in Layout(plan).finals() if place.kind == "direct"} == {"errors"}
    assert read_plan(plan.to_json()) == plan


def test_another_output_may_go_to_the_sink() -> None:
    plan = replay_plan(PLAN, replay(route="lines"))
    assert [node.name for node in plan.nodes()] == ["host", "lines", "chosen_2", "replayed", "errors"]


def test_names_that_are_not_there_are_told() -> None:
    with pytest.raises(PipelineError, match=r"has no sink 'erors' \(did you mean 'errors'\?\)"):
        replay_plan(PLAN, replay(sink="erors"))
    with pytest.raises(PipelineError, match=r"has no output 'split.eror' \(did you mean 'split.errors'\?\)"):
        replay_plan(PLAN, replay(route="split.eror"))


def test_ids_and_conditions_choose_together() -> None:
    plan = replay_plan(PLAN, replay(where="service = 'a' OR true", ids=("web:0:1", "it's")))
    (chosen,) = (node for node in plan.transforms if node.name == "chosen_2")
    assert getattr(chosen, "condition") == "(\nservice = 'a' OR true\n) AND event_id IN ('web:0:1', 'it\\'s')"  # noqa: B009


def test_a_rate_bounds_the_batches() -> None:
    assert replay_plan(PLAN, replay(events_per_s=500)).max_records_per_batch == 500
    every = replay_plan(PLAN, replay(sink=None, events_per_s=500))
    assert every.max_records_per_batch == len(every.sources) * 500 == 1_000  # each gets an equal share of a batch
    assert replay_plan(PLAN, replay()).max_records_per_batch == PLAN.max_records_per_batch


def test_what_was_begun_is_remembered(tmp_path: Path) -> None:
    begun = replay(where="true", ids=("a",), route="lines")
    remember(tmp_path, begun)
    assert remembered(tmp_path, "r1") == begun
    with pytest.raises(PipelineError, match=r"there is no replay 'r2' \(known here: r1\)"):
        remembered(tmp_path, "r2")
