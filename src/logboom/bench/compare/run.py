"""The order of a comparison: warm all servers, then measure them in turns while the others are paused."""

import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from logboom.bench.compare import lives
from logboom.bench.compare.cases import Case, Consume, Latency, Produce, Sample, Throughput, warm
from logboom.bench.compare.contestants import CONTESTANTS, DEFAULT, Contestant, server_of
from logboom.bench.latency import WELL_KNOWN
from logboom.bench.servers import Server, UnavailableError
from logboom.bench.throughput import SIZES, ThroughputLoad
from logboom.bench.wire import BenchError

CASES = ("produce", "consume", "latency", "throughput", "start", "restart")
Note = Callable[[str], None]


@dataclass(frozen=True)
class CompareLoad:
    """How much is measured; `quick` gives the short form of everything."""

    contestants: tuple[str, ...] = DEFAULT
    only: tuple[str, ...] = CASES
    rounds: int = 3
    warm_s: float = 20.0
    produce_s: float = 20.0
    consume_bytes: int = 1_000_000_000
    latency_s: float = 20.0
    messages: int = 100_000
    size_max_bytes: int = 2 * 1024**3
    """The most that one size of `throughput` writes; fewer messages are sent beyond it."""
    idle_s: float = 10.0
    restart_bytes: int = 4_000_000_000
    latencies: tuple[tuple[int, int], ...] = ()
    """Sizes and rates of the latency runs; none: the four well-known ones."""

    @staticmethod
    def quick(contestants: tuple[str, ...], only: tuple[str, ...]) -> "CompareLoad":
        """Some minutes in all: figures that show an order of magnitude, from a JVM that is hardly warm."""
        return CompareLoad(
            *(contestants, only),
            rounds=1,
            warm_s=6.0,
            produce_s=3.0,
            consume_bytes=200_000_000,
            latency_s=4.0,
            messages=20_000,
            size_max_bytes=256 * 1024**2,
            idle_s=3.0,
            restart_bytes=500_000_000,
        )

    def cases(self) -> list[Case]:
        """The cases that need servers which are up."""
        found: list[Case] = []
        if "produce" in self.only:
            found += [Produce(size, self.produce_s) for size in (100, 1_000)]
        if "consume" in self.only:
            found += [Consume(size, self.consume_bytes) for size in (100, 1_000)]
        if "latency" in self.only:
            rates = self.latencies or WELL_KNOWN
            found += [Latency(size, rate, self.latency_s, min(3.0, self.latency_s)) for size, rate in rates]
        if "throughput" in self.only:
            found += [
                Throughput(size, ThroughputLoad(self.messages, self.size_max_bytes).count(size)) for size in SIZES
            ]
        return found


@dataclass
class Outcome:
    """What came of it: for each case, for each contestant, a sample of each round, or why there is none."""

    load: CompareLoad
    titles: dict[str, str]
    samples: dict[str, dict[str, list[Sample]]]
    failures: dict[str, dict[str, str]]
    left_out: dict[str, str]
    versions: dict[str, str]
    settings: dict[str, dict[str, object]]
    ended_early: bool = False
    """Whether the run was interrupted: what was measured by then is still reported."""

    def add(self, case: str, contestant: str, take: Callable[[], Sample]) -> None:
        """Take a sample; a server that failed a case is left out of its later rounds."""
        if contestant in self.failures.get(case, {}):
            return
        try:
            sample = take()
        except BenchError as error:
            self.failures.setdefault(case, {})[contestant] = str(error)
        else:
            self.samples.setdefault(case, {}).setdefault(contestant, []).append(sample)

    def as_json(self) -> dict[str, Any]:
        """Everything, for a program."""
        return {
            "load": asdict(self.load),
            "contestants": {name: {"label": each.label, "fsync": each.fsync} for name, each in self.took_part()},
            "versions": self.versions,
            "settings": self.settings,
            "left_out": self.left_out,
            "ended_early": self.ended_early,
            "titles": self.titles,
            "samples": self.samples,
            "failures": self.failures,
        }

    def took_part(self, group: str = "") -> list[tuple[str, Contestant]]:
        """The servers that started and that can run the named group of cases, in order."""
        started = [(name, CONTESTANTS[name]) for name in self.load.contestants if name not in self.left_out]
        return [(name, each) for name, each in started if not group or each.only in ("", group)]


def run_compare(load: CompareLoad, directory: Path, note: Note) -> Outcome:
    """Measure all cases; the servers' data lies below `directory` and is removed at the end.

    A peer that is not available or does not start is left out with the reason; BenchError where no server is left. A
    run that is ended by Ctrl-C or SIGTERM returns what it has measured.
    """
    outcome = Outcome(load, {}, {}, {}, {}, {}, {})
    lives.room_for(directory, max(load.size_max_bytes, load.restart_bytes, load.consume_bytes * 2))
    work = Path(tempfile.mkdtemp(prefix="logboom-compare-", dir=directory))
    try:
        with ExitStack() as cleanup:
            servers = _started(load.contestants, work, outcome, cleanup, note)
            if not servers:
                raise BenchError(f"no server could be started: {outcome.left_out}")
            _rounds(outcome, servers, note)
        _lives(outcome, work, note)
    except (KeyboardInterrupt, SystemExit):
        outcome.ended_early = True
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return outcome


def _started(names: Sequence[str], work: Path, outcome: Outcome, cleanup: ExitStack, note: Note) -> dict[str, Server]:
    """The servers of all contestants, each up and paused."""
    servers: dict[str, Server] = {}
    refused: dict[str, str] = {}
    for name in names:
        wanted = CONTESTANTS[name].server
        if wanted not in servers and wanted not in refused:
            server = server_of(wanted, work / wanted)
            note(f"starting {wanted} ...")
            try:
                server.prepare()
                cleanup.callback(server.remove)
                server.start()
            except UnavailableError as error:
                refused[wanted] = str(error)
                note(f"{wanted} is left out: {error}")
            else:
                servers[wanted] = server
                outcome.versions[wanted] = server.version()
                outcome.settings[wanted] = server.settings()
                server.pause()
        if wanted in refused:
            outcome.left_out[name] = refused[wanted]
    return servers


class _Turn:
    """One server's turn: only it runs, and dirty pages are synced before the next turn."""

    def __init__(self, server: Server) -> None:
        self._server = server

    def __enter__(self) -> Server:
        self._server.resume()
        return self._server

    def __exit__(self, *_: object) -> None:
        self._server.pause()
        os.sync()


def _rounds(outcome: Outcome, servers: dict[str, Server], note: Note) -> None:
    cases = outcome.load.cases()
    if not cases:
        return
    for contestant in (each for _, each in outcome.took_part() if not each.only):
        note(f"warming {contestant.label} ...")
        with _Turn(servers[contestant.server]) as server:
            warm(contestant, server, outcome.load.warm_s)
    for case in cases:
        outcome.titles[case.name] = case.title
        for number in range(outcome.load.rounds):
            for name, contestant in outcome.took_part(case.group):
                note(f"{case.name}, round {number + 1} of {outcome.load.rounds}: {contestant.label} ...")
                with _Turn(servers[contestant.server]) as server:
                    outcome.add(case.name, name, lambda s=server, c=contestant, k=case: k.measure(c, s))  # type: ignore[misc]


def _lives(outcome: Outcome, work: Path, note: Note) -> None:
    """The cases that start servers of their own; contestants that share a server start as different ones."""
    load = outcome.load
    for number in range(load.rounds if "start" in load.only else 0):
        outcome.titles["start"] = f"Start with an empty directory, then idle with {lives.IDLE_PARTITIONS} partitions"
        for name, contestant in _one_for_each_server(outcome):
            note(f"start, round {number + 1} of {load.rounds}: {contestant.label} ...")
            outcome.add("start", name, lambda c=contestant: lives.start_and_idle(c, work, load.idle_s))  # type: ignore[misc]
    for name, contestant in _one_for_each_server(outcome) if "restart" in load.only else ():
        outcome.titles["restart"] = f"Restart after kill -9 with {load.restart_bytes / 1e9:g} GB in one partition"
        note(f"restart: {contestant.label} ...")
        outcome.add("restart", name, lambda c=contestant: lives.restart(c, work, load.restart_bytes))  # type: ignore[misc]
        os.sync()


def _one_for_each_server(outcome: Outcome) -> list[tuple[str, Contestant]]:
    found: dict[str, tuple[str, Contestant]] = {}
    for name, contestant in outcome.took_part("start"):
        found.setdefault(contestant.server, (name, contestant))
    return list(found.values())
