"""`check` tells all that is wrong with a file at once, each fault with its line: none hides another one."""

import pytest

from logboom.base.settings import SettingsError
from logboom.pipeline.config.compile import compile_pipeline


def problems(text: str) -> list[str]:
    with pytest.raises(SettingsError) as caught:
        compile_pipeline(text, "p.yaml")
    return str(caught.value).split("\n")


def test_a_wrong_key_hides_no_fault_of_the_others() -> None:
    """Each fault once, and none that only follows from another: what stands in for a wrong value is not told."""
    text = """name: shop
sources: {web: {type: stream, stream: web}}
transforms:
  parsed:
    type: parse
    inputs: [web]
    otherwise: nothing
    drop: {"no name": "line = 'x'"}
    rules:
      - format: json
        defaults: 5
        when: 7
        time_format: "%Q"
        severity: {texts: {a: NOPE}}
  one: {type: sample, inputs: [parsed], rate: -1, key: "weight", exclude: "1 +"}
  two: {type: reshape, inputs: [parsed], remove: 5, set: {nope: "x"}}
  three: {type: filter, inputs: [parsed], conditio: "true", enabled: 7}
sinks:
  a: {type: webhook, inputs: [one], token_header: "bad header", url: "http://x:y", encoding: jso}
  b: {type: loki, inputs: [two], url: 5, labels: {"1a": "{x"}}
"""
    with pytest.raises(SettingsError) as caught:
        compile_pipeline(text, "p.yaml", lambda asked: [f"asked {expression.sql}" for expression in asked])
    assert [(problem.line, problem.where, problem.message.split(" (")[0]) for problem in caught.value.problems] == [
        (7, "transforms.parsed.otherwise", "should be 'dead' or 'keep', got 'nothing'"),
        (8, "transforms.parsed.drop.no name", "'no name' is not a valid name"),
        (8, "transforms.parsed.drop.no name", "asked line = 'x'"),
        (11, "transforms.parsed.rules[0].defaults", "should be a group of keys and values, got 5"),
        (12, "transforms.parsed.rules[0].when", "should be text"),
        (13, "transforms.parsed.rules[0].time_format", "time format '%Q' has the unknown directive %Q"),
        (14, "transforms.parsed.rules[0].severity.texts.a", "'NOPE' is not a severity"),
        (15, "transforms.one.rate", "should be greater than or equal to 1, got -1"),
        (15, "transforms.one.key", "asked weight"),
        (15, "transforms.one.exclude", "asked 1 +"),
        (16, "transforms.two.remove", "should be a list, got 5"),
        (16, "transforms.two.set.nope", "unknown field 'nope'"),
        (16, "transforms.two.set.nope", "asked x"),
        (17, "transforms.three", "key 'condition' is missing"),
        (17, "transforms.three.enabled", "should be true or false, got 7"),
        (17, "transforms.three.conditio", "unknown key 'conditio'"),
        (19, "sinks.a.encoding", "should be 'json_array', 'ndjson' or 'json', got 'jso'"),
        (19, "sinks.a.token_header", "goes with token_env or token_file"),
        (19, "sinks.a.url", "'http://x:y' is not an address such as https://host:port/path"),
        (20, "sinks.b.url", "should be text"),
        (20, "sinks.b.labels", "'1a' should be letters, digits and '_', and not begin with a digit"),
        (20, "sinks.b.labels", "'{x' has an unpaired brace"),
    ]


def test_a_fault_of_an_item_does_not_hide_those_of_the_others() -> None:
    text = """name: shop
sources: {web: {type: stream, stream: web}}
transforms:
  parsed: {type: parse, inputs: [web], rules: [{format: json}]}
  masked:
    type: mask
    inputs: [parsed]
    rules:
      - {kind: emial}
      - {kind: pattern, pattern: '(a'}
      - {kind: card, keep: 99}
      - {kind: email, keep: 3}
  load:
    type: aggregate
    inputs: [masked]
    window: 1m
    metrics:
      one: {type: cuont}
      two: {type: histogram, of: attributes.ms}
      three: {type: count, off: body}
sinks:
  out: {type: console, inputs: [load]}
"""
    kinds, types = "'email', 'ipv4', 'ipv6', 'card', 'token' or 'pattern'", "'histogram', 'quantiles' or 'unique'"
    assert problems(text) == [
        f"p.yaml:9: transforms.masked.rules[0].kind: should be {kinds}, got 'emial'",
        "p.yaml:10: transforms.masked.rules[1].pattern: pattern is not an RE2 expression: missing ): (a",
        "p.yaml:11: transforms.masked.rules[2].keep: should be less than or equal to 8, got 99",
        "p.yaml:12: transforms.masked.rules[3].keep: goes with action keep_last, not with redact",
        f"p.yaml:18: transforms.load.metrics.one.type: should be 'count', 'sum', 'min', 'max', {types}, got 'cuont'",
        "p.yaml:19: transforms.load.metrics.two: needs bounds",
        "p.yaml:20: transforms.load.metrics.three.off: unknown key 'off' (did you mean 'of'?)",
    ]


def test_a_fault_of_a_node_does_not_hide_that_its_inputs_do_not_exist() -> None:
    text = """name: shop
sources: {web: {type: stream, stream: web}}
transforms:
  parsed: {type: parse, inputs: [web], rules: [{format: json}]}
  split: {type: route, inputs: [parsed], routes: {errors: severity_number >= 17}}
  both: {type: join, left: splt.errors, right: [parsed, none], on: trace_id}
  few: {type: sample, inputs: [both, spilt.*], rate: 0}
  odd: {type: sampl, inputs: [split], rate: 2}
  kept: {type: filter, inputs: 7}
sinks:
  a: {type: file, inputs: [few, split.error, kept], pth: ./a}
"""
    known = "known here: web, parsed, split.errors, split.unmatched, odd"
    assert problems(text) == [
        "p.yaml:6: transforms.both: key 'into' is missing",
        "p.yaml:6: transforms.both.left: unknown input 'splt.errors' (did you mean 'split.errors'?)",
        f"p.yaml:6: transforms.both.right: unknown input 'none' ({known})",
        "p.yaml:7: transforms.few.rate: should be greater than or equal to 1, got 0",
        f"p.yaml:7: transforms.few.inputs: unknown input 'spilt.*' ({known})",
        "p.yaml:8: transforms.odd.type: unknown type 'sampl' (did you mean 'sample'?)",
        "p.yaml:8: transforms.odd.inputs: 'split' is a route: name one of its outputs (split.errors, split.unmatched)",
        "p.yaml:9: transforms.kept.inputs: should be a list, got 7",
        "p.yaml:9: transforms.kept: key 'condition' is missing",
        "p.yaml:11: sinks.a: key 'path' is missing",
        "p.yaml:11: sinks.a.pth: unknown key 'pth' (did you mean 'path'?)",
        "p.yaml:11: sinks.a.inputs: unknown input 'split.error' (did you mean 'split.errors'?)",
    ]
