"""The report of a comparison: JSON, a table in Markdown, pictures, and the goals it decides.

A ratio is taken within each round, where both had the same machine, and the median of the rounds is shown.
"""

import statistics
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from logboom.bench import plots, report
from logboom.bench.compare.contestants import CONTESTANTS
from logboom.bench.compare.run import Outcome
from logboom.bench.histogram import merged, table

US = ("logboom", "logboom-rf3")
"""Whose figures are put over those of the others: the first of these that takes part."""
QUOTIENT = "Logboom / this"
RF3_CPU_MAX = 3.5
COLOURS = {each.label: each.colour for each in CONTESTANTS.values()}


def write_outcome(folder: Path, outcome: Outcome) -> tuple[Path, str]:
    """Write `result.json`, `table.md` and the pictures; the folder and the table."""
    target = report.write(folder, "compare", {**outcome.as_json(), "goals": goals(outcome)})
    text = as_markdown(outcome, report.machine())
    (target / "table.md").write_text(text)
    _pictures(target, outcome)
    return target, text


def _samples(outcome: Outcome, case: str, metric: str) -> dict[str, list[float]]:
    taken = outcome.samples.get(case, {})
    return {
        name: [float(sample[metric]) for sample in taken[name]]
        for name, _ in outcome.took_part()
        if name in taken and metric in taken[name][0]
    }


def ratio(outcome: Outcome, case: str, metric: str, peer: str) -> float | None:
    """Logboom's figure over a peer's: the median over the rounds of the quotient within each."""
    samples, us = _samples(outcome, case, metric), us_in(outcome)
    if us not in samples or peer not in samples:
        return None
    return statistics.median(ours / theirs for ours, theirs in zip(samples[us], samples[peer], strict=False))


def us_in(outcome: Outcome) -> str:
    """Whose figures are put over those of the others."""
    return next((name for name in US if name in outcome.load.contestants), US[0])


def goals(outcome: Outcome) -> list[dict[str, Any]]:
    """The goals that stand on a peer: what came out and whether it holds."""
    wanted: list[tuple[str, str, str, str, Callable[[float], bool]]] = []
    for size in (100, 1_000):
        produce, consume = f"produce-{size}", f"consume-{size}"
        at_least, at_most = (lambda got: got >= 1), (lambda got: got <= 1)
        wanted += [
            (f"produce {size} B: rate at least Kafka's without fsync", produce, "records_per_s", "kafka", at_least),
            (f"produce {size} B: CPU at most Kafka's with fsync", produce, "cpu_s_per_million", "kafka-fsync", at_most),
            (f"consume {size} B: at least Kafka's (ConsumerPerformance)", consume, "records_per_s", "kafka", at_least),
            (f"consume {size} B: at least Kafka's (bench's reader)", consume, "raw_records_per_s", "kafka", at_least),
        ]
        replicated = "produce {size} B, 3 replicas, fsync: {what} Kafka's with 3 replicas without fsync"
        wanted += [
            (replicated.format(size=size, what="rate at least"), produce, "records_per_s", "kafka-rf3", at_least),
            (replicated.format(size=size, what="CPU at most"), produce, "cpu_s_per_million", "kafka-rf3", at_most),
            (
                f"produce {size} B: CPU with 3 replicas at most {RF3_CPU_MAX} times that with one",
                *(produce, "cpu_s_per_million", "logboom-rf1", lambda got: got <= RF3_CPU_MAX),
            ),
        ]
    decided = []
    for goal, case, metric, peer, holds in wanted:
        got = ratio(outcome, case, metric, peer)
        if got is not None:
            decided.append({"goal": goal, "ratio": round(got, 3), "held": holds(got)})
    return decided


def as_markdown(outcome: Outcome, machine: dict[str, object]) -> str:
    """One page: the machine, the servers and their fsync settings, a table for each case, the goals."""
    cores, memory = machine["cores"], machine["memory_gib"]
    rounds = f"{outcome.load.rounds} rounds" if outcome.load.rounds > 1 else "One round"
    lines = [
        f"# Logboom and its peers, {machine['time']}",
        "",
        f"{machine['cpu']}, {cores} cores, {memory} GiB, Linux {machine['kernel']}; one disk, loopback, load and",
        f"servers on the same cores. {rounds} in turns, the servers that wait are paused. Medians, the range in",
        f"brackets; '{QUOTIENT}' is taken within each round.",
        "",
        "| | version | fsync |",
        "|---|---|---|",
    ]
    for _, each in outcome.took_part():
        lines.append(f"| {each.label} | {outcome.versions[each.server]} | {each.fsync} |")
    for name, reason in outcome.left_out.items():
        lines.append(f"| {CONTESTANTS[name].label} | left out | {reason} |")
    if outcome.ended_early:
        lines += ["", "The run was ended before everything was measured."]
    for case, title in outcome.titles.items():
        lines += ["", f"## {title}", "", *_case_table(outcome, case)]
    decided = goals(outcome)
    if decided:
        lines += ["", "## Goals", "", "| goal | Logboom over the peer | held |", "|---|---|---|"]
        lines += [f"| {each['goal']} | {each['ratio']:.2f} | {'yes' if each['held'] else 'NO'} |" for each in decided]
    return "\n".join(lines) + "\n"


METRICS: dict[str, tuple[tuple[str, str], ...]] = {
    "produce": (
        ("records_per_s", "messages/s"),
        ("mb_per_s", "MB/s"),
        ("cpu_s_per_million", "server CPU s per million"),
    ),
    "consume": (
        ("records_per_s", "messages/s"),
        ("raw_records_per_s", "messages/s, bench's own reader"),
        ("cpu_s_per_million", "server CPU s per million"),
    ),
    "throughput": (
        ("produce_mb_per_s", "written, MB/s"),
        ("consume_mb_per_s", "read, MB/s"),
    ),
    "start": (
        ("start_s", "start, s"),
        ("idle_rss_mb", "idle memory, MB"),
        ("idle_cpu_percent", "idle CPU, % of a core"),
    ),
    "restart": (("restart_s", "until a write is acked, s"), ("kept_gb", "data, GB")),
}


def _case_table(outcome: Outcome, case: str) -> Iterator[str]:
    group = case.partition("-")[0]
    if group == "latency":
        yield from _latency_table(outcome, case)
        return
    metrics = [(key, word) for key, word in METRICS[group] if _samples(outcome, case, key)]
    columns = [column for key, word in metrics for column in ([word, QUOTIENT] if _is_rate(key) else [word])]
    yield "| | " + " | ".join(columns) + " |"
    yield "|---" * (1 + len(columns)) + "|"
    for name, each in outcome.took_part():
        failure = outcome.failures.get(case, {}).get(name)
        if failure:
            yield f"| {each.label} | failed: {failure} " + "| " * (len(columns) - 1) + "|"
        elif name in outcome.samples.get(case, {}):
            cells = [cell for key, _ in metrics for cell in _cells(outcome, case, key, name)]
            yield f"| {each.label} | " + " | ".join(cells) + " |"


def _is_rate(metric: str) -> bool:
    return metric.endswith("records_per_s") or metric in ("produce_mb_per_s", "consume_mb_per_s")


def _cells(outcome: Outcome, case: str, metric: str, name: str) -> Iterator[str]:
    taken = _samples(outcome, case, metric).get(name)
    if taken is None:
        yield from ("-", "-") if _is_rate(metric) else ("-",)
        return
    spread = f" ({_told(min(taken))}-{_told(max(taken))})" if len(taken) > 1 else ""
    yield _told(statistics.median(taken)) + spread
    if _is_rate(metric):
        got = ratio(outcome, case, metric, name)
        yield "-" if got is None or name == us_in(outcome) else f"{got:.2f}"


def _told(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _latency_table(outcome: Outcome, case: str) -> Iterator[str]:
    taken = outcome.samples.get(case, {})
    labels = {name: each.label for name, each in outcome.took_part()}
    rows = {name: merged([sample["end_to_end"] for sample in taken[name]]) for name in labels if name in taken}
    heading, *cells = table({labels[name]: row for name, row in rows.items()})
    yield "| ms | " + " | ".join(heading[1:]) + " | rate held | server CPU s per million |"
    yield "|---" * (len(heading) + 2) + "|"
    for name, row in zip(rows, cells, strict=True):
        held = "yes" if all(sample["held"] for sample in taken[name]) else "NO"
        used = statistics.median(sample["cpu_s_per_million"] for sample in taken[name])
        yield "| " + " | ".join([*row, held, _told(used)]) + " |"
    for name, reason in outcome.failures.get(case, {}).items():
        yield f"| {labels[name]} | failed: {reason} " + "| " * len(heading) + "|"


def _pictures(target: Path, outcome: Outcome) -> None:
    labels = {name: each.label for name, each in outcome.took_part()}
    for group, metric, file, unit in (
        ("produce", "records_per_s", "produce", "messages/s"),
        ("produce", "cpu_s_per_million", "produce-cpu", "server CPU seconds per million messages"),
        ("consume", "records_per_s", "consume", "messages/s"),
    ):
        panels = {
            title.partition(" (")[0]: {labels[name]: taken for name, taken in _samples(outcome, case, metric).items()}
            for case, title in outcome.titles.items()
            if case.startswith(group) and outcome.samples.get(case)
        }
        if panels:
            plots.grouped_bars(target / f"{file}.png", _headline(group), panels, unit, COLOURS)
    lives = {
        word: {labels[name]: taken for name, taken in _samples(outcome, case, key).items()}
        for case in ("start", "restart")
        for key, word in METRICS[case]
        if outcome.samples.get(case) and key != "kept_gb"
    }
    if lives:
        plots.grouped_bars(target / "lives.png", "Start, idle, restart after kill -9", lives, "", COLOURS)
    _curves(target, outcome, labels)
    _lines(target, outcome, labels)


def _headline(group: str) -> str:
    return {
        "produce": "One producer, one partition: ProducerPerformance (64 KB batches, acks=all); JetStream: nats.go",
        "consume": "One consumer, one partition: ConsumerPerformance; JetStream: nats.go, ordered push consumer",
    }[group]


def _curves(target: Path, outcome: Outcome, labels: dict[str, str]) -> None:
    panels = {
        title.removeprefix("End-to-end latency, "): {
            labels[name]: merged([sample["end_to_end"] for sample in samples])["curve_ms"]
            for name, samples in outcome.samples.get(case, {}).items()
        }
        for case, title in outcome.titles.items()
        if case.startswith("latency") and outcome.samples.get(case)
    }
    if panels:
        title = "End-to-end latency, open loop, from the intended moment"
        plots.curve_panels(target / "latency.png", title, panels, COLOURS)


def _lines(target: Path, outcome: Outcome, labels: dict[str, str]) -> None:
    panels: dict[str, dict[str, dict[int, float]]] = {"written and acked": {}, "read from the page cache": {}}
    for case in outcome.titles:
        if case.startswith("throughput"):
            size = int(case.partition("-")[2])
            for panel, metric in zip(panels.values(), ("produce_mb_per_s", "consume_mb_per_s"), strict=True):
                for name, taken in _samples(outcome, case, metric).items():
                    panel.setdefault(labels[name], {})[size] = statistics.median(taken)
    if any(panels.values()):
        plots.size_lines(target / "throughput.png", "Throughput over the size of a message", panels, COLOURS)
