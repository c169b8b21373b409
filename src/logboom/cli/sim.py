"""`logboom sim`: run the broker under seeds, in simulated time, and check what its clients saw."""

import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Final, TextIO

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from logboom.cli.common import fail, note, plural
from logboom.sim.cluster import ClusterOutcome, ClusterScenario, run_cluster_seed
from logboom.sim.cluster_faults import NETWORK_FAULTS, NODE_FAULTS
from logboom.sim.faults import FAULTS
from logboom.sim.scenario import Outcome, Scenario, run_seed

_CLUSTER_FAULTS: Final = (*NODE_FAULTS, *NETWORK_FAULTS)
_FAULT_HELP: Final = (
    f"What may go wrong, again and again: {', '.join(FAULTS)}; with several nodes "
    f"{', '.join(_CLUSTER_FAULTS)}. All, unless named."
)
_LINE_EVERY_S: Final = 10.0
_Watch = Callable[[str], None] | None
_RunOne = Callable[[int, _Watch], Outcome | ClusterOutcome]

sim = typer.Typer(no_args_is_help=True, help="Run the broker under seeds, in simulated time.")


@sim.command("run")
def run(
    seed: Annotated[int, typer.Option(help="The first seed.", min=0)] = 0,
    runs: Annotated[int, typer.Option(help="How many seeds, one after the other.", min=1)] = 1,
    seconds: Annotated[float, typer.Option(help="Simulated seconds in which things go wrong.", min=0.1)] = 10.0,
    nodes: Annotated[int, typer.Option(help="Brokers: more than one make a cluster.", min=1, max=7)] = 1,
    fault: Annotated[list[str] | None, typer.Option(help=_FAULT_HELP)] = None,
    trace: Annotated[Path | None, typer.Option(help="Write every step of the run to this file.")] = None,
) -> None:
    """Kill, starve and cut off a simulated broker, and check that what it acknowledged is kept.

    Exits with 1 at the first seed that breaks a promise, and says how to run it again: a seed runs alike each time.
    """
    known = tuple(FAULTS) if nodes == 1 else _CLUSTER_FAULTS
    unknown = sorted(set(fault or ()) - set(known))
    if unknown:
        fail(f"no fault is called {unknown[0]}; there are {', '.join(known)}")
    run_one = _one_node(seconds, fault or known) if nodes == 1 else _cluster(nodes, seconds, fault or known)
    records, faults = 0, Counter[str]()
    with _Meter(runs) as meter:
        for number in range(seed, seed + runs):
            meter.show(number, number - seed)
            outcome = _run(number, run_one, trace)
            records += outcome.records_acked
            faults.update(outcome.faults)
            if outcome.violations:
                meter.clear()
                _tell(outcome, nodes, seconds, fault or [])
    note(f"{plural(runs, 'seed')} held, {records:,} acknowledged records; the last trace is {outcome.digest}")
    note(f"what went wrong: {', '.join(f'{name} {faults[name]}' for name in known if faults[name])}")


def _one_node(seconds: float, faults: Sequence[str]) -> _RunOne:
    scenario = Scenario(troubled_s=seconds, faults=tuple(faults))
    return lambda seed, watch: run_seed(seed, scenario, watch)


def _cluster(nodes: int, seconds: float, faults: Sequence[str]) -> _RunOne:
    scenario = ClusterScenario(
        nodes=nodes,
        troubled_s=seconds,
        node_faults=tuple(name for name in NODE_FAULTS if name in faults),
        network_faults=tuple(name for name in NETWORK_FAULTS if name in faults),
    )
    return lambda seed, watch: run_cluster_seed(seed, scenario, watch)


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


def _run(seed: int, run_one: _RunOne, trace: Path | None) -> Outcome | ClusterOutcome:
    if trace is None:
        return run_one(seed, None)
    with trace.open("w", encoding="utf-8") as file:
        return run_one(seed, lambda line: _write(file, line))


def _write(file: TextIO, line: str) -> None:
    file.write(f"{line}\n")


def _tell(outcome: Outcome | ClusterOutcome, nodes: int, seconds: float, faults: list[str]) -> None:
    """Say what was broken and how to see it again."""
    for line in outcome.last_lines:
        print(f"  {line}")
    for violation in outcome.violations:
        print(violation)
    again = f"logboom sim run --seed {outcome.seed} --seconds {seconds:g}"
    again += f" --nodes {nodes}" if nodes > 1 else ""
    again += "".join(f" --fault {name}" for name in faults)
    fail(f"seed {outcome.seed} broke a promise; again: {again} --trace trace.txt")


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.add_typer(sim, name="sim")
