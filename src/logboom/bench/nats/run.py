"""The order of a run: each load in rounds, in each round everybody in turn, each restarted for it."""

import os
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from logboom.bench.nats.cases import Acked, Case, Plain, Sample, Synchronous
from logboom.bench.nats.contestants import CONTESTANTS, TAKES_PLAIN_ALONE
from logboom.bench.servers import UnavailableError
from logboom.bench.wire import BenchError

CASES = ("plain", "acked", "sync")
Note = Callable[[str], None]


@dataclass(frozen=True)
class NatsLoad:
    """What is measured, how often and how long."""

    contestants: tuple[str, ...] = tuple(CONTESTANTS)
    only: tuple[str, ...] = CASES
    sizes: tuple[int, ...] = (100, 1_024)
    windows: tuple[int, ...] = (1_000, 4_000)
    rounds: int = 3
    seconds: float = 5.0

    def cases(self) -> list[Case]:
        """The loads, in order."""
        found: list[Case] = []
        if "plain" in self.only:
            found += [Plain(size, self.seconds) for size in self.sizes]
        if "acked" in self.only:
            found += [Acked(size, window, self.seconds) for size in self.sizes for window in self.windows]
        if "sync" in self.only:
            found += [Synchronous(size, self.seconds) for size in self.sizes]
        return found

    def takes_part(self, name: str, case: Case) -> bool:
        """Whether a contestant runs a load. Our reader that answers and keeps nothing runs all of them: what it reaches
        is what nats-server and the publisher leave to whoever stores something."""
        return name not in TAKES_PLAIN_ALONE or case.group == "plain"


@dataclass
class NatsOutcome:
    """What came of it: for each load, for each contestant, a sample of each round, or why there is none."""

    load: NatsLoad
    titles: dict[str, str] = field(default_factory=dict)
    samples: dict[str, dict[str, list[Sample]]] = field(default_factory=dict)
    failures: dict[str, dict[str, str]] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    versions: dict[str, dict[str, str]] = field(default_factory=dict)
    settings: dict[str, dict[str, dict[str, object]]] = field(default_factory=dict)
    ended_early: bool = False

    def as_json(self) -> dict[str, Any]:
        """Everything, for a program."""
        names = {name: {"label": CONTESTANTS[name].label, "fsync": CONTESTANTS[name].fsync} for name in self.took_part}
        return {**asdict(self), "contestants": names}

    @property
    def took_part(self) -> list[str]:
        """Who could be had."""
        return [name for name in self.load.contestants if name not in self.left_out]

    def values(self, case: str, name: str, metric: str) -> list[float]:
        """One figure of each round."""
        return [float(sample[metric]) for sample in self.samples.get(case, {}).get(name, []) if metric in sample]


def run_nats(load: NatsLoad, directory: Path, note: Note) -> NatsOutcome:
    """Measure everything; what the servers keep lies below `directory` meanwhile, and is removed.

    Who cannot be had is left out, with the reason. A run that is ended by Ctrl-C or SIGTERM returns what it has.
    """
    outcome = NatsOutcome(load)
    work = Path(tempfile.mkdtemp(prefix="logboom-bench-", dir=directory))
    try:
        for case in load.cases():
            outcome.titles[case.name] = case.title
            for number in range(load.rounds):
                for name in outcome.took_part:
                    if load.takes_part(name, case) and name not in outcome.failures.get(case.name, {}):
                        note(f"{case.name}, round {number + 1} of {load.rounds}: {CONTESTANTS[name].label} ...")
                        _take(outcome, case, name, work / name)
                        os.sync()  # nobody's write-back is to fall into another's turn
    except (KeyboardInterrupt, SystemExit):
        outcome.ended_early = True
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return outcome


def _take(outcome: NatsOutcome, case: Case, name: str, directory: Path) -> None:
    contestant = CONTESTANTS[name](directory)
    try:
        with contestant.running() as subject:
            sample = case.measure(contestant, subject)
            outcome.versions[name] = contestant.versions()
            outcome.settings[name] = contestant.settings()
    except UnavailableError as error:
        outcome.left_out[name] = str(error)
    except BenchError as error:
        outcome.failures.setdefault(case.name, {})[name] = str(error)
    else:
        outcome.samples.setdefault(case.name, {}).setdefault(name, []).append(sample)
