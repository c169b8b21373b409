"""The report of a run: JSON, tables in Markdown, pictures, and the goals that it decides.

A ratio is taken within each round, where both had the same machine, and the median of the rounds is shown.
"""

import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from logboom.bench import plots, report
from logboom.bench.histogram import merged
from logboom.bench.nats.contestants import CONTESTANTS
from logboom.bench.nats.run import NatsOutcome

US: Final = "logboom"
_QUOTIENT: Final = "Logboom / this"
_PLAIN_RATE: Final = 300_000
_LABELS: Final = {name: each.label for name, each in CONTESTANTS.items()}
_COLOURS: Final = {each.label: each.colour for each in CONTESTANTS.values()}
_SHOWN: Final = ("50.0", "99.0", "99.9")


class Goal(NamedTuple):
    """A figure, what it should be at least (or at most), and whether it is."""

    goal: str
    got: float
    held: bool


def write_outcome(folder: Path, outcome: NatsOutcome) -> tuple[Path, str]:
    """Write `result.json`, `table.md` and the pictures; the folder and the table."""
    decided = [each._asdict() for each in goals(outcome)]
    target = report.write(folder, "nats", {**outcome.as_json(), "goals": decided})
    text = as_markdown(outcome, report.machine())
    (target / "table.md").write_text(text)
    _pictures(target, outcome)
    return target, text


def ratio(outcome: NatsOutcome, case: str, metric: str, peer: str) -> float | None:
    """Logboom's figure over a peer's: the median over the rounds of the quotient within each."""
    ours, theirs = (outcome.values(case, name, metric) for name in (US, peer))
    pairs = list(zip(ours, theirs, strict=False))
    return statistics.median(us / them for us, them in pairs) if pairs else None


def goals(outcome: NatsOutcome) -> list[Goal]:
    """What was set out to be reached, as far as this run decides it."""
    found: list[Goal] = []
    for size in outcome.load.sizes:
        rates = outcome.values(f"plain-{size}", US, "records_per_s")
        if rates and size == min(outcome.load.sizes):
            rate = statistics.median(rates)
            found.append(Goal(f"plain {size} B: at least {_PLAIN_RATE:,}/s", rate, rate >= _PLAIN_RATE))
        wanted = [(f"plain-{size}", f"plain {size} B", peer, 0.8) for peer in ("reader", "nats-py")]
        for window in outcome.load.windows:
            case, label = f"acked-{size}-{window}", f"acked {size} B, {window:,} in flight"
            wanted += [(case, label, "jetstream-always", 30.0), (case, label, "jetstream", 1.0)]
        for case, label, peer, least in wanted:
            got = ratio(outcome, case, "records_per_s", peer)
            if got is not None:
                goal = f"{label}: at least {least:g} times {_LABELS[peer]}"
                found.append(Goal(goal, round(got, 3), got >= least))
        got = _latency_ratio(outcome, f"sync-{size}")
        if got is not None:
            goal = f"sync {size} B: p99 at most 2 times fdatasync and a ping of nats-server, their p99 added"
            found.append(Goal(goal, round(got, 3), got <= 2))
    return found


def _latency_ratio(outcome: NatsOutcome, case: str) -> float | None:
    taken = outcome.samples.get(case, {}).get(US, [])
    p99 = [{name: one[name]["percentiles_ms"]["99.0"] for name in ("ack", "ping", "fdatasync")} for one in taken]
    return statistics.median(one["ack"] / (one["ping"] + one["fdatasync"]) for one in p99) if p99 else None


def as_markdown(outcome: NatsOutcome, machine: dict[str, object]) -> str:
    """One page: the machine, who took part with what, a table for each load, the goals."""
    lines = [
        f"# Messages of NATS, {machine['time']}",
        "",
        f"{machine['cpu']}, {machine['cores']} cores, {machine['memory_gib']} GiB, Linux {machine['kernel']}; one",
        "disk, loopback, load (nats.go) and servers on the same cores.",
        f"{outcome.load.rounds} rounds of {outcome.load.seconds:g} s in turns, everybody started anew for each.",
        f"Medians, the range in brackets; '{_QUOTIENT}' is taken within each round.",
        "",
        "| | versions | fsync |",
        "|---|---|---|",
    ]
    for name in outcome.took_part:
        versions = ", ".join(f"{program} {version}" for program, version in outcome.versions.get(name, {}).items())
        lines.append(f"| {_LABELS[name]} | {versions} | {CONTESTANTS[name].fsync} |")
    lines += [f"| {_LABELS[name]} | left out | {reason} |" for name, reason in outcome.left_out.items()]
    if outcome.ended_early:
        lines += ["", "The run was ended before everything was measured."]
    for case, title in outcome.titles.items():
        lines += ["", f"## {title}", "", *(_latencies if case.startswith("sync") else _rates)(outcome, case)]
    decided = goals(outcome)
    if decided:
        lines += ["", "## Goals", "", "| goal | got | held |", "|---|---|---|"]
        lines += [f"| {each.goal} | {_told(each.got)} | {'yes' if each.held else 'NO'} |" for each in decided]
    return "\n".join(lines) + "\n"


def _rates(outcome: NatsOutcome, case: str) -> Iterator[str]:
    yield f"| | messages/s | {_QUOTIENT} | MB/s | CPU s per million: nats-server | broker or subscriber | publisher |"
    yield "|---|---|---|---|---|---|---|"
    for name in outcome.took_part:
        if outcome.samples.get(case, {}).get(name):
            got = ratio(outcome, case, "records_per_s", name)
            taker = "subscriber" if CONTESTANTS[name].fsync == "keeps nothing" else "broker"
            cells = [
                _spread(outcome.values(case, name, "records_per_s")),
                "-" if got is None or name == US else f"{got:.2f}",
                _spread(outcome.values(case, name, "mb_per_s")),
                *(
                    _spread(outcome.values(case, name, f"{process}_cpu_s_per_million"))
                    for process in ("nats-server", taker, "client")
                ),
            ]
            yield f"| {_LABELS[name]} | {' | '.join(cells)} |"
    yield from _failures(outcome, case, 6)


def _latencies(outcome: NatsOutcome, case: str) -> Iterator[str]:
    parts = (("ack", "ack"), ("ping", "ping of nats-server alone"), ("fdatasync", "1 KB write + fdatasync alone"))
    yield "| | " + " | ".join(f"{word}: p50 / p99 / p99.9, ms" for _, word in parts) + " | acks |"
    yield "|---|---|---|---|---|"
    for name in outcome.took_part:
        taken = outcome.samples.get(case, {}).get(name)
        if taken:
            whole = {part: merged([sample[part] for sample in taken]) for part, _ in parts}
            cells = [" / ".join(_told(whole[part]["percentiles_ms"][p]) for p in _SHOWN) for part, _ in parts]
            yield f"| {_LABELS[name]} | {' | '.join(cells)} | {whole['ack']['count']:,} |"
    yield from _failures(outcome, case, 4)


def _failures(outcome: NatsOutcome, case: str, columns: int) -> Iterator[str]:
    for name, reason in outcome.failures.get(case, {}).items():
        yield f"| {_LABELS[name]} | failed: {reason} " + "| " * (columns - 1) + "|"


def _spread(values: Sequence[float]) -> str:
    if not values:
        return "-"
    spread = f" ({_told(min(values))}-{_told(max(values))})" if len(values) > 1 else ""
    return _told(statistics.median(values)) + spread


def _told(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _pictures(target: Path, outcome: NatsOutcome) -> None:
    for file, metric, title, unit in (
        ("rates", "records_per_s", "Messages of NATS: one publisher (nats.go), one stream", "messages/s"),
        ("cpu", "cpu_s_per_million", "CPU of all servers, nats-server included", "CPU seconds per million messages"),
    ):
        panels = {
            case_title: {
                _LABELS[name]: values for name in outcome.took_part if (values := outcome.values(case, name, metric))
            }
            for case, case_title in outcome.titles.items()
            if not case.startswith("sync") and outcome.samples.get(case)
        }
        if panels:
            plots.grouped_bars(target / f"{file}.png", title, panels, unit, _COLOURS)
    curves: dict[str, dict[str, Any]] = {
        title: {
            _LABELS[name]: merged([sample["ack"] for sample in taken])["curve_ms"]
            for name, taken in outcome.samples.get(case, {}).items()
        }
        for case, title in outcome.titles.items()
        if case.startswith("sync") and outcome.samples.get(case)
    }
    if curves:
        plots.curve_panels(target / "sync.png", "Latency of one acked message after the other", curves, _COLOURS)
