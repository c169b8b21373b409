"""Records that nobody wants, through every transform: none stops a batch, and none is gone without a count."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from logboom.pipeline.checkpoint.states import StateStore
from logboom.pipeline.config.compile import compile_pipeline
from logboom.pipeline.event.schema import HEADERS
from logboom.pipeline.execute.local import LazyCatalyst, LocalFlow
from logboom.pipeline.execute.stages import MADE, PLACE
from logboom.pipeline.plan.layout import Layout
from logboom.pipeline.route.rows import AT

HEAD = """
name: shop
sources:
  web: {type: stream, stream: web}
transforms:
  parsed:
    type: parse
    inputs: [web]
    rules: [{format: json}, {format: logfmt}, {format: nginx_access}]
    otherwise: keep
    from_record: {record.key: key, record.headers: headers, record.time: timestamp}
"""
CHAIN = """\
  masked: {type: mask, inputs: [parsed], names: true, rules: [{kind: email}, {kind: card}, {kind: ipv6}, {kind: token}]}
  shaped:
    type: reshape
    inputs: [masked]
    rename: {attributes.a: body}
    remove: ['attributes.gone.*']
    cast: {attributes.n: int, attributes.ms: float, attributes.x: json, attributes.id: boolean, attributes.r: text}
    flatten: attributes
    set: {attributes.copy: "coalesce(attributes.n, body, 'none')"}
    schema: {name: ocsf, into: body}
  sealed: {type: encrypt, inputs: [shaped], fields: [attributes.n, service], key_name: k, key_env: KEY}
  some: {type: filter, inputs: [sealed], condition: "severity_number >= 0 AND attributes.never IS NULL"}
  once: {type: dedupe, inputs: [some], by: [attributes.id, host], time: event, count_repeats: true}
  fair: {type: sample, inputs: [once], per_second: 1000000, by: attributes.n, key: attributes.copy}
  capped: {type: limit, inputs: [fair], bytes: 1TB, by: service}
  known: {type: patterns, inputs: [capped], by: host}
  traces: {type: tail_sample, inputs: [known], key: attributes.id, keep: {all: severity_number >= 0}}
  load:
    type: aggregate
    inputs: [traces]
    window: 1m
    by: [service, attributes.n, attributes.url.path]
    metrics:
      n: {type: count}
      sum: {type: sum, of: attributes.n}
      least: {type: min, of: attributes.n}
      parts: {type: histogram, of: attributes.ms, bounds: [1]}
      times: {type: quantiles, of: attributes.ms}
      users: {type: unique, of: attributes.id}
sinks:
  out: {type: console, inputs: [load, load.late, once.repeats]}
"""
SPLIT = """\
  each: {type: reshape, inputs: [parsed], split: {of: attributes.r, into: attributes}, schema: SCHEMA}
  both: {type: join, left: each, right: parsed, on: attributes.id, on_right: attributes.other, into: other}
sinks:
  out: {type: console, inputs: [both, both.left, both.right]}
"""
LONG = 10_000_000
BAD: dict[str, tuple[bytes | None, dict[str, Any]]] = {
    "10 MB in one field": (b'{"msg": "' + b"x" * LONG + b'"}', {}),
    "10 MB that no rule reads": (b"y" * LONG, {}),
    "NULs": (b"\x00" * 1_000, {}),
    "NULs in fields": (b'{"msg": "a\\u0000b", "n": "\\u0000", "id\\u0000": 1}', {}),
    "bytes that are not UTF-8": (b'{"msg": "\xff\xfe\x80"}', {}),
    "half a surrogate pair": (b'{"msg": "\\ud800"}', {}),
    "10,000 levels": (b'{"a":' * 10_000 + b"1" + b"}" * 10_000, {}),
    "10,000 levels of lists": (b'{"r":' + b"[" * 10_000 + b"]" * 10_000 + b"}", {}),
    "a list of 20,000": (b'{"r": [' + b",".join([b"{}"] * 20_000) + b"]}", {}),
    "lists in a list": (b'{"r": [[1], {"a": {"b": [2]}}, null, "t", 1e308]}', {}),
    "400 digits": (b'{"n": ' + b"9" * 400 + b', "ms": -' + b"9" * 400 + b', "id": 1}', {}),
    "numbers beyond doubles": (b'{"n": 1e999, "ms": -1e999, "level": 1e999}', {}),
    "NaN": (b'{"n": NaN}', {}),
    "texts that look like numbers": (b'{"n": "NaN", "ms": "Infinity", "id": "0x1p3"}', {}),
    "year 1": (b'{"time": "0001-01-01T00:00:00Z", "id": 1}', {"timestamp": -62_135_596_800_000_000}),
    "year 9999": (b'{"time": "9999-12-31T23:59:59.999999Z", "id": 1}', {"timestamp": 253_402_300_799_999_999}),
    "no time at all": (b'{"msg": "x"}', {"timestamp": None}),
    "a tombstone": (None, {"key": b"\xff"}),
    "an empty value": (b"", {}),
    "blanks": (b" \t \r\n", {}),
    "thousands of headers": (b'{"msg": "x"}', {"headers": [(f"h{n % 900}", b"v" * 50) for n in range(4_000)]}),
    "odd headers": (b'{"msg": "x"}', {"headers": [("", None), ("traceparent", b"\xff"), ("host.name", b"\x00")]}),
    "one name twice": (b'{"n": 1, "n": 2, "a.b": 1, "a": {"b": 2}}', {}),
    "ids of the wrong kind": (b'{"trace_id": {"a": 1}, "span_id": [1], "service": [], "host": 5, "level": {}}', {}),
    "thousands of fields": (json.dumps({f"f{n}": n for n in range(5_000)}).encode(), {}),
    "a line that asks for a mask to go wild": (b"a@" * 5_000 + b"4111 " * 5_000 + b":" * 5_000, {}),
}
GOOD = b'{"msg": "fine", "id": "good", "n": 7, "ms": 3, "service": "s", "host": "h", "r": [{"k": 1}, {"k": 2}]}'


def _records(given: Sequence[tuple[bytes | None, dict[str, Any]]]) -> pa.RecordBatch:
    count = len(given)

    def column(name: str, kind: pa.DataType, default: Any = None) -> pa.Array:
        return pa.array([more.get(name, default) for _, more in given], kind)

    headers = [
        None if "headers" not in more else [{"key": key, "value": value} for key, value in more["headers"]]
        for _, more in given
    ]
    return pa.RecordBatch.from_pydict(
        {
            "source": pa.array(["web"] * count),
            "stream": pa.array(["web"] * count),
            "partition": pa.array([0] * count, pa.int32()),
            "offset": pa.array(range(count), pa.int64()),
            "timestamp": column("timestamp", pa.int64(), 1_700_000_000_000_000).cast(pa.timestamp("us", tz="UTC")),
            "key": column("key", pa.binary()),
            "value": pa.array([value for value, _ in given], pa.binary()),
            "headers": pa.array(headers, HEADERS),
        }
    )


def _run(text: str, records: pa.RecordBatch, directory: Path) -> tuple[pa.RecordBatch, Any]:
    """One batch, at whose end everything leaves that is held."""
    layout = Layout(compile_pipeline(text, "shop.yaml"))
    store = StateStore(directory)
    stateful = store.begin(layout, 0, 1_800_000_000_000)
    assert stateful is not None
    stateful.keeps_dropped, stateful.ends = True, True
    with LazyCatalyst() as spark:
        flow = LocalFlow(layout, {"env:KEY": b"sixteen bytes and more"}, spark)
        rows = flow.rows(records, stateful)
    store.keep(stateful)
    return rows, stateful.counts


def test_bad_records_stop_nothing_and_all_are_counted(tmp_path: Path) -> None:
    text = HEAD + CHAIN
    given = [(GOOD, {}), *BAD.values(), (GOOD, {})]
    records = _records(given)
    layout = Layout(compile_pipeline(text, "shop.yaml"))
    kinds = {place.code: place.kind for place in layout.places}
    rows, counts = _run(text, records, tmp_path)
    by_shards = sum(number for name, number in counts.items() if name.startswith(f"{PLACE}:"))
    made = sum(number for name, number in counts.items() if name.startswith(f"{MADE}:"))
    assert len(given) + made == rows.num_rows + by_shards
    assert {kinds[at] for at in rows.column(AT).to_pylist()} <= {"edge", "dropped", "dead"}
    metrics = [json.loads(text) for text in rows.column("attributes").to_pylist() if text and "metric.name" in text]
    assert any(one["metric.name"] == "n" and one["metric.value"] >= 1 for one in metrics)
    assert all(abs(one["metric.value"]) < float("inf") for one in metrics)


@pytest.mark.parametrize("schema", ["ecs", "ocsf", "cim"])
def test_bad_records_are_split_and_joined(tmp_path: Path, schema: str) -> None:
    given = [(GOOD, {}), *BAD.values()]
    rows, _ = _run(HEAD + SPLIT.replace("SCHEMA", schema), _records(given), tmp_path)
    ids = rows.column("event_id").to_pylist()
    seen = {int(one.rpartition(":")[2].partition(".")[0]) for one in ids if one is not None and one.startswith("web:")}
    dead = set(rows.filter(pa.compute.is_valid(rows.column("dead_reason"))).column("offset").to_pylist())
    assert seen | dead >= set(range(len(given)))
    assert sum(one is not None and one.startswith("web:0:0.") for one in ids) == 2
