"""Plans stay what they were: a batch pinned by an earlier version is read back, and hashed, as that version did.

A checkpoint holds the plan of its last batch as JSON, under its content hash. If either changed for a pipeline that was
not edited, a restart would take every pipeline for an edited one, or fail to read what it has to finish.
`pinned/everything.json` was written by the version that introduced format 1 of plans.
"""

from pathlib import Path

import msgspec
import pytest

from logboom.pipeline.config.compile import compile_pipeline
from logboom.pipeline.plan.nodes import PLAN_FORMAT, Plan
from logboom.pipeline.registry import read_plan

PINNED = Path(__file__).parent / "pinned"
EXAMPLES = Path(__file__).parents[2] / "examples" / "demo"


def everything() -> Plan:
    return compile_pipeline((PINNED / "everything.yaml").read_text(), "everything.yaml")


def test_a_plan_is_written_as_it_was() -> None:
    pinned = msgspec.json.decode((PINNED / "everything.json").read_bytes())
    assert msgspec.json.decode(everything().to_json()) == pinned


def test_a_plan_that_was_written_is_read_as_the_plan_it_was() -> None:
    assert PLAN_FORMAT == 1
    assert read_plan((PINNED / "everything.json").read_text()) == everything()


@pytest.mark.parametrize(
    ("file", "content_hash"),
    [
        (PINNED / "everything.yaml", "7d39d6d45e933236"),
        (EXAMPLES / "pipeline.yaml", "c206596bd78e5203"),
        (EXAMPLES / "logs.pipeline.yaml", "24d5ae1f6d90851e"),
    ],
)
def test_the_hash_that_a_batch_is_pinned_by_stays(file: Path, content_hash: str) -> None:
    assert compile_pipeline(file.read_text(), file.name).content_hash() == content_hash
