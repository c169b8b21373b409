"""Files that are odd but plausible: what `check` accepts runs, and no record of it is gone; what it refuses is told."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.pipeline_core.batches import raw

from logboom.pipeline.config.compile import compile_pipeline
from logboom.pipeline.enrich.store import TableStore
from logboom.pipeline.execute.local import LocalFlow
from logboom.pipeline.plan.layout import Layout

LINES = (
    b'{"level": "error", "service": "a7", "ip": "192.0.2.1", "n": 7}',
    b'{"service": null, "ip": ["192.0.2.1"], "n": "7"}',
    b'{"ip": "::1"}',
    b"{}",
    b"no JSON",
)


def ended(directory: Path, transform: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The rows of all lines behind a parse and one transform, where they ended; each line has exactly one."""
    document = {
        "name": "t",
        "checkpoint": str(directory / "checkpoint"),
        "sources": {"s": {"type": "stream", "stream": "web"}},
        "transforms": {
            "parsed": {"type": "parse", "inputs": ["s"], "rules": [{"format": "json"}]},
            "it": {"inputs": ["parsed"], **transform},
        },
        "sinks": {"out": {"type": "console", "inputs": ["it"]}},
    }
    plan = compile_pipeline(json.dumps(document, indent=1), str(directory / "t.yaml"), environ={})
    store = TableStore(directory / "tables", directory, pytest.fail)
    keys = store.paths(store.current(plan.table_refs()))
    with LocalFlow(Layout(plan), keys) as flow:
        rows: list[dict[str, Any]] = flow.rows(raw(LINES)).to_pylist()
    assert sorted(row["offset"] - 100 for row in rows) == list(range(len(LINES)))
    return rows


@pytest.mark.parametrize(
    "condition",
    [
        " OR ".join(f"severity_number = {number}" for number in range(3_000)),
        " AND ".join(f"NOT service = 'b{number}'" for number in range(3_000)),
        "(" * 40 + " OR ".join(["severity_number > 1"] * 2_000) + ")" * 40,
        "attributes.n IN (" + ", ".join(map(str, range(9_000))) + ")",
    ],
    ids=["or", "and", "brackets", "in"],
)
def test_a_condition_of_thousands_of_parts_is_evaluated(tmp_path: Path, condition: str) -> None:
    """It was accepted, and then ended the batch: each part was called inside the one behind it."""
    ended(tmp_path, {"type": "filter", "condition": condition})
