"""Raw batches and compiled transforms for the tests of kernels. It knows the raw columns; it asserts nothing."""

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from logboom.pipeline.config.compile import compile_pipeline
from logboom.pipeline.event.schema import HEADERS
from logboom.pipeline.execute.stages import StageRunner, execution_stages
from logboom.pipeline.mask.rules import MaskRule
from logboom.pipeline.plan.layout import Layout
from logboom.pipeline.plan.nodes import KeyRef, Plan
from logboom.pipeline.transforms.mask import MaskTransform
from logboom.pipeline.transforms.parse import ParseTransform

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
KEYS = {"env:KEY": b"0123456789abcdef0123456789abcdef"}


def raw(
    values: Sequence[bytes | None],
    *,
    source: str = "s",
    timestamp: datetime | None = NOON,
    headers: Sequence[tuple[str, bytes]] | None = None,
    extra: Mapping[str, pa.Array] | None = None,
) -> pa.RecordBatch:
    """One record per value: stream `web`, partition 3, offsets from 100."""
    count = len(values)
    columns = {
        "source": pa.array([source] * count, pa.string()),
        "stream": pa.array(["web"] * count, pa.string()),
        "partition": pa.array([3] * count, pa.int32()),
        "offset": pa.array(range(100, 100 + count), pa.int64()),
        "timestamp": pa.array([timestamp] * count, pa.timestamp("us", tz="UTC")),
        "key": pa.array([b"k"] * count, pa.binary()),
        "value": pa.array(values, pa.binary()),
        "headers": pa.array([headers] * count, HEADERS),
        **(extra or {}),
    }
    return pa.RecordBatch.from_pydict(columns)


def parser(*rules: Mapping[str, Any], own: Mapping[str, str] | None = None, **options: Any) -> ParseTransform:
    """The compiled transform of these rules; `own`: patterns of the file."""
    document = {
        "name": "tests",
        "patterns": dict(own or {}),
        "sources": {"s": {"type": "stream", "stream": "web"}},
        "transforms": {"parsed": {"type": "parse", "inputs": ["s"], "rules": list(rules), **options}},
        "sinks": {"out": {"type": "console", "inputs": ["parsed"]}},
    }
    node = compile_pipeline(json.dumps(document), "test.yaml").transforms[0]
    assert isinstance(node, ParseTransform)
    return node


def events(transform: ParseTransform, batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """Parsed rows as plain data, attributes as an object."""
    rows: list[dict[str, Any]] = transform.run(batch, {}).to_pylist()
    for row in rows:
        row["attributes"] = None if row["attributes"] is None else json.loads(row["attributes"])
    return rows


def read(form: str, *lines: str | bytes, own: Mapping[str, str] | None = None, **options: Any) -> list[dict[str, Any]]:
    """Lines read as one format."""
    values = [line.encode() if isinstance(line, str) else line for line in lines]
    return events(parser({"format": form, **options}, own=own), raw(values))


def mask(*rules: Mapping[str, Any], fields: Sequence[str] = ("body", "attributes")) -> MaskTransform:
    """A mask of these rules."""
    made = (MaskRule(**{"label": rule["kind"], "line": 1, "action": "redact", **rule}) for rule in rules)
    return MaskTransform(
        name="m", line=1, inputs=("parsed",), fields=tuple(fields), key=KeyRef(env="KEY"), rules=tuple(made)
    )


def passed(
    plan: Plan, *lines: Mapping[str, Any], keys: Mapping[str, bytes] | None = None
) -> tuple[list[dict[str, Any]], dict[str, int]]:
    """The events of JSON lines at their last place in a pipeline without conditions for Spark, and what a task of a run
    counts. The source is `web`."""
    layout = Layout(plan)
    (stage,) = execution_stages(layout.steps)
    batch = raw([json.dumps(line).encode() for line in lines])
    runner = StageRunner(stage=stage, keys=keys or {}, entries={"s": layout.entries["web"]}, emitter=None)
    *rows, report = runner([batch])
    return [row for one in rows for row in one.to_pylist()], json.loads(report.column("value")[0].as_py())
