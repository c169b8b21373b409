"""logboom sim: seeds are run, and one that breaks a promise is told with the way to run it again."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import typer
from tests.cli.running import ok, refused
from typer.testing import CliRunner, Result

from logboom.cli import sim
from logboom.sim import campaign
from logboom.sim.scenario import NodeOutcome, Scenario, run_seed

RAIN = """{"seed": 1, "nodes": 1, "troubled_s": 1, "faults":
    [{"at_s": 0, "lane": "n1", "name": "rain", "length_s": 0, "number": 0}]}"""


def outcome(text: str) -> list[str]:
    """What is printed at the end, without the lines of progress that a slow machine prints before."""
    return [line for line in text.splitlines() if " seeds/s" not in line]


def test_seeds_run_alike_and_leave_their_trace(tmp_path: Path) -> None:
    trace = tmp_path / "trace.txt"
    short = ("--seconds", "1", "--fault", "cut", "--fault", "power")
    first = ok("sim", "run", "--seed", "7", "--runs", "2", *short)
    again = ok("sim", "run", "--seed", "8", *short, "--trace", str(trace))
    lines = outcome(first.err)
    assert lines[0].startswith("2 seeds held, ")
    assert lines[0].rpartition(" ")[2] == outcome(again.err)[0].rpartition(" ")[2]
    assert lines[2].startswith("what went wrong: cut ")
    lines = trace.read_text(encoding="utf-8").splitlines()
    assert len(lines) > 1_000
    assert {line.split()[1] for line in lines} >= {"step", "disk", "bytes", "log", "trouble", "kill"}


def test_a_cluster_is_run_too() -> None:
    run = ok("sim", "run", "--seed", "3", "--nodes", "3", "--seconds", "1", "--fault", "split", "--fault", "kill")
    assert outcome(run.err)[0].startswith("1 seed held, ")
    assert "no fault is called reads" in refused("sim", "run", "--nodes", "3", "--fault", "reads")


def test_a_fault_that_there_is_not_is_refused() -> None:
    assert "no fault is called rain" in refused("sim", "run", "--fault", "rain")


@pytest.mark.in_turn(3)
def test_seeds_and_hours_and_workers() -> None:
    short = ("--seconds", "0.1", "--fault", "cut")
    run = ok("sim", "run", "--seeds", "3..5", "--workers", "2", *short)
    assert outcome(run.err)[0].startswith("3 seeds held, ")
    told = json.loads(ok("sim", "run", "--hours", "0.001", "--json", *short).out)
    assert told["hours"] >= 0.001
    assert told["seeds"] >= 1
    assert told["failed"] == []
    assert "full" not in told["never"]  # it was not asked for
    assert "two numbers that rise" in refused("sim", "run", "--seeds", "5..3")
    assert "for one seed" in refused("sim", "run", "--seeds", "3..5", "--trace", "trace.txt")


def test_only_a_cluster_is_stretched() -> None:
    assert "name --nodes as well" in refused("sim", "run", "--stretch", "30")


def invoked(*words: str) -> Result:
    app = typer.Typer()
    app.callback()(lambda: None)
    sim.register(app)
    return CliRunner().invoke(app, ["sim", "run", *words])


def test_a_broken_promise_is_told_with_its_seed_and_the_faults_that_break_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    held = run_seed(5, Scenario(troubled_s=0.1, faults=("cut",)))
    planned = tuple(replace(held.schedule[0], number=number) for number in range(7))

    def broken(seed: int, scenario: Scenario, *_: Any) -> NodeOutcome:
        """Two faults or more break it."""
        schedule = planned if scenario.schedule is None else scenario.schedule
        return replace(held, schedule=schedule, violations=("lost",) if len(schedule) >= 2 else ())

    monkeypatch.setattr(campaign, "run_seed", broken)
    result = invoked("--seed", "5", "--runs", "9", "--fault", "cut", "--into", str(tmp_path))
    file = tmp_path / "sim-1-5.json"
    assert result.exit_code == 1
    assert "lost" in result.stdout
    error = str(result.exception)
    assert "seed 5 broke a promise; again: logboom sim run --seed 5 --seconds 10 --fault cut --trace" in error
    assert f"logboom sim run --schedule {file} --trace" in error
    assert len(json.loads(file.read_text(encoding="utf-8"))["faults"]) == 2
    again = invoked("--schedule", str(file))
    assert "seed 5 broke a promise under this schedule" in str(again.exception)
    monkeypatch.setattr(campaign, "run_seed", lambda *_: held)
    assert "the promises held under this schedule" in invoked("--schedule", str(file)).stderr


def test_all_seeds_that_break_a_promise_are_told_where_it_goes_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    held = run_seed(5, Scenario(troubled_s=0.1, faults=("cut",)))

    def broken(seed: int, *_: Any) -> NodeOutcome:
        return replace(held, seed=seed, violations=("lost",) * (seed % 2))

    monkeypatch.setattr(campaign, "run_seed", broken)
    result = invoked("--runs", "4", "--keep-going", "--shrink-seconds", "0", "--into", str(tmp_path))
    assert "2 seeds held" in result.stderr
    assert "seed 1 (and 3) broke a promise" in str(result.exception)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[", "holds no schedule"),
        ("{}", "'faults' is missing"),
        (RAIN, "does not know: rain"),
    ],
)
def test_a_file_without_a_schedule_is_refused(tmp_path: Path, text: str, says: str) -> None:
    file = tmp_path / "schedule.json"
    file.write_text(text, encoding="utf-8")
    assert says in refused("sim", "run", "--schedule", str(file))
