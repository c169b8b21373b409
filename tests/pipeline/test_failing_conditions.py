"""A condition without an answer, and a value that could not be computed: what fails inside is no silent "does not
match", and no attribute that is gone, in a session and without one."""

from typing import Any

import pytest

from logboom.pipeline.checkpoint.ledger import ledger_of
from logboom.pipeline.config.compile import compile_pipeline
from logboom.pipeline.execute.examples import run_examples
from logboom.pipeline.execute.flow import Flow, guarded_condition
from logboom.pipeline.execute.on_spark import collect_on
from logboom.pipeline.execute.stages import Counts, count, counts_report
from logboom.pipeline.plan.layout import Layout
from logboom.pipeline.plan.nodes import RAW_COLUMNS
from logboom.pipeline.plan.outcomes import FAILED, FALSE, TRUE
from logboom.pipeline.route.rows import Rows

PIPELINE = r"""
name: shop
sources: {web: {type: stream, stream: web}}
transforms:
  parsed:
    type: parse
    inputs: [web]
    drop: {early: "CAST(line AS INT) = 7"}
    rules:
      - {format: text, name: third, when: "element_at(split(line, ','), 3) = 'x'"}
      - {format: json}
  kept: {type: filter, inputs: [parsed], condition: "1 / attributes.n >= 0"}
  split:
    type: route
    inputs: [kept]
    routes: {slow: "CAST(attributes.ms AS INT) > 100", big: "attributes.big = 'yes'"}
  some: {type: sample, inputs: [split.unmatched], rate: 1000000000, exclude: "CAST(attributes.keep AS INT) = 1"}
sinks: {out: {type: console, inputs: [some, split.slow]}, large: {type: console, inputs: [split.big]}}
tests:
  - name: a record that no answer drops goes on
    input: [{source: web, value: '7'}, {source: web, value: 'a,b,x'}]
    expect: [{at: "dropped:parsed.early", count: 1}, {at: "dead:kept", count: 0}, {at: "dropped:kept", count: 1}]
  - name: a division by zero is a dead letter of the filter, no number is not
    input: [{source: web, value: '{"n": 0}'}, {source: web, value: '{"n": null}'}]
    expect: [{at: "dead:kept", count: 1}, {at: "dropped:kept", count: 1}]
  - name: a cast that fails is a dead letter, whatever other routes take it, and does not make it unmatched
    input:
      - {source: web, value: '{"n": 1, "ms": "soon", "big": "yes"}'}
      - {source: web, value: '{"n": 1, "ms": "soon"}'}
      - {source: web, value: '{"n": 1, "ms": "101"}'}
      - {source: web, value: '{"n": 1}'}
    expect:
      - {at: "dead:split", count: 2}
      - {at: large, count: 1}
      - {at: split.slow, count: 1}
      - {at: "dropped:some", count: 1}
  - name: what may be excluded from a sample is not dropped by it
    input:
      - {source: web, value: '{"n": 1, "keep": "perhaps"}'}
      - {source: web, value: '{"n": 1, "keep": "1"}'}
      - {source: web, value: '{"n": 1, "keep": "2"}'}
    expect: [{at: "dead:some", count: 1}, {at: out, count: 1}, {at: "dropped:some", count: 1}]
"""

SHAPED = r"""
name: shop
sources: {web: {type: stream, stream: web}}
transforms:
  parsed: {type: parse, inputs: [web], rules: [{format: json}]}
  shaped:
    type: reshape
    inputs: [parsed]
    set:
      attributes.n: "CAST(attributes.n AS INT)"
      attributes.part: "1000 / attributes.n"
      attributes.kind: "coalesce(try_cast(attributes.kind AS INT), -1)"
      attributes.none: "nullif(attributes.none, 'no')"
      trace_id: attributes.trace
    split: {of: "split(parse_json(attributes.list):x::string, ',')", into: attributes.x}
  sampled:
    type: sample
    inputs: [shaped]
    rate: 1.0000001
    key: "CAST(attributes.user AS INT) BETWEEN 1 AND 5"
  halved: {type: sample, inputs: [sampled], rate: 1.0000001, key: "parse_json(attributes.user):id::string"}
sinks: {out: {type: console, inputs: [halved]}}
tests:
  - name: an attribute whose expression fails makes a dead letter, whole and as it came
    input: {source: web, value: '{"n": "many", "kind": "x", "list": "{}"}'}
    expect:
      - {at: "dead:shaped", fields: {attributes.n: many, attributes.kind: x}, count: 1}
      - {at: "dead:shaped", condition: "dead_reason LIKE 'attributes.n cannot be set%'"}
  - name: null without a failure removes it, and what an expression makes of a failure is set
    input: {source: web, value: '{"n": null, "kind": "x", "none": "no", "list": "{}"}'}
    expect: {at: halved, fields: {attributes.kind: -1}, condition: "attributes.n IS NULL AND attributes.none IS NULL"}
  - name: a division by zero, a value that the field does not hold, and a list that cannot be computed
    input:
      - {source: web, value: '{"n": 0, "list": "{}"}'}
      - {source: web, value: '{"n": 1, "list": "{}", "trace": "x"}'}
      - {source: web, value: '{"n": 1, "list": "{"}'}
    expect: {at: "dead:shaped", count: 3}
  - name: an event whose key fails is sampled by its id
    input:
      - {source: web, value: '{"n": 1, "list": "{\"x\": \"a,b\"}", "user": "ann"}'}
      - {source: web, value: '{"n": 1, "list": "{}", "user": "7"}'}
    expect: [{at: halved, count: 3}, {at: dead, count: 0}]
"""

VALUES = [
    "7",
    "a,b,x",
    "a",
    '{"n": 0}',
    '{"n": 1, "ms": "soon", "big": "yes"}',
    '{"n": 1, "keep": "perhaps"}',
    '{"n": 1}',
]


@pytest.mark.parametrize("in_session", [False, True])
@pytest.mark.parametrize("pipeline", [PIPELINE, SHAPED], ids=["conditions", "values"])
def test_what_has_no_answer_is_dead_or_goes_on(spark: Any, in_session: bool, pipeline: str) -> None:
    collect = collect_on(spark) if in_session else None
    assert run_examples(compile_pipeline(pipeline, "shop.yaml"), {}, collect) == []


def _failed(spark: Any, pipeline: str, values: list[str]) -> dict[str, int]:
    """The counts of a batch of these values, which has to balance."""
    layout = Layout(compile_pipeline(pipeline, "shop.yaml"))
    rows: list[Any] = [("web", "web", 0, number, None, None, value.encode(), []) for number, value in enumerate(values)]
    raw = spark.createDataFrame(rows, ", ".join(f"`{name}` {kind}" for name, kind in RAW_COLUMNS))
    ledger = ledger_of(layout, Flow(spark, layout, {}).sent(raw, _Counting))
    ledger.check()
    return ledger.failed


def test_failures_of_values_are_counted_by_stage_and_target(spark: Any) -> None:
    given = [value.value or "" for test in compile_pipeline(SHAPED, "shop.yaml").tests for value in test.inputs]
    assert _failed(spark, SHAPED, given) == {
        "shaped (attributes.n)": 1,
        "shaped (attributes.part)": 1,
        "shaped (attributes.kind)": 0,
        "shaped (attributes.none)": 0,
        "shaped (trace_id)": 1,
        "shaped (split)": 1,
        "sampled (key)": 2,
        "halved (key)": 2,
    }


ROUTED = """
name: shop
sources: {web: {type: stream, stream: web}}
transforms:
  parsed: {type: parse, inputs: [web], rules: [{format: json}]}
  split:
    type: route
    inputs: [parsed]
    routes:
      slow: "CAST(attributes.ms AS INT) > 100"
      good: "attributes.good = 'yes'"
      large: "CAST(attributes.kb AS INT) > 9"
sinks: {out: {type: console, inputs: ["split.*"]}}
"""


def test_each_condition_of_a_route_that_fails_is_counted(spark: Any) -> None:
    values = [
        '{"ms": "x", "kb": "y"}',
        '{"ms": "x", "kb": "y", "good": "yes"}',
        '{"ms": "1", "kb": "y"}',
        '{"ms": "x"}',
    ]
    assert _failed(spark, ROUTED, values) == {"split.slow": 3, "split.good": 0, "split.large": 3}


def test_failures_are_counted_by_the_name_of_the_rule(spark: Any) -> None:
    assert _failed(spark, PIPELINE, VALUES) == {
        "parsed.third": 5,
        "parsed.early": 6,
        "kept": 1,
        "split.slow": 1,
        "split.big": 0,
        "some (exclude)": 1,
    }


class _Counting:
    """Emits nothing, and counts rows as the router's does."""

    def send(self, rows: Rows, counts: Counts) -> None:
        for place in rows.at.tolist():
            count(counts, f"place:{place}", 1)

    def finish(self, counts: Counts) -> bytes:
        return counts_report(counts)


@pytest.mark.parametrize(
    ("sql", "body", "wanted"),
    [
        ("CAST(body AS INT) > 5", "6", TRUE),
        ("CAST(body AS INT) > 5", "x", FAILED),
        ("CAST(body AS INT) > 5", None, FALSE),
        ("body > 5", "x", FAILED),
        ("NOT CAST(body AS INT) > 5", "x", FAILED),
        ("coalesce(CAST(body AS INT), 0) > 5", "x", FALSE),
        ("CAST(body AS INT) IS NULL", "x", TRUE),
        ("try_cast(body AS INT) > 5", "x", FALSE),
        ("CAST(body AS INT) > 5 OR body = 'x'", "x", TRUE),
        ("CAST(body AS INT) > 5 AND body = 'y'", "x", FALSE),
        ("body RLIKE '^x' AND 1 / length(host) > 0", "x", FAILED),
        ("element_at(split(body, ','), 3) = 'c'", "a,b", FAILED),
        ("split(body, ',')[2] = 'c'", "a,b", FAILED),
        ("get(split(body, ','), 2) = 'c'", "a,b", FALSE),
        ("to_timestamp(body) > time", "soon", FAILED),
        ("try_to_timestamp(body) > time", "soon", FALSE),
        ("exists(split(body, ','), x -> CAST(x AS INT) > 5)", "1,b", FAILED),
        ("exists(split(body, ','), x -> CAST(x AS INT) > 5)", "9,b", TRUE),
        ("CAST(body AS INT) BETWEEN 1 AND 5", "x", FAILED),
        ("CAST(body AS INT) NOT BETWEEN 1 AND 5", "7", TRUE),
        ("nullif(CAST(body AS INT), 5) > 1", "x", FAILED),
        ("nullif(CAST(body AS INT), 5) > 1", "5", FALSE),
        ("attributes.n > 5", "x", FALSE),
        ("attributes.n / 0.0 > 5", "x", FALSE),
        ("parse_json(body):a::int > 5", '{"a": "x"}', FAILED),
        ("parse_json(body):a::string BETWEEN 'a' AND 'c'", '{"a": "b"}', TRUE),
        ("parse_json(body):a::string BETWEEN 'a' AND 'c'", '{"a": ', FAILED),
        ("nullif(parse_json(body):a::string, 'a') = 'b'", '{"a": ', FAILED),
        pytest.param("split(body, ',')[0] = '1'", "1," * 2_000_000, FAILED, id="too large"),
        pytest.param("lower(body) RLIKE '^1' AND attributes.n = 'many'", "1," * 2_000_000, TRUE, id="large"),
    ],
)
def test_null_is_told_from_a_failure(spark: Any, sql: str, body: str | None, wanted: int) -> None:
    columns = "body string, host string, time timestamp, attributes variant"
    row = spark.createDataFrame([(body,)], "body string").selectExpr(
        "body", "'' AS host", "timestamp_micros(0) AS time", 'parse_json(\'{"n": "many"}\') AS attributes'
    )
    kinds = tuple((name, kind) for name, kind in (column.split() for column in columns.split(", ")))
    assert row.select(guarded_condition(spark, sql, kinds)).collect()[0][0] == wanted


def test_the_session_keeps_its_settings(spark: Any) -> None:
    guarded_condition(spark, "CAST(body AS INT) > 11")
    assert spark.conf.get("spark.sql.ansi.enabled") == "false"
    assert spark.sql("SELECT CAST('x' AS INT)").collect()[0][0] is None
