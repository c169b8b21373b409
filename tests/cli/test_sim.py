"""logboom sim: seeds are run, and one that breaks a promise is told with the way to run it again."""

from pathlib import Path
from typing import Any

import pytest
import typer
from tests.cli.running import ok, refused
from typer.testing import CliRunner

from logboom.cli import sim
from logboom.sim.scenario import Outcome, Scenario, run_seed


def test_seeds_run_alike_and_leave_their_trace(tmp_path: Path) -> None:
    trace = tmp_path / "trace.txt"
    short = ("--seconds", "1", "--fault", "cut", "--fault", "power")
    first = ok("sim", "run", "--seed", "7", "--runs", "2", *short)
    again = ok("sim", "run", "--seed", "8", *short, "--trace", str(trace))
    assert first.err.startswith("2 seeds held, ")
    assert first.err.splitlines()[0].rpartition(" ")[2] == again.err.splitlines()[0].rpartition(" ")[2]
    assert first.err.splitlines()[1].startswith("what went wrong: power ")
    lines = trace.read_text(encoding="utf-8").splitlines()
    assert len(lines) > 1_000
    assert {line.split()[1] for line in lines} >= {"step", "disk", "bytes", "log", "trouble", "kill"}


def test_a_cluster_is_run_too() -> None:
    run = ok("sim", "run", "--seed", "3", "--nodes", "3", "--seconds", "1", "--fault", "split", "--fault", "kill")
    assert run.err.startswith("1 seed held, ")
    assert "no fault is called reads" in refused("sim", "run", "--nodes", "3", "--fault", "reads")


def test_a_fault_that_there_is_not_is_refused() -> None:
    assert "no fault is called rain" in refused("sim", "run", "--fault", "rain")


def test_a_broken_promise_is_told_with_its_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(seed: int, *_: Any) -> Outcome:
        outcome = run_seed(seed, Scenario(troubled_s=0.1, faults=("cut",)))
        return Outcome(**{**{name: getattr(outcome, name) for name in outcome.__slots__}, "violations": ("lost",)})

    monkeypatch.setattr(sim, "run_seed", broken)
    app = typer.Typer()
    app.callback()(lambda: None)
    sim.register(app)
    result = CliRunner().invoke(app, ["sim", "run", "--seed", "5", "--runs", "9", "--fault", "cut"])
    assert result.exit_code == 1
    assert "lost" in result.stdout
    assert "seed 5 broke a promise; again: logboom sim run --seed 5 --seconds 10 --fault cut --trace" in str(
        result.exception
    )
