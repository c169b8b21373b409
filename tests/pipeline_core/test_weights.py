"""Weights through a whole chain of samples: what stays estimates the totals of what came in."""

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from logboom.pipeline.checkpoint.states import StateStore
from logboom.pipeline.config.compile import compile_pipeline
from logboom.pipeline.event.schema import HEADERS
from logboom.pipeline.execute.local import LazyCatalyst, LocalFlow
from logboom.pipeline.plan.layout import FINAL_FROM, Layout
from logboom.pipeline.route.rows import AT
from logboom.pipeline.state.keys import mixed

FILE = """
name: shop
sources:
  web: {type: stream, stream: web}
transforms:
  parsed: {type: parse, inputs: [web], rules: [{format: json}]}
  half: {type: sample, inputs: [parsed], rate: 2, exclude: severity_number >= 17}
  traces:
    type: tail_sample
    inputs: [half]
    wait: 2s
    keep: {errors: severity_number >= 17}
    rate: 3
  fair: {type: sample, inputs: [traces], per_second: 400, by: service, key: event_id}
  capped: {type: limit, inputs: [fair], events: 150, per: 1d, by: service, over: sample, rate: 4, key: event_id}
sinks:
  out: {type: console, inputs: [capped]}
"""
BATCHES, EACH = 6, 4_000


def _lines(batch: int) -> list[bytes]:
    """Traces of one to four events; those of the service `rare` are few."""
    words = mixed(np.arange(batch * EACH, (batch + 1) * EACH, dtype=np.uint64) // np.uint64(3)).tolist()
    return [
        json.dumps(
            {
                "trace_id": f"{word | 1:032x}",
                "service": "rare" if word % 7 == 0 else "busy",
                "level": "error" if word % 50 == 0 else "info",
                "msg": "m",
            }
        ).encode()
        for word in words
    ]


def _records(lines: list[bytes], first: int) -> pa.RecordBatch:
    count = len(lines)
    return pa.RecordBatch.from_pydict(
        {
            "source": pa.array(["web"] * count),
            "stream": pa.array(["web"] * count),
            "partition": pa.array([0] * count, pa.int32()),
            "offset": pa.array(range(first, first + count), pa.int64()),
            "timestamp": pa.array([1_700_000_000_000_000] * count, pa.timestamp("us", tz="UTC")),
            "key": pa.nulls(count, pa.binary()),
            "value": pa.array(lines, pa.binary()),
            "headers": pa.nulls(count, HEADERS),
        }
    )


def test_totals_are_estimated_behind_four_samples_in_a_row(tmp_path: Path) -> None:
    layout = Layout(compile_pipeline(FILE, "shop.yaml"))
    assert layout.plan.warnings == ()
    given: Counter[str] = Counter()
    found: Counter[str] = Counter()
    kept = 0
    for batch in range(BATCHES + 1):
        lines = _lines(batch) if batch < BATCHES else []
        given.update(json.loads(line)["service"] for line in lines)
        given.update("errors" for line in lines if b'"error"' in line)
        store = StateStore(tmp_path)
        stateful = store.begin(layout, batch, 1_700_000_000_000 + 3_000 * batch)
        assert stateful is not None
        stateful.ends = batch == BATCHES
        with LazyCatalyst() as spark:
            flow = LocalFlow(layout, {}, spark)
            rows = flow.rows(_records(lines, batch * EACH), stateful)
        store.keep(stateful)
        for row in rows.select([AT, "service", "severity_number", "weight"]).to_pylist():
            if row[AT] >= FINAL_FROM:
                kept += 1
                found[row["service"]] += row["weight"]
                found["errors"] += row["weight"] if row["severity_number"] >= 17 else 0
    assert sum(given[name] for name in ("busy", "rare")) == BATCHES * EACH
    assert kept < BATCHES * EACH // 8
    # Weights of 6 to 50 on some hundred traces: five standard errors of such estimates.
    assert found["busy"] == pytest.approx(given["busy"], rel=0.25)
    assert found["rare"] == pytest.approx(given["rare"], rel=0.4)
    assert found["errors"] == pytest.approx(given["errors"], rel=0.6)
