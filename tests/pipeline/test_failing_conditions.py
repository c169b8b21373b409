"""A condition without an answer: what fails inside it is no silent "does not match", in a session and without one."""

from typing import Any

import pytest

from logboom.pipeline.checkpoint.ledger import ledger_of
from logboom.pipeline.config.compile import compile_pipeline
from logboom.pipeline.execute.examples import collect_here, run_examples
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
def test_what_has_no_answer_is_dead_or_goes_on(spark: Any, in_session: bool) -> None:
    collect = collect_on(spark) if in_session else collect_here
    assert run_examples(compile_pipeline(PIPELINE, "shop.yaml"), {}, collect) == []


def test_failures_are_counted_by_the_name_of_the_rule(spark: Any) -> None:
    layout = Layout(compile_pipeline(PIPELINE, "shop.yaml"))
    rows: list[Any] = [("web", "web", 0, number, None, None, value.encode(), []) for number, value in enumerate(VALUES)]
    raw = spark.createDataFrame(rows, ", ".join(f"`{name}` {kind}" for name, kind in RAW_COLUMNS))
    ledger = ledger_of(layout, Flow(spark, layout, {}).sent(raw, _Counting))
    ledger.check()
    assert ledger.failed == {
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
