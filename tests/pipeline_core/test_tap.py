"""Events that are looked at are those that sinks get."""

from unittest.mock import Mock

import msgspec
import pyarrow as pa

from logboom.pipeline.config.compile import compile_pipeline
from logboom.pipeline.event.json import json_values
from logboom.pipeline.event.schema import EVENT_SCHEMA
from logboom.pipeline.run import tap
from logboom.pipeline.run.tap import event_line, tap_plan

PLAN = compile_pipeline(
    """\
name: shop
sources:
  web: {type: stream, stream: web}
  host: {type: stream, stream: host}
transforms:
  parsed: {type: parse, inputs: [web], rules: [{format: json}]}
  tap: {type: sample, inputs: [parsed], rate: 4}
  lines: {type: parse, inputs: [host], rules: [{format: text}]}
sinks:
  screen: {type: console, inputs: [tap, lines]}
""",
    "shop.yaml",
)


def test_a_tap_has_what_leads_to_its_output_alone() -> None:
    tapped = tap_plan(PLAN, "tap")
    assert [node.name for node in tapped.nodes()] == ["web", "parsed", "tap", "tap_2"]


def test_events_have_their_weights_and_no_place() -> None:
    rows = {field.name: pa.nulls(2, field.type) for field in EVENT_SCHEMA}
    rows |= {
        "weight": pa.array([4.0, None]),
        "body": pa.array(["paid", "sent"]),
        "attributes": pa.array(['{"ms":1}', None]),
    }
    batch = pa.RecordBatch.from_pydict({**rows, "at": pa.array([10_000, 10_000], pa.int32())})
    paid, sent = (msgspec.json.decode(text) for text in json_values(batch).to_pylist())
    assert (paid["weight"], paid["body"], paid["attributes"]) == (4.0, "paid", {"ms": 1})
    assert (sent["weight"], sent["attributes"]) == (1.0, {})
    assert "at" not in paid


def test_no_events_at_all_are_no_values() -> None:
    """Turns of a tap in which a transform holds every event, or drops it."""
    assert json_values(pa.RecordBatch.from_pylist([], schema=EVENT_SCHEMA)).to_pylist() == []


def test_an_event_is_one_line_for_a_person() -> None:
    assert (
        event_line(b'{"time":"2026-11-20T12:00:00Z","service":"shop","body":"paid"}')
        == "2026-11-20T12:00:00Z shop paid"
    )


def test_a_line_for_a_person_has_the_attributes_too() -> None:
    """What a table, a template or a metric has added is nowhere else."""
    metric = (
        b'{"attributes":{"metric.value":10.0,"metric.labels":{"svc":"d"}},"time":"2026-11-20T12:00:00Z","body":"n"}'
    )
    assert event_line(metric) == '2026-11-20T12:00:00Z n {"metric.value":10.0,"metric.labels":{"svc":"d"}}'
    assert event_line(b'{"attributes":{},"severity_text":null,"body":"n"}') == "n"


def test_a_long_field_is_cut_for_a_person() -> None:
    """A terminal takes minutes for 10 MB."""
    line = event_line(msgspec.json.encode({"service": "shop", "body": "x" * 9_000_000}))
    assert line.startswith("shop xxx")
    assert line.endswith("x... (9,000,000 characters; --json shows all)")
    assert len(line) < 5_000


def test_a_turn_ends_with_large_records() -> None:
    """Those of one turn are in memory at once, some times over."""
    record = Mock(**{"error.return_value": None, "value.return_value": bytes(9_000_000)})
    found, is_full = tap._turn(Mock(**{"poll.return_value": record}), 250, lambda: False)
    assert (len(found), is_full) == (2, True)
