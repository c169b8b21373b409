"""Dials: what a file may say of them, what turning one does to a plan, and which change holds at a moment."""

import msgspec
import pytest

from logboom.base.settings import SettingsError
from logboom.pipeline.config.compile import compile_pipeline
from logboom.pipeline.dials import changes
from logboom.pipeline.dials.changes import (
    KEPT_CHANGES,
    Change,
    Declared,
    Dials,
    change_record,
    declared_record,
    values_of,
)
from logboom.pipeline.plan.dials import Dial, value_text
from logboom.pipeline.plan.layout import Layout
from logboom.pipeline.plan.nodes import Plan
from logboom.pipeline.plan.stateful import StatefulTransform
from logboom.pipeline.registry import read_plan
from logboom.pipeline.transforms.aggregate import AggregateTransform
from logboom.pipeline.transforms.dedupe import DedupeTransform
from logboom.pipeline.transforms.sample import SampleTransform
from logboom.pipeline.transforms.tail_sample import TailSampleTransform

FILE = """\
name: shop
sources:
  web: {type: stream, stream: web}
transforms:
  parsed: {type: parse, inputs: [web], rules: [{format: json}], drop: {blank: "line = ''"}}
  clean: {type: filter, inputs: [parsed], condition: "severity_number > 4"}
  split: {type: route, inputs: [clean], routes: {errors: "severity_number >= 17", slow: "attributes.ms > 100"}}
  sampled:
    type: sample
    inputs: [split.unmatched]
    rate: {dial: noise, default: 10, min: 1, max: 1000}
  part: {type: sample, inputs: [split.slow], ratio: {dial: slow_part, default: 0.5}}
sinks:
  out: {type: stream, inputs: [sampled, split.errors, part], stream: out}
"""


def plan_of(text: str = FILE) -> Plan:
    return compile_pipeline(text, "shop.yaml")


def problems_of(text: str) -> list[str]:
    with pytest.raises(SettingsError) as failed:
        plan_of(text)
    return str(failed.value).splitlines()


def test_every_number_and_switch_of_a_file_has_a_dial() -> None:
    dials = {dial.name: (dial.range_text(), value_text(dial.value)) for dial in plan_of().dials()}
    assert dials == {
        "parsed.blank": ("on or off", "on"),
        "clean": ("on or off", "on"),
        "split.errors": ("on or off", "on"),
        "split.slow": ("on or off", "on"),
        "noise": ("1 to 1000", "10"),
        "slow_part": ("1e-09 to 1", "0.5"),
    }


def test_a_plan_with_dials_is_the_same_once_written_and_read() -> None:
    plan = plan_of()
    assert read_plan(plan.to_json()) == plan
    turned = plan.turned({"noise": 50, "split.errors": False})
    assert read_plan(turned.to_json()) == turned


def test_turning_a_dial_changes_its_setting_alone() -> None:
    plan = plan_of()
    turned = plan.turned({"noise": 50, "slow_part": 0.25})
    rates = {node.name: node.rate for node in turned.transforms if isinstance(node, SampleTransform)}
    assert rates == {"sampled": 50.0, "part": 4.0}
    assert {dial.name: dial.value for dial in turned.dials()} == {
        **{dial.name: dial.value for dial in plan.dials()},
        "noise": 50,
        "slow_part": 0.25,
    }


STATEFUL = (
    FILE.partition("sinks:")[0]
    + """\
  once: {type: dedupe, inputs: [part], window: {dial: remembered, default: 600, max: 3600}}
  load:
    type: aggregate
    inputs: [once]
    window: 1m
    metrics: {n: {type: count}}
    max_groups: {dial: groups, default: 64}
  traces: {type: tail_sample, inputs: [once], keep: {errors: severity_number >= 17, slow: attributes.ms > 9}, rate: 10}
sinks:
  out: {type: stream, inputs: [sampled, load, traces], stream: out}
"""
)


def test_windows_caps_and_rules_of_transforms_with_a_state_have_dials() -> None:
    plan = plan_of(STATEFUL)
    dials = {dial.name: (dial.range_text(), value_text(dial.value)) for dial in plan.dials()}
    assert {name: dials[name] for name in ("remembered", "groups", "traces", "traces.errors", "traces.slow")} == {
        "remembered": ("1 to 3600", "600"),
        "groups": ("16 to 1e+07", "64"),
        "traces": ("1 or more", "10"),
        "traces.errors": ("on or off", "on"),
        "traces.slow": ("on or off", "on"),
    }
    turned = plan.turned({"remembered": 1.5, "groups": 128, "traces.slow": False, "traces": 20})
    once, load, traces = turned.transforms[-3:]
    assert isinstance(once, DedupeTransform)
    assert isinstance(load, AggregateTransform)
    assert isinstance(traces, TailSampleTransform)
    assert (once.window_ms, load.max_groups, traces.off, traces.rate) == (1_500, 128, ("slow",), 20)
    assert [node.state_form for node in (once, load, traces)] == [
        node.state_form for node in plan.transforms[-3:] if isinstance(node, StatefulTransform)
    ]
    assert turned.turned({"traces.slow": True, "traces": 10, "remembered": 600, "groups": 64}) == plan
    assert read_plan(turned.to_json()) == turned


def test_what_a_dial_does_not_take_changes_nothing() -> None:
    plan = plan_of()
    assert plan.turned({"noise": 5_000, "clean": 3, "gone": 1, "split.errors": 0.5}) == plan
    assert plan.turned({}) is plan


@pytest.mark.parametrize("name", ["clean", "split.errors", "split.slow", "parsed.blank"])
def test_a_plan_has_the_same_streams_however_its_switches_stand(name: str) -> None:
    plan = plan_of()
    off = plan.turned({name: False})
    assert off != plan

    def finals(plan: Plan) -> set[tuple[str, str, str]]:
        return {(place.kind, place.edge, place.node) for place in Layout(plan).finals()}

    assert finals(off) == finals(plan)
    if name != "parsed.blank":  # whose rule is gone from the plan while it is off
        assert next(dial for dial in off.dials() if dial.name == name).value is False


def test_files_without_dials_keep_the_hash_of_their_plans() -> None:
    text = FILE.replace("{dial: noise, default: 10, min: 1, max: 1000}", "10").replace(
        "{dial: slow_part, default: 0.5}", "0.5"
    )
    assert b"dial" not in plan_of(text).to_json().encode()
    assert b"enabled" not in plan_of(text).to_json().encode()


def test_bad_dials_are_told_at_their_lines() -> None:
    bad = FILE.replace("default: 10, min: 1, max: 1000", "default: 0.5, min: 20, max: 2").replace(
        "{dial: slow_part, default: 0.5}", "{dial: clean, default: much}"
    )
    assert problems_of(bad) == [
        "shop.yaml:11: transforms.sampled.rate.default: should be at least 1, got 0.5",
        "shop.yaml:11: transforms.sampled.rate.max: is below min, 20",
        "shop.yaml:12: transforms.part.ratio.default: should be a number, got 'much'",
    ]


def test_names_of_dials_are_unique() -> None:
    assert problems_of(FILE.replace("slow_part", "clean")) == [
        "shop.yaml:12: transforms.part: the dial 'clean' is taken: it is one of 'clean'"
    ]


def test_an_unknown_key_of_a_dial_is_told() -> None:
    (problem,) = problems_of(FILE.replace("max: 1000", "most: 1000"))
    assert problem.startswith("shop.yaml:11: transforms.sampled.rate.most: unknown key 'most'")


@pytest.mark.parametrize(
    ("dial", "text", "expected"),
    [
        (Dial(setting="r", value=1, min=1, max=9), "5", 5),
        (Dial(setting="r", value=1, min=1), "2.5", 2.5),
        (Dial(setting="r", value=1, min=1, max=9), "10", "should be 1 to 9"),
        (Dial(setting="r", value=1, min=1), "nan", "should be a number"),
        (Dial(setting="r", value=1, min=1), "inf", "should be a number"),
        (Dial(setting="r", value=1), "many", "should be a number"),
        (Dial(setting="r", kind="whole", value=1), "2.5", "should be a whole number"),
        (Dial(setting="r", kind="switch", value=True), "off", False),
        (Dial(setting="r", kind="switch", value=True), "7", "should be on or off"),
    ],
)
def test_values_are_read_as_people_write_them(dial: Dial, text: str, expected: object) -> None:
    try:
        found: object = dial.read(text)
    except ValueError as error:
        found = str(error)
    assert found == expected


def dials_with(*changes: Change) -> Dials:
    dials = Dials("shop")
    for number, change in enumerate(changes):
        assert dials.take(*change_record("shop", change, number)) is None
    return dials


def change(value: float | None, at_ms: int, expires_ms: int | None = None) -> Change:
    return Change(dial="noise", value=value, by="ann", at_ms=at_ms, expires_ms=expires_ms)


def holding(dials: Dials, now_ms: int) -> object:
    found = dials.in_effect(now_ms).get("noise")
    return None if found is None else found.value


def test_a_change_goes_back_to_the_one_before_at_its_expiry() -> None:
    dials = dials_with(change(20, 1), change(50, 2, expires_ms=100))
    assert [holding(dials, now) for now in (2, 99, 100)] == [50, 50, 20]


def test_a_dial_that_is_set_back_stands_as_the_file_says() -> None:
    dials = dials_with(change(20, 1), change(50, 2, expires_ms=100), change(None, 3))
    assert [holding(dials, now) for now in (4, 200)] == [None, None]


def test_changes_of_other_pipelines_are_not_ours() -> None:
    dials = dials_with(change(20, 1))
    assert dials.take(*change_record("shop2", change(7, 2), 0)) is None
    assert holding(dials, 3) == 20


def test_the_history_is_bounded_and_what_is_taken_out_is_gone() -> None:
    dials = dials_with(*(change(float(number), number) for number in range(KEPT_CHANGES)))
    (oldest,) = dials.to_forget("noise")
    assert dials.take(oldest, None) is None
    assert [one.at_ms for one in dials.history("noise")] == list(range(1, KEPT_CHANGES))


def test_a_flood_of_changes_takes_bounded_memory() -> None:
    dials = dials_with(*(change(float(number), number) for number in range(10 * KEPT_CHANGES)))
    assert [one.at_ms for one in dials.history("noise")] == list(range(8 * KEPT_CHANGES, 10 * KEPT_CHANGES))
    assert holding(dials, 0) == 10 * KEPT_CHANGES - 1


def test_a_flood_of_names_takes_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes, "DIALS_MAX", 3)
    dials = dials_with(change(20, 1))
    told = []
    for number in range(10):
        stranger = Change(dial=f"made-up-{number}", value=1, by="x", at_ms=number)
        told.append(dials.take(*change_record("shop", stranger, 0)))
    assert [one is None for one in told] == [True] * 2 + [False] * 8
    assert "beyond 3: it is left out" in str(told[-1])
    assert len(dials.history()) == 3
    assert dials.take(*change_record("shop", change(30, 2), 7)) is None, "known ones turn on"
    assert holding(dials, 3) == 30


@pytest.mark.parametrize("value", [b"", b"{", b"\xff", b'{"dial": 1}', b"[]"])
def test_records_that_are_no_change_are_told_and_left_out(value: bytes) -> None:
    dials = dials_with(change(20, 1))
    told = dials.take("shop/noise/9-0", value)
    assert told is not None
    assert told.startswith("the record shop/noise/9-0 of the dials is no change")
    assert dials.take("shop", value) is not None
    assert holding(dials, 3) == 20


def test_a_change_that_the_edited_dial_does_not_take_is_told() -> None:
    dials = dials_with(change(20, 1))
    assert dials.take(*declared_record("shop", Declared(dials=plan_of().dials()))) is None
    assert dials.declared is not None
    noise = dials.declared.named()["noise"]
    assert values_of(dials.in_effect(2), [noise]) == ({"noise": 20}, [])
    narrow = msgspec.structs.replace(noise, max=15)
    values, refused = values_of(dials.in_effect(2), [narrow])
    assert (values, refused) == ({}, ["the dial noise stays as the file says: 20 of ann should be 1 to 15"])
