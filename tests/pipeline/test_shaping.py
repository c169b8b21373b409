"""Stages whose values Spark computes, through a session: the same as without one."""

import json
from typing import Any

import pytest
from tests.pipeline.support import needs_java

from logboom.pipeline.config.compile import compile_pipeline
from logboom.pipeline.config.sqlcheck import check_expressions
from logboom.pipeline.execute.examples import run_examples

pytestmark = [pytest.mark.spark, needs_java]

PIPELINE = r"""
name: shop
sources: {web: {type: stream, stream: web}}
transforms:
  parsed:
    type: parse
    inputs: [web]
    drop: {health: "line LIKE '%/health%'", old: "timestamp < TIMESTAMP'2020-01-01 00:00:00Z'"}
    rules: [{format: json}]
    from_record: {order: key}
  shaped:
    type: reshape
    inputs: [parsed]
    set:
      body: "upper(attributes.a.b)"
      time: "observed_time + INTERVAL 1 SECOND"
      severity_number: "variant_get(attributes, '$.sev', 'int')"
      attributes.words: "split(body, ' ')"
      attributes.slow: "attributes.ms * 2 > 1000"
  slow: {type: filter, inputs: [shaped], condition: "attributes.slow = true OR attributes['a.b'] IS NULL"}
sinks: {all: {type: console, inputs: [slow]}}
tests:
  - name: values of Spark
    input:
      - source: web
        value: '{"msg": "a b", "sev": 17, "ms": "501", "a": {"b": "x"}}'
        key: o-1
        timestamp: "2026-01-01T00:00:00.123456Z"
      - {source: web, value: '{"msg": "a", "sev": "high"}'}
      - {source: web, value: '{"msg": "a", "ms": 3, "a.b": "y"}'}
      - {source: web, value: 'GET /health'}
      - {source: web, value: '{}', timestamp: "2019-12-31T00:00:00Z"}
    expect:
      - at: all
        count: 1
        fields:
          body: X
          time: "2026-01-01T00:00:01.123456Z"
          severity_number: 17
          attributes.words: [a, b]
          attributes.slow: true
          attributes.order: o-1
      - {at: "dead:shaped", count: 1, condition: "dead_reason LIKE 'severity_number cannot be set%'"}
      - {at: "dropped:slow", count: 1}
      - {at: "dropped:parsed.health", count: 1}
      - {at: "dropped:parsed.old", count: 1}
"""


def test_values_of_a_session_are_those_of_a_bare_jvm(spark: Any) -> None:
    from logboom.pipeline.execute.on_spark import collect_on

    plan = compile_pipeline(PIPELINE, "shop.yaml")
    assert run_examples(plan, {}) == []
    assert run_examples(plan, {}, collect_on(spark)) == []


LARGEST = {
    "brackets": "(" * 99 + "upper(service) = 'WEB'" + ")" * 99,
    "a list": "upper(service) IN (" + ", ".join(f"'A{number}'" for number in range(98)) + ", 'WEB')",
    "a sum": " + ".join(["1"] * 90) + " = 90 AND upper(service) = 'WEB'",
    "cases": "CASE WHEN upper(service) <> 'WEB' THEN false ELSE " * 20 + "true" + " END" * 20,
}


def test_what_is_as_large_as_check_allows_runs(spark: Any) -> None:
    from logboom.pipeline.execute.on_spark import collect_on

    transforms = {"parsed": {"type": "parse", "inputs": ["web"], "rules": [{"format": "json"}]}}
    for number, condition in enumerate(LARGEST.values()):
        read = f"is{number - 1}" if number else "parsed"
        transforms[f"is{number}"] = {"type": "filter", "inputs": [read], "condition": condition}
    last = f"is{len(LARGEST) - 1}"
    given = [{"source": "web", "value": json.dumps({"service": service})} for service in ("web", "db")]
    document = {
        "name": "shop",
        "sources": {"web": {"type": "stream", "stream": "web"}},
        "transforms": transforms,
        "sinks": {"all": {"type": "console", "inputs": [last]}},
        "tests": [{"name": "one", "input": given, "expect": [{"at": "all", "count": 1}]}],
    }
    plan = compile_pipeline(json.dumps(document), "shop.yaml", check_expressions)
    assert run_examples(plan, {}, collect_on(spark)) == []
