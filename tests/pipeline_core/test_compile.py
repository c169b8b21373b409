"""Compiling: what a good file becomes, and that a bad one has all its problems told at once, each at its line."""

import pickle
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.docs.blocks import blocks_of

from logboom.base.settings import SettingsError
from logboom.pipeline.config.compile import compile_pipeline
from logboom.pipeline.normalise.times import compile_time_format
from logboom.pipeline.parse.formats.pattern import PatternFormat
from logboom.pipeline.parse.formats.programs import LAYOUTS
from logboom.pipeline.parse.grok import PatternError, check_re2, compile_line, expand
from logboom.pipeline.parse.grok_library import LIBRARY
from logboom.pipeline.plan.nodes import EVENT_COLUMNS, WHEN_COLUMNS, Expression
from logboom.pipeline.registry import read_plan
from logboom.pipeline.sinks.parquet import ParquetSink
from logboom.pipeline.transforms.mask import MaskTransform
from logboom.pipeline.transforms.parse import ParseTransform
from logboom.pipeline.transforms.sample import SampleTransform

GOOD = """\
name: shop
bootstrap: 127.0.0.1:9092
patterns: {ORDER_ID: 'o-[0-9a-f]{8}'}
batch: {max_records: 1000, interval: 5s}
sources:
  web: {type: stream, stream: web}
  host: {type: stream, streams: [syslog, dpkg], start: latest}
transforms:
  sampled: {type: sample, inputs: [split.health], rate: 10, exclude: "severity_number >= 17"}
  split: {type: route, inputs: [masked], routes: {errors: "severity_number >= 17", health: "body LIKE '%health%'"}}
  parsed:
    type: parse
    inputs: [web, host]
    rules:
      - {source: web, format: json, map: {body: what}}
      - {when: "stream = 'dpkg'", format: dpkg}
      - format: pattern
        pattern: '%{SYSLOGTIMESTAMP:time} %{ORDER_ID:order} %{INT:ms:int}'
        time_format: syslog
        timezone: Europe/Berlin
  clean: {type: filter, inputs: parsed, condition: severity_number >= 5}
  masked:
    type: mask
    inputs: [clean]
    key_env: KEY
    rules: [{kind: email, action: hash}, {kind: pattern, name: order, pattern: 'order %{ORDER_ID:x}'}]
sinks:
  archive: {type: parquet, inputs: [masked], path: ./archive, target_file_size: 64MiB}
  errors: {type: stream, inputs: [split.errors], stream: errors, key: trace_id}
  screen: {type: console, inputs: ['split.un*', sampled]}
tests:
  - name: errors go their way
    input: {source: web, value: '{"level":"error"}'}
    expect: {at: split.errors, fields: {severity_number: 17, attributes.x: [1]}}
"""


def problems(text: str, **options: Any) -> list[str]:
    with pytest.raises(SettingsError) as caught:
        compile_pipeline(text, "p.yaml", **options)
    return str(caught.value).split("\n")


def with_transforms(transforms: str, inputs: str = "x") -> str:
    return (
        "name: t\nsources: {s: {type: stream, stream: s}}\nsinks: {k: {type: console, inputs: [" + inputs + "]}}\n"
        "transforms:\n" + transforms
    )


# --- good files -------------------------------------------------------------------------------------------------


def test_a_good_file_becomes_a_plan_in_order() -> None:
    plan = compile_pipeline(GOOD, "shop.yaml")
    assert [node.name for node in plan.nodes()] == [
        *("web", "host", "parsed", "clean", "masked", "split", "sampled", "archive", "errors", "screen"),
    ]
    assert plan.warnings == ()
    assert (plan.checkpoint, plan.max_records_per_batch, plan.trigger_interval_ms) == ("./checkpoints/shop", 1000, 5000)
    assert plan.sinks[2].inputs == ("split.unmatched", "sampled")
    assert [node.name for node in plan.consumers("masked")] == ["split", "archive"]
    assert plan.mask_labels() == ("email", "order")
    assert [ref.id for ref in plan.key_refs()] == ["env:KEY"]
    archive = plan.sinks[0]
    assert isinstance(archive, ParquetSink)
    assert archive.target_file_bytes == 64 * 1024 * 1024
    parsed = plan.transforms[0]
    assert isinstance(parsed, ParseTransform)
    assert [rule.when_column for rule in parsed.rules] == [None, "when_parsed_1", None]
    assert parsed.rules[2].line == 17
    assert isinstance(parsed.rules[2].format, PatternFormat)
    assert plan.tests[0].expect[0].fields == (("severity_number", "17"), ("attributes.x", "[1]"))


SINKS = """
name: t
sources: {s: {type: stream, stream: s}}
transforms: {x: {type: parse, inputs: [s], rules: [{format: json}]}}
sinks:
  a: {type: parquet, inputs: [x], path: a}
  b: {type: stream, inputs: [x], stream: b, bootstrap: 'other:9092', attempts: 3}
  c: {type: console, inputs: [x], on_failure: retry}
"""


def test_what_a_failing_sink_does_is_the_users_choice() -> None:
    plan = compile_pipeline(SINKS, "p.yaml")
    assert [(sink.on_failure, sink.attempts) for sink in plan.sinks] == [
        *(("dead_letter", 8), ("dead_letter", 3), ("retry", 8)),
    ]
    # A plan that an earlier version pinned says nothing of it.
    older = msgspec.json.decode(plan.to_json())
    for sink in older["sinks"]:
        del sink["on_failure"], sink["attempts"]
    read = read_plan(msgspec.json.encode(older).decode())
    assert {(sink.on_failure, sink.attempts) for sink in read.sinks} == {("dead_letter", 8)}


def test_what_is_said_of_failures_must_be_what_will_be_done() -> None:
    text = SINKS.replace("on_failure: retry}", "on_failure: retry, attempts: 2}")
    text = text.replace("bootstrap: 'other:9092', attempts: 3", "on_failure: dead_letter").replace(
        "path: a", "path: a, attempts: 0"
    )
    attempts, direct, endless = problems(text)
    assert "sinks.a.attempts" in attempts
    assert "sinks.b.on_failure" in direct
    assert "always waits for a stream on its own log" in direct
    assert "no meaning with on_failure: retry" in endless


def test_a_plan_is_the_same_after_json_and_pickle() -> None:
    plan = compile_pipeline(GOOD, "shop.yaml")
    again = read_plan(plan.to_json())
    assert again == plan
    assert again.content_hash() == plan.content_hash()
    assert pickle.loads(pickle.dumps(plan)) == plan
    assert {node: node.name for node in plan.transforms}[again.transforms[0]] == "parsed"


def test_a_plan_of_another_format_is_refused() -> None:
    plan = msgspec.structs.replace(compile_pipeline(GOOD, "shop.yaml"), format=99)
    with pytest.raises(ValueError, match="format 99"):
        read_plan(plan.to_json())
    with pytest.raises(ValueError, match="missing required field"):
        read_plan('{"name":"shop"}')


@pytest.mark.parametrize("section", ["transforms", "sinks"])
@pytest.mark.parametrize("value", [1, None, [1], [{}], [{"type": []}], [{"type": "filter"}], [{"type": "console"}]])
def test_a_plan_with_a_broken_node_is_refused(section: str, value: Any) -> None:
    tree = msgspec.json.decode(compile_pipeline(GOOD, "shop.yaml").to_json())
    with pytest.raises(ValueError, match=r"Expected|missing required field|of type"):
        read_plan(msgspec.json.encode({**tree, section: value}).decode())


def test_the_content_hash_is_of_what_is_done_to_records() -> None:
    plan = compile_pipeline(GOOD, "shop.yaml")
    moved = compile_pipeline("# a comment\n" + GOOD, "other.yaml")
    assert moved.content_hash() == plan.content_hash()
    changed = compile_pipeline(GOOD.replace("rate: 10", "rate: 11"), "shop.yaml")
    assert changed.content_hash() != plan.content_hash()


def test_no_key_is_in_a_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEY", "a very secret key")
    assert "very secret" not in compile_pipeline(GOOD, "shop.yaml").to_json()


def test_expressions_have_their_columns_and_lines() -> None:
    asked: list[Expression] = []

    def check(found: Sequence[Expression]) -> list[str | None]:
        asked.extend(found)
        return [None] * len(found)

    compile_pipeline(GOOD, "shop.yaml", check)
    found = {expression.sql: expression for expression in asked}
    assert found["stream = 'dpkg'"].columns == WHEN_COLUMNS
    assert found["severity_number >= 5"].columns == EVENT_COLUMNS
    assert (found["severity_number >= 5"].line, found["stream = 'dpkg'"].line) == (21, 16)
    assert found["trace_id"].wants == "any"
    assert len(found) == 5  # the condition of one route is that of the sample's exclude


# --- bad files --------------------------------------------------------------------------------------------------


FULL_OF_PROBLEMS = """\
name: shop x
sources:
  web: {type: stream, strem: web}
  parsed: {type: stream, stream: a b}
transforms:
  parsed:
    type: parse
    inputs: [web, parsd]
    rules:
      - {format: jsn}
      - {format: pattern, pattern: '%{SYSLOGTIMESTMP:time}'}
      - {format: pattern, pattern: '%{INT:x} (?=x)', timezone: Europe/Berln, time_format: '%Q'}
      - {format: csv, map: {bdy: x}}
      - {format: json, columns: [a]}
  a: {type: filter, inputs: [b], condition: x}
  b: {type: filter, inputs: [a], condition: x}
  masked: {type: mask, inputs: [a], fields: [bdy], rules: [{kind: email, action: hash}, {kind: pattern, pattern: 'a*'}]}
  split: {type: rout, inputs: [masked], routes: {errors: "severity_number >= 17"}}
  s2: {type: route, inputs: [split], routes: {unmatched: "severity_number >= 17"}}
  s3: {type: sample, inputs: [s2], rate: 0.5}
sinks:
  archive: {type: parquet, inputs: [], path: ./archive}
  errors: {type: stream, inputs: [s2], stream: errors}
tests:
  - name: x
    input: {source: wb, value: x}
    expect: [{at: split.erors, fields: {bdy: a}}]
"""


def test_all_problems_are_reported_at_once_with_their_lines() -> None:
    assert problems(FULL_OF_PROBLEMS) == [
        "p.yaml:1: name: 'shop x' should be letters, digits, '.', '_' and '-': streams are named after it",
        "p.yaml:3: sources.web.strem: unknown key 'strem' (did you mean 'stream'?)",
        (
            "p.yaml:4: sources.parsed: 'a b' is not a valid name for a stream (letters, digits, '.', '_', '-'; at most "
            "249)"
        ),
        "p.yaml:6: transforms.parsed: 'parsed' is already used by one of the sources",
        (
            "p.yaml:8: transforms.parsed.inputs: unknown input 'parsd' "
            "(known here: a, b, masked, split.errors, split.unmatched, s2.unmatched)"
        ),
        "p.yaml:10: transforms.parsed.rules[0].format: unknown format 'jsn' (did you mean 'json'?)",
        (
            "p.yaml:11: transforms.parsed.rules[1].pattern: pattern unknown name %{SYSLOGTIMESTMP} "
            "(did you mean %{SYSLOGTIMESTAMP}?)"
        ),
        "p.yaml:12: transforms.parsed.rules[2].time_format: time format '%Q' has the unknown directive %Q",
        (
            "p.yaml:12: transforms.parsed.rules[2].timezone: unknown timezone 'Europe/Berln' "
            "(did you mean 'Europe/Berlin'?)"
        ),
        (
            "p.yaml:12: transforms.parsed.rules[2].pattern: pattern is not an RE2 expression: "
            "RE2 does not support look-around and atomic groups"
        ),
        "p.yaml:13: transforms.parsed.rules[3].map.bdy: unknown field 'bdy' (did you mean 'body'?)",
        "p.yaml:13: transforms.parsed.rules[3].columns: format csv needs the names of its columns, without duplicates",
        "p.yaml:14: transforms.parsed.rules[4].columns: goes with format csv, not with json",
        "p.yaml:15: transforms.a.inputs: is its own input: a -> b -> a",
        "p.yaml:17: transforms.masked.fields[0]: unknown field 'bdy' (did you mean 'body'?)",
        "p.yaml:17: transforms.masked: action hash needs a key: name it with key_env or key_file",
        "p.yaml:17: transforms.masked.rules[1].pattern: pattern matches the empty text, so it would match everywhere",
        "p.yaml:18: transforms.split.type: unknown type 'rout' (did you mean 'route'?)",
        (
            "p.yaml:19: transforms.s2.routes.unmatched: 'unmatched' is the output for events without a matching route; "
            "choose another name"
        ),
        "p.yaml:19: transforms.s2.inputs: 'split' is a route: name one of its outputs (split.errors, split.unmatched)",
        "p.yaml:20: transforms.s3.rate: should be greater than or equal to 1, got 0.5",
        "p.yaml:20: transforms.s3.inputs: 's2' is a route: name one of its outputs (s2.unmatched)",
        "p.yaml:22: sinks.archive: has no inputs",
        "p.yaml:23: sinks.errors.inputs: 's2' is a route: name one of its outputs (s2.unmatched)",
        "p.yaml:26: tests[0].input.source: unknown source 'wb' (did you mean 'web'?)",
        "p.yaml:27: tests[0].expect[0].at: unknown place 'split.erors' (did you mean 'split.errors'?)",
        "p.yaml:27: tests[0].expect[0].fields.bdy: unknown field 'bdy' (did you mean 'body'?)",
    ]


PLACES = """\
name: shop
sources: {web: {type: stream, stream: web}}
transforms:
  parsed: {type: parse, inputs: [web], rules: [{format: json}]}
  split: {type: route, inputs: [parsed], routes: {a: "service = 'a'", b: "service = 'b'"}}
  pairs: {type: join, left: split.a, right: split.b, into: other}
  broken: {type: route, inputs: [parsed], routes: {x: 5}}
sinks: {out: {type: console, inputs: [pairs, parsed]}}
tests:
  - name: x
    input: {source: web, value: x}
    expect:
      - {at: "dropped:pairs.joined", count: 2}
      - {at: "dropped:split.unmatched"}
      - {at: "dropped:broken.x"}
      - {at: "broken.x"}
      - {at: "dropped:pairs"}
      - {at: "dropped:split"}
      - {at: "dropped:pairs.joined", fields: {body: a}}
"""


def test_a_test_names_what_drops_events_and_nothing_else() -> None:
    assert problems(PLACES)[1:] == [
        "p.yaml:17: tests[0].expect[4].at: unknown place 'dropped:pairs' (did you mean 'dropped:pairs.left'?)",
        "p.yaml:18: tests[0].expect[5].at: unknown place 'dropped:split' (did you mean 'dead:split'?)",
        (
            "p.yaml:19: tests[0].expect[6].at: events are held before they are dropped there, so a test cannot see "
            "them: expect only a count"
        ),
    ]


def test_what_the_checker_says_joins_the_listing() -> None:
    def check(found: Sequence[Expression]) -> list[str | None]:
        return ["no such column: sev" if "sev " in expression.sql else None for expression in found]

    text = GOOD.replace("condition: severity_number >= 5", "condition: sev >= 5").replace("rate: 10", "rat: 10")
    assert problems(text, check=check) == [
        "p.yaml:9: transforms.sampled.rat: unknown key 'rat' (did you mean 'rate'?)",
        "p.yaml:21: transforms.clean.condition: no such column: sev",
    ]


@pytest.mark.parametrize(
    ("transforms", "message"),
    [
        (
            "  x: {type: filter, inputs: [s], condition: a}",
            "reads 's', whose records are not parsed; put a parse between",
        ),
        ("  x: {type: filter, inputs: [x], condition: a}", "is its own input: x -> x"),
        (
            "  x: {inputs: [s]}",
            "join, limit, mask, parse, patterns, reshape, route, sample, tail_sample)",
        ),
        ("  x: 7", "should be a group of keys and values"),
        ("  x: {type: parse, inputs: [s, s], rules: [{format: json}]}", "names 's' twice"),
        ("  x: {type: parse, inputs: [s], rules: []}", "is empty; give it at least one"),
        ("  x: {type: parse, inputs: [s], rules: [{format: json, source: t}]}", "source 't' is not an input of this"),
        ("  x: {type: parse, inputs: [s], rules: [{format: pattern}]}", "format pattern needs it"),
        ("  x: {type: parse, inputs: [s], rules: [{format: pattern, pattern: 'a'}]}", "names no field"),
        ("  x: {type: parse, inputs: [s], rules: [{format: csv, columns: [a], delimiter: ab}]}", "one character"),
        ("  x: {type: parse, inputs: [s], rules: [{format: json, severity: {texts: {a: 99}}}]}", "99 is not a severi"),
        ("  x: {type: parse, inputs: [s], rules: [{format: json, defaults: {body: a}}]}", "unknown field 'body'"),
        ("  x: {type: parse, inputs: [s], rules: [{format: json, time_format: '%H:%M'}]}", "has no date"),
        ("  dead: {type: parse, inputs: [s], rules: [{format: json}]}", "'dead' is a reserved name"),
        ("  'a b': {type: parse, inputs: [s], rules: [{format: json}]}", "'a b' is not a valid name"),
    ],
)
def test_one_problem(transforms: str, message: str) -> None:
    assert any(message in line for line in problems(with_transforms(transforms)))


MASK_PROBLEMS = [
    ("{kind: email, keep: 3}", "keep: goes with action keep_last"),
    ("{kind: email, action: hash, replacement: x}", "replacement: goes with action redact"),
    ("{kind: pattern}", "kind pattern and key 'pattern' go together"),
    ("{kind: email, pattern: x}", "kind pattern and key 'pattern' go together"),
    ("{kind: pattern, pattern: '(a)(b)'}", "pattern has several groups"),
    ("{kind: pattern, pattern: '[a-z]+'}", "matches its own replacement"),
    ("{kind: ipv4, replacement: 'now 0.0.0.0'}", "matches its own replacement"),
    ("{kind: email, name: 'a b'}", "should be letters, digits and '_'"),
    ("{kind: emial}", "kind"),
]


@pytest.mark.parametrize(("rule", "message"), MASK_PROBLEMS)
def test_one_problem_of_a_mask(rule: str, message: str) -> None:
    text = with_transforms(
        "  p: {type: parse, inputs: [s], rules: [{format: json}]}\n"
        f"  x: {{type: mask, inputs: [p], key_env: K, rules: [{rule}]}}"
    )
    assert any(message in line for line in problems(text))


def test_a_broken_part_is_told_once_and_not_again_by_its_readers() -> None:
    text = with_transforms("  p: {type: parse, inputs: [s], rules: [{format: json}], x: 1}\n"
                           "  x: {type: filter, inputs: [p], condition: 'true'}")  # fmt: skip
    assert problems(text) == [
        (
            "p.yaml:5: transforms.p.x: unknown key 'x' "
            "(known here: blank_lines, drop, from_record, inputs, otherwise, rules, type)"
        )
    ]


def test_an_output_without_a_reader_is_a_warning() -> None:
    text = with_transforms(
        "  p: {type: parse, inputs: [s], rules: [{format: json}]}\n"
        "  x: {type: route, inputs: [p], routes: {a: 'true'}}\n",
        inputs="x.a",
    ).replace("sources: {s:", "sources: {u: {type: stream, stream: u}, s:")
    assert [(warning.line, warning.message) for warning in compile_pipeline(text, "p").warnings] == [
        (2, "u: nothing reads it"),
        (6, "x.unmatched: nothing reads this output; its events are dropped and counted as dropped by 'x.unmatched'"),
    ]


def test_a_source_no_rule_applies_to_is_a_warning() -> None:
    text = with_transforms("  x: {type: parse, inputs: [s, u], rules: [{format: json, source: s}]}").replace(
        "sources: {s:", "sources: {u: {type: stream, stream: u}, s:"
    )
    assert [warning.message for warning in compile_pipeline(text, "p").warnings] == [
        "no rule applies to records of 'u'"
    ]


def test_samples_in_a_row_know_of_each_other() -> None:
    chain = (
        "  p: {type: parse, inputs: [s], rules: [{format: json}]}\n"
        "  a: {type: sample, inputs: [p], rate: 10}\n"
        "  b: {type: sample, inputs: [a], rate: 10}\n"
        "  x: {type: sample, inputs: [b], ratio: 0.25, key: service}\n"
    )
    plan = compile_pipeline(with_transforms(chain), "p")
    samples = [node for node in plan.transforms if isinstance(node, SampleTransform)]
    assert [(node.rate, node.follows_weight) for node in samples] == [(10, False), (10, True), (4, False)]
    mixed = chain.replace("  x: {type: sample, inputs: [b], ratio: 0.25, key: service}\n", "")
    mixed += "  c: {type: sample, inputs: [b], rate: 2, key: service}\n  x: {type: sample, inputs: [c], rate: 2}\n"
    assert any("use one key for all" in line for line in problems(with_transforms(mixed)))


def test_masks_compile_to_expressions_with_the_secret_named() -> None:
    plan = compile_pipeline(GOOD, "shop.yaml")
    (node,) = (node for node in plan.transforms if isinstance(node, MaskTransform))
    assert node.rules[1].pattern == "order (?P<f0>o-[0-9a-f]{8})"


@settings(max_examples=60, deadline=None)
@given(
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers()
        | st.text(max_size=5)
        | st.sampled_from(["s", "parse", "stream", "json"]),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["type", "inputs", "rules", "routes", "format", "x", "stream"]), inner, max_size=4
            )
        ),
        max_leaves=12,
    ),
    st.sampled_from(["sources", "transforms", "sinks", "tests", "patterns", "batch", "name"]),
)
def test_any_document_compiles_or_has_its_problems_told(value: Any, section: str) -> None:
    document = {"name": "t", "sources": {"s": {"type": "stream", "stream": "s"}}, section: value}
    with suppress(SettingsError):
        assert compile_pipeline(msgspec.json.encode(document).decode(), "p").sinks


# --- patterns ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", LIBRARY)
def test_every_name_of_the_library_is_re2(name: str) -> None:
    """`check_re2` raises where RE2 does not take the expression."""
    check_re2(expand(f"%{{{name}}}", {}).expression)


@pytest.mark.parametrize("name", LAYOUTS)
def test_every_ready_made_format_compiles(name: str) -> None:
    for pattern in LAYOUTS[name].patterns:
        assert compile_line(pattern, {}).fields
    for form in LAYOUTS[name].time_formats:
        compile_time_format(form)


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("%{A:x}", "contains itself"),
        ("%{WORD:x:date}", "unknown type 'date'"),
        ("%{WORD:x", "cannot be read"),
        ("(?P<x>a", "missing"),
        ("%{NOPE:x}", "unknown name %{NOPE}"),
    ],
)
def test_patterns_that_are_none(pattern: str, message: str) -> None:
    with pytest.raises(PatternError, match=message):
        compile_line(pattern, {"A": "%{B}", "B": "%{A}"})


def test_the_examples_of_the_documentation_compile() -> None:
    page = Path(__file__).parents[2] / "docs" / "pipeline.md"
    whole = [block.text for block in blocks_of(page) if block.language == "yaml" and block.text.startswith("name:")]
    assert whole
    for block in whole:
        compile_pipeline(block, "pipeline.md")
