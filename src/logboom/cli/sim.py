"""`logboom sim`: run brokers under seeds, in simulated time, and check what their clients saw."""

import json
import os
import re
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

from logboom.cli.common import AsJson, fail, note, plural, print_json, print_table
from logboom.sim.campaign import Job, Totals, fault_names, run_all, run_job, shrunk
from logboom.sim.outcome import Outcome
from logboom.sim.schedule import Replay, ScheduleError

_CLUSTER_SIZE: Final = 3
_FAULT_HELP: Final = (
    f"Faults to inject; repeatable: {', '.join(fault_names(1))}; with several nodes "
    f"{', '.join(fault_names(_CLUSTER_SIZE))}. All, unless named."
)
_LINE_EVERY_S: Final = 10.0
_RANGE: Final = re.compile(r"(\d+)\.\.(\d+)")

sim = typer.Typer(no_args_is_help=True, help="Run brokers in simulated time, with faults chosen by seeds.")


@sim.callback()
def _sim() -> None:
    """Run brokers in simulated time, with faults chosen by seeds."""


@sim.command("run")
def run(
    seed: Annotated[int, typer.Option(help="The first seed.", min=0)] = 0,
    runs: Annotated[
        int | None, typer.Option(help="How many seeds. (default: one, or as many as --hours takes)", min=1)
    ] = None,
    seeds: Annotated[str | None, typer.Option(help="In place of --seed and --runs.", metavar="A..B")] = None,
    hours: Annotated[
        float | None,
        typer.Option(help="Stop after this many simulated hours; uses further seeds, unless named.", min=0),
    ] = None,
    seconds: Annotated[float, typer.Option(help="Simulated seconds of faults in each run.", min=0.1)] = 10.0,
    stretch: Annotated[
        float,
        typer.Option(
            help="Of a cluster: how many times as long clients pause, and faults last and are apart. With 30, runs of "
            "an hour reach what happens after minutes, and cost a fifth.",
            min=1,
            max=100,
        ),
    ] = 1.0,
    nodes: Annotated[int, typer.Option(help="Brokers: more than one make a cluster.", min=1, max=7)] = 1,
    fault: Annotated[list[str] | None, typer.Option(help=_FAULT_HELP)] = None,
    workers: Annotated[int, typer.Option(help="Parallel runs, each in a process; 0: one for each core.", min=0)] = 1,
    keep_going: Annotated[bool, typer.Option(help="Continue after a seed that breaks a promise.")] = False,
    schedule: Annotated[
        Path | None, typer.Option(help="Run the schedule in this file, which a failed run has written.", exists=True)
    ] = None,
    shrink_seconds: Annotated[
        float,
        typer.Option(help="How many seconds to look for the fewest faults that break it.", min=0),
    ] = 120.0,
    into: Annotated[Path, typer.Option(help="The directory for schedules of runs that failed.")] = Path(),
    trace: Annotated[Path | None, typer.Option(help="Write every step to this file; for one seed.")] = None,
    as_json: AsJson = False,
) -> None:
    """Kill, starve and cut off simulated brokers, and check that what they acknowledged is kept.

    Exits with 1 where a seed breaks a promise: at the first one, unless --keep-going. It looks for the fewest faults
    that still break it, writes them to a file, and says how to run that again; a run is the same each time.
    """
    known = fault_names(nodes)
    unknown = sorted(set(fault or ()) - set(known))
    if unknown:
        fail(f"no fault is called {unknown[0]}; there are {', '.join(known)}")
    if stretch > 1 and nodes == 1:
        fail("--stretch is for clusters: name --nodes as well")
    job = Job(nodes, seconds, tuple(fault or known), trace=trace, stretch=stretch)
    if schedule is not None:
        _replay(schedule, job)
        return
    chosen = _seeds(seed, runs, seeds, hours)
    if trace is not None and (len(chosen) != 1 if isinstance(chosen, range) else True):
        fail("--trace is for one seed")
    failures: list[Outcome] = []
    totals = Totals(job)
    _run_until(totals, chosen, hours, workers or os.cpu_count() or 1, keep_going, failures)
    if as_json:
        print_json(totals.as_json())
    else:
        _tell_totals(totals)
    if failures:
        _tell_failure(job, failures, shrink_seconds, into)


def _seeds(first: int, runs: int | None, named: str | None, hours: float | None) -> "range | count[int]":
    if named is not None:
        found = _RANGE.fullmatch(named)
        if found is None or int(found[1]) > int(found[2]):
            fail(f"--seeds takes two numbers that rise, such as 0..99, not {named}")
        return range(int(found[1]), int(found[2]) + 1)
    if runs is None and hours is not None:
        return count(first)
    return range(first, first + (runs or 1))


def _run_until(
    totals: Totals,
    seeds: "range | count[int]",
    hours: float | None,
    workers: int,
    keep_going: bool,
    failures: list[Outcome],
) -> None:
    """Run seeds until they, or the hours, are over, or one fails, or somebody presses Ctrl-C."""

    def wanted() -> Iterator[int]:
        for seed in seeds:
            if hours is not None and totals.hours >= hours:
                return
            yield seed

    whole = len(seeds) if isinstance(seeds, range) else None
    try:
        with _Meter(totals, whole, hours) as meter, closing(run_all(totals.job, wanted(), workers)) as outcomes:
            for outcome in outcomes:
                totals.add(outcome)
                meter.show()
                if outcome.violations:
                    failures.append(outcome)
                    if not keep_going:
                        return
                    meter.say(f"seed {outcome.seed} broke a promise: {outcome.violations[0]}")
    except KeyboardInterrupt:
        note("stopped; this is what was run until now")


class _Meter:
    """How far the runs are: a bar on a terminal, a line now and then elsewhere."""

    def __init__(self, totals: Totals, seeds: int | None, hours: float | None) -> None:
        columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
        self._console = Console(stderr=True)
        self._bar = Progress(*columns, console=self._console, disable=not sys.stderr.isatty(), transient=True)
        self._task = self._bar.add_task("", total=1.0)
        self._totals = totals
        self._seeds, self._hours = seeds, hours
        self._began_s = time.monotonic()
        self._next_line_s = self._began_s + _LINE_EVERY_S

    def __enter__(self) -> "_Meter":
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def show(self) -> None:
        """A seed was run."""
        text = self._text()
        self._bar.update(self._task, description=text, completed=self._done())
        if self._bar.disable and time.monotonic() >= self._next_line_s:
            self._next_line_s = time.monotonic() + _LINE_EVERY_S
            note(text)

    def say(self, text: str) -> None:
        """A line that stays."""
        self._console.print(text, highlight=False, markup=False)

    def _done(self) -> float:
        by_seeds = self._totals.seeds / self._seeds if self._seeds else 0.0
        return max(by_seeds, self._totals.hours / self._hours if self._hours else 0.0)

    def _text(self) -> str:
        totals, took_s = self._totals, time.monotonic() - self._began_s
        failed = f", {len(totals.failed)} failed" if totals.failed else ""
        of = f" of {self._seeds:,}" if self._seeds else ""
        per_s = totals.seeds / took_s if took_s else 0.0
        return f"{totals.seeds:,}{of} seeds, {totals.hours:,.2f} simulated hours, {per_s:.2f} seeds/s{failed}"


# --- what is shown ---------------------------------------------------------------------------------------------------


def _tell_totals(totals: Totals) -> None:
    held = totals.seeds - len(totals.failed)
    if held:
        acked = f"{totals.records_acked:,} acknowledged records"
        note(f"{plural(held, 'seed')} held, {acked}; the last trace is {totals.digest}")
    note(f"simulated: {totals.hours:.3f} hours of {plural(totals.job.nodes, 'broker')}")
    note(f"what went wrong: {_counted(totals.job.faults, totals.faults)}")
    note(f"what came of it: {_counted(sorted(totals.met), totals.met)}")
    if totals.never:
        note(f"what never happened: {', '.join(totals.never)}")


def _counted(names: "list[str] | tuple[str, ...]", times: "dict[str, int]") -> str:
    return ", ".join(f"{name} {times[name]:,}" for name in names if times.get(name)) or "nothing"


def _tell_failure(job: Job, failures: list[Outcome], shrink_s: float, into: Path) -> None:
    """Say what was broken first and how to see it again, and end with an error."""
    outcome = failures[0]
    _tell_broken(outcome)
    note(
        f"looking for the fewest of its {plural(len(outcome.schedule), 'fault')} that break it, at most {shrink_s:g} s"
    )
    until_s = time.monotonic() + shrink_s
    replay = shrunk(job, outcome, lambda: time.monotonic() < until_s)
    into.mkdir(parents=True, exist_ok=True)
    file = into / f"sim-{job.nodes}-{outcome.seed}.json"
    file.write_text(json.dumps(replay.as_json(), indent=1) + "\n", encoding="utf-8")
    _tell_schedule(replay)
    others = sorted(one.seed for one in failures[1:])
    also = f" (and {', '.join(map(str, others))})" if others else ""
    again = f"logboom sim run --seed {outcome.seed} --seconds {job.troubled_s:g}"
    again += f" --nodes {job.nodes}" if job.nodes > 1 else ""
    again += f" --stretch {job.stretch:g}" if job.stretch > 1 else ""
    again += "".join(f" --fault {name}" for name in job.faults if set(job.faults) != set(fault_names(job.nodes)))
    fail(
        f"seed {outcome.seed}{also} broke a promise; again: {again} --trace trace.txt; "
        f"with these faults alone: logboom sim run --schedule {file} --trace trace.txt"
    )


def _tell_broken(outcome: Outcome) -> None:
    for line in outcome.last_lines:
        print(f"  {line}")
    for violation in outcome.violations:
        print(violation)


def _tell_schedule(replay: Replay) -> None:
    rows = [(f"{one.at_s:.3f}", one.lane, one.name, f"{one.length_s:.3f}") for one in replay.faults]
    print_table(("at s", "where", "fault", "for s"), rows)


def _replay(file: Path, job: Job) -> None:
    """Run what a schedule file says."""
    try:
        replay = Replay.from_json(json.loads(file.read_text(encoding="utf-8")))
    except (ScheduleError, ValueError) as error:
        fail(f"{file} holds no schedule: {error}")
    known = fault_names(replay.nodes)
    unknown = sorted({one.name for one in replay.faults} - set(known))
    if unknown:
        fail(f"{file} has a fault that this version does not know: {unknown[0]}; there are {', '.join(known)}")
    again = Job(replay.nodes, replay.troubled_s, known, replay.faults, job.trace, replay.stretch)
    outcome = run_job(again, replay.seed)
    _tell_schedule(replay)
    if outcome.violations:
        _tell_broken(outcome)
        fail(f"seed {replay.seed} broke a promise under this schedule; the trace is {outcome.digest}")
    note(f"the promises held under this schedule; the trace is {outcome.digest}")


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.add_typer(sim, name="sim")
