"""What a parse does beside reading lines: records dropped before it, attributes from the record, names masked."""

import json
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from tests.pipeline_core.batches import KEYS, events, mask, parser, raw

from logboom.base.settings import SettingsError
from logboom.pipeline.config.compile import compile_pipeline
from logboom.pipeline.execute.examples import run_examples
from logboom.pipeline.plan.nodes import DROPPED, Plan
from logboom.pipeline.registry import read_plan

PIPELINE = r"""
name: shop
sources: {web: {type: stream, stream: web}}
transforms:
  parsed:
    type: parse
    inputs: [web]
    blank_lines: drop
    drop:
      health: "line LIKE '%GET /health%'"
      noise: "stream = 'web' AND line RLIKE '^#'"
    rules: [{format: json}]
    from_record: {order.id: key, tenant: header.x-tenant, record: headers}
sinks: {all: {type: console, inputs: [parsed]}}
tests:
  - name: health checks leave under their name
    input:
      - {source: web, value: '"GET /health HTTP/1.1" # not json'}
      - {source: web, value: '# a comment'}
      - {source: web, value: ' '}
      - {source: web, value: '{"msg": "a", "tenant": "own"}', key: o-1, headers: {x-tenant: acme, y: z}}
      - {source: web, value: '{"msg": "b"}', headers: {x-tenant: acme}}
      - {source: web, value: 'no json'}
    expect:
      - {at: "dropped:parsed.health", count: 1}
      - {at: "dropped:parsed.noise", count: 1}
      - {at: "dropped:parsed", count: 1}
      - {at: dropped, count: 3}
      - {at: "dead:parsed", count: 1}
      - {at: all, count: 1, fields: {attributes.tenant: own, attributes.order.id: o-1, attributes.record.y: z}}
      - {at: all, count: 1, fields: {body: b, attributes.tenant: acme}}
"""


def compiled(text: str) -> Plan:
    return compile_pipeline(text, "shop.yaml")


def test_records_are_dropped_by_name_before_any_rule_reads_them() -> None:
    plan = compiled(PIPELINE)
    assert run_examples(plan, {}) == []
    assert read_plan(plan.to_json()) == plan


def test_a_dropped_record_is_no_blank_line_and_no_dead_letter() -> None:
    node = parser({"format": "json"}, blank_lines="keep", drop={"one": "line = ' '", "two": "line = ' ' OR line = 'x'"})
    answers = {"drop_parsed_0": [True, False, False], "drop_parsed_1": [True, True, None]}
    extra = {name: pa.array(column, pa.bool_()) for name, column in answers.items()}
    batch = node.run(raw([b" ", b"x", b" "], extra=extra), {})
    assert batch.column(DROPPED).to_pylist() == [1, 2, 0]
    assert batch.column("body").to_pylist() == [None, None, ""]
    assert batch.column("dead_reason").null_count == 3
    assert not set(answers) & set(batch.schema.names)


def test_what_a_record_lacks_gives_no_attribute() -> None:
    node = parser({"format": "text"}, from_record={"k": "key", "h": "header.none", "all": "headers", "at": "timestamp"})
    values = [b"a", None]
    rows = events(node, raw(values, headers=[("x", b'\xff"1'), ("x", b"2"), ("y", None)]))  # type: ignore[list-item]
    assert rows[0]["attributes"] == {"k": "k", "all": {"x": '�"1'}, "at": "2026-11-20T12:00:00Z"}
    assert rows[1]["attributes"] is None
    assert rows[1]["dead_reason"] is not None


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("drop", {"no name": "line = 'x'"}, "is not a valid name"),
        ("from_record", {"a": "keys"}, "unknown part of a record 'keys' (did you mean 'key'?)"),
        ("from_record", {"a": "header."}, "unknown part of a record 'header.'"),
    ],
)
def test_faults_have_their_line(key: str, value: Any, message: str) -> None:
    with pytest.raises(SettingsError) as caught:
        parser({"format": "json"}, **{key: value})
    assert message in str(caught.value)


def test_a_plan_without_these_is_written_as_before() -> None:
    plan = parser({"format": "json"})
    written = msgspec.json.encode(plan).decode()
    assert "from_record" not in written
    assert '"drop"' not in written


def test_names_of_attributes_are_masked_where_asked_for() -> None:
    tree = {
        "ann@example.com": 1,
        "[email]": 2,
        "bob@example.com": {"x": [{"eve@example.com": "eve@example.com"}]},
        "n": 3,
    }
    batch = pa.RecordBatch.from_pydict(
        {"attributes": pa.array([json.dumps(tree, separators=(",", ":")), '{"a":"b"}', None], pa.string())}
    )
    made = mask({"kind": "email"}, fields=("attributes",))
    kept = made.run(batch, KEYS)
    assert "ann@example.com" in json.loads(kept.column("attributes")[0].as_py())
    done = msgspec.structs.replace(made, names=True).run(batch, KEYS)
    assert json.loads(done.column("attributes")[0].as_py()) == {
        "[email]_2": 1,
        "[email]": 2,
        "[email]_3": {"x": [{"[email]": "[email]"}]},
        "n": 3,
    }
    assert done.column("masked_email").to_pylist() == [4, 0, 0]
    assert done.column("attributes").to_pylist()[1:] == ['{"a":"b"}', None]
