"""`pipeline test` without a session gives what Spark gives: the same rows at the same places, the same verdicts."""

from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from tests.pipeline.support import needs_java

from logboom.pipeline.config.compile import compile_pipeline
from logboom.pipeline.execute import local
from logboom.pipeline.execute.examples import collecting_here, run_examples
from logboom.pipeline.plan.nodes import Plan
from logboom.pipeline.route.rows import AT
from logboom.pipeline.spark.catalyst import open_catalyst

pytestmark = [pytest.mark.spark, needs_java]

KEYS = {"env:KEY": b"0123456789abcdef"}
PLAIN = """
name: plain
sources: {web: {type: stream, stream: web}}
transforms:
  parsed: {type: parse, inputs: [web], rules: [{format: json}]}
  split: {type: route, inputs: [parsed], routes: {errors: severity_number >= 17, shop: service = 'shop'}}
sinks: {all: {type: console, inputs: ['split.*']}}
tests:
  - name: an error of the shop goes two ways
    input: {source: web, value: '{"level": "error", "service": "shop"}'}
    expect:
      - {at: split.errors, condition: service LIKE 'sh%', count: 1}
      - {at: split.shop}
      - {at: split.unmatched, count: 0}
"""
RICH = """
name: rich
sources: {web: {type: stream, stream: web}, raw: {type: stream, stream: raw}}
transforms:
  parsed:
    type: parse
    inputs: [web, raw]
    rules:
      - {when: "length(line) > 60 AND element_at(transform(headers, h -> h.key), 1) = 'kind'", format: text, name: long}
      - {when: "source = 'web' AND timestamp > '2025-01-01'", format: json}
      - {source: raw, format: logfmt}
  clean: {type: filter, inputs: [parsed], condition: "NOT body RLIKE '^(a|b)*$' OR body IS NULL"}
  masked: {type: mask, inputs: [clean], key_env: KEY, rules: [{kind: email, action: hash}]}
  split:
    type: route
    inputs: [masked]
    routes:
      numbers: "variant_get(attributes, '$.n', 'int') > 3"
      failing: "CAST(variant_get(attributes, '$.text', 'string') AS INT) = 7"
      early: "time < '2026-01-02' AND upper(service) = 'SHOP'"
  one:
    type: sample
    inputs: [split.unmatched]
    rate: 2
    key: "concat(service, 'x')"
    exclude: "severity_number >= 17 OR variant_get(attributes, '$.odd', 'int') = 1"
  two: {type: sample, inputs: [one], rate: 3, key: "concat(service, 'x')"}
sinks: {all: {type: console, inputs: ['split.*', two]}}
tests:
  - name: many
    input:
VALUES
    expect:
      - {at: all, condition: "variant_get(attributes, '$.n', 'int') = 5 AND weight = 1"}
      - {at: split.numbers, fields: {attributes.n: 5, severity_number: 17}, count: 1}
      - {at: dead, condition: "hex(value) LIKE '7B%' AND dead_reason IS NOT NULL"}
      - {at: dropped:clean, condition: "length(body) = 4"}
"""
VALUES = [
    '{"level": "error", "service": "shop", "n": 5, "msg": "to a@example.org"}',
    '{"service": "shop", "n": 2.5, "text": "7"}',
    '{"service": "Shop", "text": {"a": [1, null]}, "msg": "abab"}',
    '{"cut": ',
    '{"service": "s1", "odd": "no number"}',
    *(f'{{"service": "s{number}", "msg": "m"}}' for number in range(12)),
]
"""What becomes of them depends on numbers, texts, nulls and nested values; for one of them a sample's SQL raises."""


def _plan(text: str) -> Plan:
    inputs = [f"      - {{source: web, value: '{value}', timestamp: '2026-01-01T10:00:00Z'}}\n" for value in VALUES]
    inputs.append("      - {source: raw, value: 'a=1 msg=\"' , headers: {kind: x}}\n")
    inputs.append(f"      - {{source: raw, value: '{'long ' * 20}', headers: {{kind: x}}, key: k}}\n")
    inputs.append("      - {source: raw, value: null}\n")
    return compile_pipeline(text.replace("VALUES\n", "".join(inputs)), "p.yaml")


def _comparable(rows: list[dict[str, Any]]) -> list[tuple[int, int, str]]:
    return sorted((int(row["offset"]), int(row[AT]), repr(_plain(row))) for row in rows)


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    plain = {}
    for name in sorted(row):
        value = row[name]
        if hasattr(value, "isoformat"):
            value = value.replace(tzinfo=None)
        elif isinstance(value, list):  # Spark gives rows, Arrow gives groups
            value = [tuple(pair.values()) if isinstance(pair, dict) else tuple(pair) for pair in value]
        plain[name] = bytes(value) if isinstance(value, bytearray) else value
    return plain


def test_both_ways_give_the_same_rows_and_verdicts(spark: Any) -> None:
    from logboom.pipeline.execute.on_spark import collect_on

    plan = _plan(RICH)
    seen: list[tuple[Any, Any]] = []

    with collecting_here() as collect_here:

        def both(*arguments: Any) -> Any:
            here, there = collect_here(*arguments), collect_on(spark)(*arguments)
            seen.append((here, there))
            return here

        assert run_examples(plan, KEYS, both) == []
    ((here, there),) = seen
    assert _comparable(here.rows) == _comparable(list(there.rows))
    assert len(here.rows) > len(VALUES)
    by_row = sorted(zip(map(repr, map(_plain, here.rows)), *here.met, strict=True))
    assert by_row == sorted(zip(map(repr, map(_plain, there.rows)), *there.met, strict=True))


HELD = """
name: held
sources: {web: {type: stream, stream: web}}
transforms:
  parsed: {type: parse, inputs: [web], rules: [{format: json}]}
  split: {type: route, inputs: [parsed], routes: {a: "attributes.k = 'a'", b: "attributes.k = 'b'"}}
  pairs: {type: join, left: split.a, right: split.b, on: attributes.id, into: other}
  traces: {type: tail_sample, inputs: [parsed], keep: {errors: "body = 'gone'"}}
sinks: {out: {type: stream, inputs: [pairs, traces], stream: out}, same: {type: stream, inputs: [pairs], stream: same}}
tests:
  - name: what was held is counted where it is dropped
    input:
      - {source: web, value: '{"k": "a", "id": 1}'}
      - {source: web, value: '{"k": "b", "id": 1}'}
      - {source: web, value: '{"k": "a", "id": 2}'}
      - {source: web, value: '{"trace_id": "00000000000000000000000000000001"}'}
    expect:
      - {at: pairs, count: 1}
      - {at: "dropped:pairs.joined", count: 2}
      - {at: "dropped:pairs.left", count: 1, fields: {attributes.id: 2}}
      - {at: "dropped:traces", count: 4}
      - {at: "dropped:split.unmatched", count: 1}
      - {at: dropped, count: 8}
"""


@pytest.mark.parametrize("in_session", [False, True])
def test_what_was_held_is_counted_where_it_is_dropped(spark: Any, in_session: bool) -> None:
    from logboom.pipeline.execute.on_spark import collect_on

    plan = compile_pipeline(HELD, "p.yaml")
    assert run_examples(plan, {}, collect_on(spark) if in_session else None) == []
    wrong = compile_pipeline(HELD.replace('pairs.joined", count: 2', 'pairs.joined", count: 3'), "p.yaml")
    (failure,) = run_examples(wrong, {}, collect_on(spark) if in_session else None)
    assert failure.message.startswith("expected 3 records at dropped:pairs.joined, found 2")


def test_a_test_of_which_no_record_is_left_is_one_as_others() -> None:
    """All that came in was held and dropped."""
    text = """
name: held
sources: {web: {type: stream, stream: web}}
transforms:
  parsed: {type: parse, inputs: [web], rules: [{format: json}]}
  traces: {type: tail_sample, inputs: [parsed], keep: {errors: "body = 'gone'"}}
sinks: {out: {type: console, inputs: [traces]}}
tests:
  - name: nothing but a number
    input: {source: web, value: '{"trace_id": "00000000000000000000000000000001"}'}
    expect: [{at: "dropped:traces", count: 1}, {at: out, count: 0}]
"""
    assert run_examples(compile_pipeline(text, "p.yaml"), {}) == []


def test_an_event_that_several_readers_get_is_at_its_output_once() -> None:
    text = PLAIN.replace("sinks: {", "sinks: {one: {type: stream, inputs: [parsed], stream: one}, ")
    text = text.replace("    expect:\n", "    expect:\n      - {at: parsed, count: 1}\n", 1)
    assert run_examples(_plan(text), KEYS) == []


def test_simple_conditions_start_no_jvm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "open_catalyst", lambda: pytest.fail("a JVM was started"))
    assert run_examples(_plan(PLAIN), KEYS) == []
    wrong = _plan(PLAIN.replace("LIKE 'sh%'", "LIKE 'shop %'"))
    (failure,) = run_examples(wrong, KEYS)
    assert "expected 1 records at split.errors, found 0" in failure.message


def test_the_demo_passes_its_own_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each with a state of its own, all with one JVM."""
    opened = Mock(wraps=open_catalyst)
    monkeypatch.setattr(local, "open_catalyst", opened)
    file = Path(__file__).parents[2] / "examples" / "demo" / "pipeline.yaml"
    plan = compile_pipeline(file.read_text(), str(file))
    assert run_examples(plan, {"env:LOGBOOM_MASK_KEY": b"0123456789abcdef"}) == []
    opened.assert_called_once()


def test_a_record_of_a_later_year_than_states_number_passes_through_one() -> None:
    text = """
name: shop
sources: {web: {type: stream, stream: web}}
transforms:
  parsed: {type: parse, inputs: [web], rules: [{format: json}]}
  whole: {type: tail_sample, inputs: [parsed], keep: {all: "service = 'a'"}}
sinks: {out: {type: console, inputs: [whole]}}
tests:
  - name: from a clock that is wrong
    input: {source: web, value: '{"service": "a"}', timestamp: '9999-12-31T23:59:59Z'}
    expect: {at: whole, count: 1}
"""
    assert run_examples(compile_pipeline(text, "p.yaml"), {}) == []
