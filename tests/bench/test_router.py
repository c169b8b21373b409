"""The pipelines that `bench pipeline` measures are right."""

from pathlib import Path
from typing import get_args

import pytest
from typer.testing import CliRunner

from logboom.bench.router import Through, hosts_table, pipeline_text
from logboom.cli.bench import bench
from logboom.pipeline.config.compile import compile_pipeline


@pytest.mark.parametrize("through", [None, *get_args(Through)])
def test_the_pipelines_of_the_router_compile(through: Through | None, tmp_path: Path) -> None:
    (tmp_path / "hosts.csv").write_text(hosts_table())
    (tmp_path / "bench.key").write_text("a key that guards nothing")
    text = pipeline_text(through).format(stream="lines", batch_records=250_000)
    plan = compile_pipeline(text, str(tmp_path / "pipeline.yaml"))
    assert plan.warnings == ()
    assert len(plan.sinks) == (6 if through == "aggregate" else 5)
    assert len(plan.transforms) == (3 if through is None else 5 if through in ("split", "join") else 4)
    (split,) = (node for node in plan.transforms if node.name == "split")
    assert split.inputs == (("masked",) if through in (None, "aggregate") else ("passed",))


def test_records_that_give_no_figure_are_refused_before_anything_runs() -> None:
    done = CliRunner().invoke(bench, ["pipeline", "--records", "400000"])
    assert done.exit_code == 2
    assert "greater than or equal to 1500000" in " ".join(done.output.replace("│", " ").split())
