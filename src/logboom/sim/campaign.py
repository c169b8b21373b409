"""Many seeds one after the other, or side by side in processes of their own, and what they add up to.

A run has nothing but its seed and its `Job`, so it is the same in whichever process it runs.
"""

import gc
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from multiprocessing import active_children, get_context
from pathlib import Path
from typing import Any, Final, TextIO

from logboom.sim.cluster import run_cluster_seed
from logboom.sim.cluster_scenario import CLUSTER_FAULTS, ClusterScenario
from logboom.sim.coverage import OF_CLUSTERS, OF_ONE_NODE
from logboom.sim.faults import FAULTS
from logboom.sim.outcome import Outcome
from logboom.sim.scenario import Scenario, run_seed
from logboom.sim.schedule import Replay, Schedule
from logboom.sim.shrinking import fewest, kind_of

_RUNS_OF_A_PROCESS: Final = 100
"""After so many runs a process is replaced: what it holds for tracebacks and threads then goes with it."""
_OBJECTS_BETWEEN_COLLECTIONS: Final = 70_000
_HOUR_S: Final = 3_600.0


def fault_names(nodes: int) -> tuple[str, ...]:
    """What may go wrong with so many nodes."""
    return tuple(FAULTS) if nodes == 1 else CLUSTER_FAULTS


@dataclass(frozen=True, slots=True)
class Job:
    """What all runs of a campaign have in common."""

    nodes: int
    troubled_s: float
    faults: tuple[str, ...]
    schedule: Schedule | None = None
    trace: Path | None = None
    """A file that gets every step of the run."""
    stretch: float = 1.0
    """How many times as long as usual pauses are, and faults last at most (`ClusterScenario.stretched`)."""


def run_job(job: Job, seed: int) -> Outcome:
    """Run one seed."""
    with _collecting_seldom():
        if job.trace is None:
            return _run(job, seed, None)
        with job.trace.open("w", encoding="utf-8") as file:
            return _run(job, seed, lambda line: _write(file, line))


@contextmanager
def _collecting_seldom() -> Iterator[None]:
    """Look for garbage in circles a hundredth as often: a run keeps most of what it makes to its end. Then all of it is
    in circles, and would stay while some more runs are made. Nothing of a run hangs on when that is."""
    before = gc.get_threshold()
    gc.set_threshold(_OBJECTS_BETWEEN_COLLECTIONS, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.collect()


def _write(file: TextIO, line: str) -> None:
    file.write(f"{line}\n")


def _run(job: Job, seed: int, watch: Callable[[str], None] | None) -> Outcome:
    if job.nodes == 1:
        return run_seed(seed, Scenario(troubled_s=job.troubled_s, faults=job.faults, schedule=job.schedule), watch)
    scenario = ClusterScenario(nodes=job.nodes, troubled_s=job.troubled_s, schedule=job.schedule)
    return run_cluster_seed(seed, scenario.limited_to(job.faults).stretched(job.stretch), watch)


def run_all(job: Job, seeds: Iterable[int], workers: int) -> Generator[Outcome, None, None]:
    """The outcomes of seeds, in the order in which they end; closing the iterator ends what is under way."""
    if workers == 1:
        yield from (run_job(job, seed) for seed in seeds)
        return
    waiting, left = set[Future[Outcome]](), iter(seeds)
    others = active_children()
    pool = ProcessPoolExecutor(workers, get_context("spawn"), max_tasks_per_child=_RUNS_OF_A_PROCESS)
    try:
        while True:
            while len(waiting) < workers and (seed := next(left, None)) is not None:
                waiting.add(pool.submit(run_job, job, seed))
            if not waiting:
                return
            done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
            yield from (future.result() for future in done)
    finally:
        if waiting:  # left alone, the pool would finish these runs first, at the exit of the process at the latest
            for process in set(active_children()).difference(others):
                process.kill()
        pool.shutdown(cancel_futures=True)


@dataclass
class Totals:
    """What a campaign has done so far."""

    job: Job
    seeds: int = 0
    simulated_s: float = 0.0
    records_acked: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    met: Counter[str] = field(default_factory=Counter)
    failed: list[int] = field(default_factory=list)
    """Seeds that broke a promise."""
    digest: str = ""
    """Of the run that was added last."""

    def add(self, outcome: Outcome) -> None:
        """One more run."""
        self.seeds += 1
        self.simulated_s += outcome.simulated_s
        self.records_acked += outcome.records_acked
        self.faults.update(outcome.faults)
        self.met.update(outcome.met)
        self.met.update({"polls": outcome.polls, "offset commits": outcome.commits})
        self.digest = outcome.digest
        if outcome.violations:
            self.failed.append(outcome.seed)

    @property
    def hours(self) -> float:
        """Hours of simulated time, whatever the size of the cluster."""
        return self.simulated_s / _HOUR_S

    @property
    def never(self) -> list[str]:
        """Faults that may come and never came, and what they should have led to and did not."""
        should_be_met = OF_ONE_NODE if self.job.nodes == 1 else OF_CLUSTERS
        return [
            *(name for name in self.job.faults if not self.faults[name]),
            *(name for name in should_be_met if not self.met[name]),
        ]

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        return {
            "nodes": self.job.nodes,
            "seeds": self.seeds,
            "hours": round(self.hours, 4),
            "records_acked": self.records_acked,
            "failed": sorted(self.failed),
            "faults": dict(sorted(self.faults.items())),
            "met": {name: times for name, times in sorted(self.met.items()) if times},
            "never": self.never,
            "digest": self.digest,
        }


def shrunk(job: Job, failed: Outcome, may_go_on: Callable[[], bool]) -> Replay:
    """The fewest faults under which a seed still breaks the same promise, as far as they were found in time."""
    kind = kind_of(failed.violations)
    quiet = replace(job, trace=None)

    def fails(part: Schedule) -> bool:
        return kind_of(run_job(replace(quiet, schedule=part), failed.seed).violations) == kind

    faults = fewest(failed.schedule, fails, may_go_on)
    return Replay(failed.seed, job.nodes, job.troubled_s, faults, job.stretch, failed.violations)
