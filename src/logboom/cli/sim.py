"""`logboom sim`: run the broker under seeds, in simulated time, and check what its clients saw."""

import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Final, TextIO

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from logboom.cli.common import fail, note, plural
from logboom.sim.faults import FAULTS
from logboom.sim.scenario import Outcome, Scenario, run_seed

_FAULT_HELP: Final = f"What may go wrong, again and again: {', '.join(FAULTS)}. All, unless named."
_LINE_EVERY_S: Final = 10.0

sim = typer.Typer(no_args_is_help=True, help="Run the broker under seeds, in simulated time.")


@sim.command("run")
def run(
    seed: Annotated[int, typer.Option(help="The first seed.", min=0)] = 0,
    runs: Annotated[int, typer.Option(help="How many seeds, one after the other.", min=1)] = 1,
    seconds: Annotated[float, typer.Option(help="Simulated seconds in which things go wrong.", min=0.1)] = 10.0,
    fault: Annotated[list[str] | None, typer.Option(help=_FAULT_HELP)] = None,
    trace: Annotated[Path | None, typer.Option(help="Write every step of the run to this file.")] = None,
) -> None:
    """Kill, starve and cut off a simulated broker, and check that what it acknowledged is kept.

    Exits with 1 at the first seed that breaks a promise, and says how to run it again: a seed runs alike each time.
    """
    unknown = sorted(set(fault or ()) - set(FAULTS))
    if unknown:
        fail(f"no fault is called {unknown[0]}; there are {', '.join(FAULTS)}")
    scenario = Scenario(troubled_s=seconds)
    if fault:
        scenario = replace(scenario, faults=tuple(fault))
    records = 0
    with _Meter(runs) as meter:
        for number in range(seed, seed + runs):
            meter.show(number, number - seed)
            outcome = _run(number, scenario, trace)
            records += outcome.records_acked
            if outcome.violations:
                meter.clear()
                _tell(outcome, seconds, fault or [])
    note(f"{plural(runs, 'seed')} held, {records:,} acknowledged records; the last trace is {outcome.digest}")


class _Meter:
    """How far the runs are: a bar on a terminal, a line now and then elsewhere."""

    def __init__(self, runs: int) -> None:
        columns = (TextColumn("seed {task.fields[seed]}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        self._bar = Progress(*columns, console=Console(stderr=True), disable=not sys.stderr.isatty(), transient=True)
        self._task = self._bar.add_task("", total=runs, seed=0)
        self._runs = runs
        self._next_line_s = time.monotonic() + _LINE_EVERY_S

    def __enter__(self) -> "_Meter":
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.clear()

    def show(self, seed: int, done: int) -> None:
        """A seed is about to run."""
        self._bar.update(self._task, seed=seed, completed=done)
        if self._bar.disable and time.monotonic() >= self._next_line_s:
            self._next_line_s = time.monotonic() + _LINE_EVERY_S
            note(f"seed {seed}, {done} of {self._runs} done")

    def clear(self) -> None:
        """Take the bar away."""
        self._bar.stop()


def _run(seed: int, scenario: Scenario, trace: Path | None) -> Outcome:
    if trace is None:
        return run_seed(seed, scenario)
    with trace.open("w", encoding="utf-8") as file:
        return run_seed(seed, scenario, lambda line: _write(file, line))


def _write(file: TextIO, line: str) -> None:
    file.write(f"{line}\n")


def _tell(outcome: Outcome, seconds: float, faults: list[str]) -> None:
    """Say what was broken and how to see it again."""
    for line in outcome.last_lines:
        print(f"  {line}")
    for violation in outcome.violations:
        print(violation)
    again = f"logboom sim run --seed {outcome.seed} --seconds {seconds:g}"
    again += "".join(f" --fault {name}" for name in faults)
    fail(f"seed {outcome.seed} broke a promise; again: {again} --trace trace.txt")


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.add_typer(sim, name="sim")
