"""Dials: what a file may say of them, what turning one does to a plan, and which change holds at a moment."""

import msgspec
import pytest

from logboom.base.settings import SettingsError
from logboom.pipeline.config.compile import compile_pipeline
from logboom.pipeline.dials.changes import (
    KEPT_CHANGES,
    RECORD_BYTES_MAX,
    Change,
    Declared,
    Dials,
    change_record,
    declared_record,
    values_of,
)
from logboom.pipeline.dials.rejections import Faults
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
        "groups": ("16 to 10000000", "64"),
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


EVERY = (
    FILE.partition("sinks:")[0]
    + """\
  once: {type: dedupe, inputs: [part], window: 10m}
  load: {type: aggregate, inputs: [once], window: 1m, metrics: {n: {type: count}}}
  traces:
    type: tail_sample
    inputs: [once]
    keep: {errors: severity_number >= 17}
    slower_than: 2s
    rare_by: service
    wait: {dial: patience, default: 20, max: 60}
  few: {type: sample, inputs: [once], rate: 4, exclude: severity_number >= 17}
  fair: {type: sample, inputs: [once], target_per_second: 50, by: service, exclude: severity_number >= 17}
  most: {type: sample, inputs: [once], per_second: 50, by: service}
  capped: {type: limit, inputs: [once], bytes: 1MB, over: sample, rate: 10, max_keys: {dial: teams, default: 64}}
  pairs: {type: join, left: few, right: fair, into: error}
  known: {type: patterns, inputs: [once]}
sinks:
  out: {type: stream, inputs: [sampled, load, traces, few, fair, most, capped, pairs, "pairs.*", known], stream: out}
"""
)
EVERY_DIAL = {
    "once": ("window", 2.5, 2_500),
    "once.max_keys": ("max_keys", 20_000, 20_000),
    "load": ("max_groups", 32, 32),
    "load.lateness": ("lateness", 0.5, 500),
    "traces.errors": ("off", False, ("errors",)),
    "patience": ("wait", 60, 60_000),
    "traces.slower_than": ("slower_than", 1, 1_000),
    "traces.rare_first": ("rare_first", 7, 7),
    "traces.max_events": ("max_events", 100, 100),
    "traces.max_bytes": ("max_bytes", 2**21, 2**21),
    "few": ("rate", 8, 8),
    "few.exclude": ("exclude", False, False),
    "fair": ("target_per_second", 5, 5),
    "fair.max_keys": ("max_keys", 160, 160),
    "fair.over": ("over", 2, 2_000),
    "fair.exclude": ("exclude", False, False),
    "most": ("per_second", 5, 5),
    "most.max_keys": ("max_keys", 160, 160),
    "capped": ("bytes", 5, 5),
    "capped.rate": ("rate", 3, 3),
    "teams": ("max_keys", 160, 160),
    "pairs": ("window", 2, 2_000),
    "pairs.max_matches": ("max_matches", 9, 9),
    "pairs.max_events": ("max_events", 100, 100),
    "pairs.max_bytes": ("max_bytes", 2**21, 2**21),
    "known": ("max_templates", 50, 50),
    "known.max_keys": ("max_keys", 160, 160),
}
FIELDS = {
    "window": "window_ms",
    "lateness": "lateness_ms",
    "wait": "wait_ms",
    "slower_than": "slower_ms",
    "over": "over_ms",
    "exclude": "exclude_enabled",
}


def test_every_rate_limit_and_condition_of_transforms_with_a_state_has_a_dial() -> None:
    of_file = {dial.name for dial in plan_of().dials()}
    assert {dial.name for dial in plan_of(EVERY).dials()} - of_file == set(EVERY_DIAL)


@pytest.mark.parametrize("name", EVERY_DIAL)
def test_a_turned_dial_changes_its_field_and_turns_back(name: str) -> None:
    setting, value, expected = EVERY_DIAL[name]
    plan = plan_of(EVERY)
    (node,) = (node for node in plan.transforms if name in {dial.name for dial in node.dials})
    turned_plan = plan.turned({name: float(value) if type(value) is int else value})  # JSON may say 5.0 for 5
    (turned,) = (other for other in turned_plan.transforms if other.name == node.name)
    field = FIELDS.get(setting, setting)
    assert getattr(turned, field) == expected
    assert isinstance(getattr(turned, field), float) == setting.endswith(("rate", "per_second"))
    assert read_plan(turned_plan.to_json()) == turned_plan
    if isinstance(node, StatefulTransform):
        assert isinstance(turned, StatefulTransform)
        assert turned.state_form == node.state_form
    back = turned_plan.turned({dial.name: dial.value for dial in plan.dials() if dial.name == name})
    assert {dial.name: dial.value for dial in back.dials()} == {dial.name: dial.value for dial in plan.dials()}


def test_a_sample_takes_what_it_excluded_while_that_is_off() -> None:
    few = plan_of(EVERY).turned({"few.exclude": False}).transforms
    assert [node.sampling.exclude for node in few if isinstance(node, SampleTransform) and node.name == "few"] == [None]


def test_whole_numbers_are_asked_for() -> None:
    assert problems_of(EVERY.replace("{dial: teams, default: 64}", "{dial: teams, default: 64.5, max: 99.5}")) == [
        "shop.yaml:25: transforms.capped.max_keys.default: should be a whole number, got 64.5",
        "shop.yaml:25: transforms.capped.max_keys.max: should be a whole number, got 99.5",
    ]


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
        "shop.yaml:12: transforms.part: the dial 'clean' is already used by 'clean'"
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
    dials = Dials("shop", ["noise"])
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


def test_changes_of_dials_that_the_pipeline_does_not_have_are_told_and_left_out() -> None:
    dials = dials_with(change(20, 1))
    for number in range(10):
        stranger = Change(dial="made-up" * 300, value=1, by="x", at_ms=number)
        told = dials.take(*change_record("shop", stranger, number))
        assert told is not None
        assert "which the pipeline does not have" in told
        assert len(told) < 400
    assert len(dials.history()) == 1
    assert dials.take(*change_record("shop", change(30, 2), 7)) is None, "its own turn on"
    assert holding(dials, 3) == 30


def test_a_change_that_is_larger_than_any_is_none() -> None:
    dials = dials_with(change(20, 1))
    large = Change(dial="noise", value=7, by="ann", why="x" * RECORD_BYTES_MAX, at_ms=2)
    told = dials.take(*change_record("shop", large, 0))
    assert told is not None
    assert "larger than 4,096 bytes" in told
    assert dials.take("shop/" + "k" * RECORD_BYTES_MAX, b"{}") is not None
    assert holding(dials, 3) == 20


def test_a_flood_of_faults_is_no_flood_of_messages() -> None:
    told: list[str] = []
    now = [0.0]
    faults = Faults(told.append, lambda: now[0])
    for second in range(150):
        now[0] = second
        for _ in range(1_000):
            faults.found("it is none")
        faults.tell(unread=7 if 10 <= second < 20 else 0)
    assert told == [
        *["it is none"] * 5,
        "995 more invalid records of the dials are ignored",
        "7 records of the dials are not read yet: their changes take effect later",
        "all records of the dials are now read",
        "60,000 more invalid records of the dials are ignored",
        "60,000 more invalid records of the dials are ignored",
    ]


FAR = b'{"dial": "noise", "value": 5, "by": "x", "at_ms": 2, "expires_ms": 8640001768000000}'


@pytest.mark.parametrize("value", [b"", b"{", b"\xff", b'{"dial": 1}', b"[]", FAR])
def test_records_that_are_no_change_are_told_and_left_out(value: bytes) -> None:
    dials = dials_with(change(20, 1))
    told = dials.take("shop/noise/9-0", value)
    assert told is not None
    assert told.startswith("the record shop/noise/9-0 of the dials is not a change")
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
