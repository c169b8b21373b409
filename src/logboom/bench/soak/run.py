"""A soak from its first stream to its verdict."""

import random
import shutil
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from logboom.bench import plots, report
from logboom.bench.servers import LogboomServer
from logboom.bench.soak import chaos, readers, writers
from logboom.bench.soak.ledger import Ledger
from logboom.bench.soak.load import BROKER_SETTINGS, FLOWS, SoakLoad
from logboom.bench.soak.samples import METRICS, Flatness, Samples, flatness, sample

DRAIN_TIMEOUT_S = 180.0
JOIN_TIMEOUT_S = 200.0
UNITS = {"memory_mb": "memory, MB", "cpu_percent": "CPU, % of a core", "disk_mb": "data on disk, MB"}


@dataclass
class SoakOutcome:
    """What a soak found. `held` is the verdict: no fault, and flat where that could be judged."""

    load: SoakLoad
    ledger: Ledger
    samples: Samples
    restarts: chaos.Restarts
    flat: list[Flatness]
    scanned: int

    @property
    def held(self) -> bool:
        """Whether nothing happened that may not, and nothing grew."""
        return self.ledger.fault_count == 0 and all(each.flat for each in self.flat)

    def verdict(self) -> list[str]:
        """The verdict in sentences."""
        kills, stops = (len(self.restarts.at_s[kind]) for kind in ("kill -9", "SIGTERM"))
        counts = ", ".join(f"{count:,} {what}" for what, count in sorted(self.ledger.counts.items()))
        acked = self.ledger.total_acked()
        lines = [
            f"{acked:,} records acked in {self.load.minutes:g} minutes; {kills} kill -9, {stops} SIGTERM; {counts}"
        ]
        if self.ledger.fault_count:
            lines += [f"FAULTS: {self.ledger.fault_count}", *self.ledger.faults[:10]]
        else:
            lines.append(f"nothing lost, doubled, reordered or skipped; {self.scanned:,} records read again at the end")
        for each in self.flat:
            grew = f"{each.metric}: median {each.median:g}, {each.growth:+g} over the judged time"
            lines.append(f"{grew} (flat: at most {each.allowed:g}){'' if each.flat else ' IS NOT FLAT'}")
        if not self.flat:
            lines.append("too short to say whether memory and handles are flat")
        return [*lines, "HELD" if self.held else "NOT HELD"]


class _Crew:
    """The threads of a soak. One that dies of an exception is a fault."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._threads: list[threading.Thread] = []

    def start(self, name: str, work: Callable[[], None]) -> None:
        def guarded() -> None:
            try:
                work()
            except Exception as error:  # noqa: BLE001 - outermost edge of a thread: what ends it is reported as a fault
                self._ledger.fault(f"{name} ended: {type(error).__name__}: {error}")

        thread = threading.Thread(target=guarded, name=name, daemon=True)
        thread.start()
        self._threads.append(thread)

    def join(self) -> None:
        deadline = time.monotonic() + JOIN_TIMEOUT_S
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
            if thread.is_alive():
                self._ledger.fault(f"{thread.name} did not end")


def run_soak(load: SoakLoad, directory: Path, note: Callable[[str], None]) -> SoakOutcome:
    """Run a soak against a new broker with its data in `directory`; the data is removed at the end."""
    work = Path(tempfile.mkdtemp(prefix="logboom-soak-", dir=directory))
    server = LogboomServer(work, BROKER_SETTINGS)
    try:
        server.start()
        writers.make_streams(server.address, FLOWS, load.rate)
        return _soaked(load, server, note)
    finally:
        server.stop()
        shutil.rmtree(work, ignore_errors=True)


def _soaked(load: SoakLoad, server: LogboomServer, note: Callable[[str], None]) -> SoakOutcome:
    ledger, samples, restarts = Ledger(), Samples(), chaos.Restarts()
    writing, over = threading.Event(), threading.Event()
    address, rng = server.address, random.Random(load.seed)  # noqa: S311 - lives of members are no secret
    groups = (readers.Group("soak-all", FLOWS, ledger), readers.Group("soak-some", FLOWS[:2], ledger))
    write, read = _Crew(ledger), _Crew(ledger)
    read.start("sampler", lambda: sample(server, ledger.total_acked, samples, over))
    read.start("auditor", lambda: readers.audit(address, FLOWS, ledger, over))
    read.start("slow reader", lambda: readers.read_slowly(address, FLOWS[0], ledger, over))
    for group in groups:
        for number in range(load.group_members):
            own = random.Random(rng.random())  # noqa: S311 - as above
            life = load.member_life_s
            read.start(f"{group.name} {number}", lambda g=group, o=own, s=life: g.member(address, s, o, over))  # type: ignore[misc]
    for flow in FLOWS:
        write.start(flow.stream, lambda f=flow: writers.write_flow(address, f, load.rate, ledger, writing))  # type: ignore[misc]
    write.start("churn", lambda: writers.churn(address, load.churn_pause_s, ledger, writing))
    write.start(
        "chaos",
        lambda: chaos.restart_at_times(server, load, ledger, restarts, writing),
    )
    _tell_while(load.seconds, ledger, writing, note)
    judged_to_s = samples.at_s[-1] if samples.at_s else 0.0
    writing.set()
    note("the load is over; waiting until everything is acked and read ...")
    write.join()
    _drain(ledger, {group.name: group.streams for group in groups})
    over.set()
    read.join()
    note("kill -9, and everything that is kept is read once more ...")
    server.kill9()
    server.start()
    scanned = readers.scan(address, FLOWS, ledger)
    return SoakOutcome(load, ledger, samples, restarts, flatness(samples, load.judged_from_s, judged_to_s), scanned)


def _tell_while(seconds: float, ledger: Ledger, writing: threading.Event, note: Callable[[str], None]) -> None:
    ends, began = time.monotonic() + seconds, time.monotonic()
    while (left := ends - time.monotonic()) > 0 and not writing.wait(min(left, 60.0)):
        passed = (time.monotonic() - began) / 60
        note(f"{passed:.0f} min: {ledger.total_acked():,} records acked, {ledger.fault_count} faults")


def _drain(ledger: Ledger, groups: dict[str, tuple[str, ...]]) -> None:
    deadline = time.monotonic() + DRAIN_TIMEOUT_S
    while behind := ledger.behind(groups):
        if time.monotonic() > deadline:
            for sentence in behind:
                ledger.fault(f"at the end, {sentence}")
            return
        time.sleep(0.1)


def write_soak(folder: Path, outcome: SoakOutcome) -> Path:
    """Write `result.json` and `picture.png`; the folder."""
    data: dict[str, Any] = {
        "load": asdict(outcome.load),
        "flows": [asdict(flow) for flow in FLOWS],
        "stream_configs": {flow.stream: flow.config(outcome.load.rate) for flow in FLOWS},
        "broker_settings": BROKER_SETTINGS,
        "verdict": outcome.verdict(),
        "held": outcome.held,
        "fault_count": outcome.ledger.fault_count,
        "faults": outcome.ledger.faults,
        "counts": outcome.ledger.counts,
        "restarts": asdict(outcome.restarts),
        "flatness": [asdict(each) for each in outcome.flat],
        "scanned_at_the_end": outcome.scanned,
        "samples": asdict(outcome.samples),
    }
    target = report.write(folder, "soak", data)
    panels = {UNITS.get(name, name): outcome.samples.values[name] for name in METRICS}
    panels["records acked/s"] = outcome.samples.acked
    title = f"Soak of {outcome.load.minutes:g} minutes: {'held' if outcome.held else 'NOT held'}"
    plots.timelines(target / "picture.png", title, outcome.samples.at_s, panels, outcome.restarts.at_s)
    return target
