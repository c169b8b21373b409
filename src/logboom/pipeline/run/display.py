"""Shows a pipeline's progress: a live table on a terminal, lines elsewhere, JSON lines for programs, and /metrics.

Knows snapshots. Must not know Spark.
"""

import sys
import time
from collections.abc import Callable, Iterable
from typing import Final, Protocol

import msgspec
from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from logboom.base.units import MIB
from logboom.pipeline.errors import PipelineError
from logboom.pipeline.run.progress import RunProgress, SinkProgress, Snapshot

_PAUSE_MIN_S, _PAUSE_MAX_S = 5.0, 300.0
_NAMESPACE: Final = "logboom_pipeline"
_AT_FIRST: Final = {
    "starting": "starting Spark",
    "waiting": "waiting for its source streams",
    "running": "running, no batch yet",
}
"""Texts for states before the first batch."""


class Display(Protocol):
    """An output for progress."""

    def show(self, snapshot: Snapshot) -> None:
        """Show the current state; called about once a second."""
        ...

    def notify(self, line: str) -> None:
        """Show one sentence to the user."""
        ...

    def close(self, snapshot: Snapshot) -> None:
        """Show the last state."""
        ...


class JsonDisplay:
    """One JSON object per line on standard output."""

    def __init__(self) -> None:
        self._shown: tuple[str, int] | None = None

    def show(self, snapshot: Snapshot) -> None:
        if (snapshot.state, snapshot.batch) != self._shown:
            self._shown = (snapshot.state, snapshot.batch)
            _print(msgspec.json.encode(snapshot).decode())

    def notify(self, line: str) -> None:
        _print(msgspec.json.encode({"message": line}).decode())

    def close(self, snapshot: Snapshot) -> None:
        _print(msgspec.json.encode(snapshot).decode())


class PlainDisplay:
    """One line per batch. If no batch ends although there is work, a line now and then: at once, and then after
    doubling pauses, because a pipeline that waits for its first record has nothing new either. Before the first batch
    each new state is shown, since Spark takes some time to start."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._clock = now
        self._shown = -1
        self._state = ""
        self._pause_s = 0.0
        self._said_at = now()

    def show(self, snapshot: Snapshot) -> None:
        if snapshot.batch != self._shown:
            self._shown = snapshot.batch
            self._say(batch_line(snapshot), _PAUSE_MIN_S)
        elif snapshot.batch < 0 and snapshot.state != self._state:
            self._say(working_line(snapshot), _PAUSE_MIN_S)
        elif _is_busy(snapshot) and self._clock() - self._said_at >= self._pause_s:
            self._say(working_line(snapshot), min(max(2 * self._pause_s, _PAUSE_MIN_S), _PAUSE_MAX_S))

        self._state = snapshot.state

    def _say(self, line: str, pause_s: float) -> None:
        _print(line)
        self._said_at, self._pause_s = self._clock(), pause_s

    def notify(self, line: str) -> None:
        _print(line)

    def close(self, snapshot: Snapshot) -> None:
        _print("\n".join(balance_lines(snapshot)))


class RichDisplay:
    """A table that is redrawn in place."""

    def __init__(self) -> None:
        self._console = Console()
        self._live = Live(Text("starting"), console=self._console, auto_refresh=False)
        self._live.start()

    def show(self, snapshot: Snapshot) -> None:
        self._live.update(_tables(snapshot), refresh=True)

    def notify(self, line: str) -> None:
        self._live.console.print(line, markup=False, highlight=False)

    def close(self, snapshot: Snapshot) -> None:
        self.show(snapshot)
        self._live.stop()
        self._console.print("\n".join(balance_lines(snapshot)), markup=False)


def make_display(*, as_json: bool) -> Display:
    """The display for the kind of standard output."""
    if as_json:
        return JsonDisplay()
    return RichDisplay() if sys.stdout.isatty() else PlainDisplay()


def balance_lines(snapshot: Snapshot) -> list[str]:
    """The balance of this run, as an equation that the user can check."""
    ledger = snapshot.now
    records_in, out = sum(ledger.records_in.values()), sum(ledger.out.values())
    dropped, dead = sum(ledger.dropped.values()), sum(ledger.dead.values())
    settled = "balanced" if ledger.missing == 0 else f"NOT BALANCED, {ledger.missing} records are unaccounted for"
    before, made, held = (sum(some.values()) for some in (ledger.held_before, ledger.made, ledger.held))
    came = f"records in {records_in:,} + copies {ledger.copies:,}"
    came += (f" + made {made:,}" if made else "") + (f" + held before {before:,}" if before else "")
    goes_to = f"out {out:,} + dropped {dropped:,} + dead {dead:,}" + (f" + held {held:,}" if held else "")
    return [
        f"{came} = {goes_to} ({settled}, {ledger.batches} batches)",
        *(_named("out", ledger.out)),
        *(_named("dropped by", ledger.dropped)),
        *(_named("dead at", ledger.dead)),
        *(_named("masked", ledger.masked)),
        *(_named("missed", ledger.missed)),
        *(_named("expression failed of", ledger.failed)),
        *(_named("made by", ledger.made)),
        *(_named("held by", ledger.held)),
        *(_named("remembered by", ledger.remembered)),
        *(_named("noted", ledger.noted)),
        *(_delivered(name, sink) for name, sink in snapshot.sinks.items()),
    ]


def _delivered(name: str, sink: SinkProgress) -> str:
    counts = f"  delivered to {name}: {sink.rows:,}, repeats skipped {sink.repeats:,}, dead {sink.dead:,}"
    waiting = f", waiting {sink.lag:,}" if sink.lag else ""
    return counts + waiting + (f"; the next run tries again what failed: {sink.error}" if sink.error else "")


def _named(word: str, counts: dict[str, int]) -> list[str]:
    return [f"  {word} {name}: {count:,}" for name, count in counts.items() if count]


def batch_line(snapshot: Snapshot) -> str:
    """The last batch alone: its input, results and rate."""
    last = snapshot.last
    records_in = sum(last.records_in.values())
    parts = [
        f"batch {snapshot.batch}",
        f"{snapshot.batch_ms} ms",
        f"in {records_in:,} ({_size(last.bytes_in)})",
        f"out {sum(last.out.values()):,}",
        f"dropped {sum(last.dropped.values()):,}",
        f"dead {sum(last.dead.values()):,}",
        f"{records_in * 1_000 / max(snapshot.batch_ms, 1):,.0f} events/s",
        *_lag(snapshot.lag),
    ]
    failing = [f"{name}: {sink.error}" for name, sink in snapshot.sinks.items() if sink.error]
    return " | ".join([*parts, *failing])


def working_line(snapshot: Snapshot) -> str:
    """What a pipeline is doing between the ends of batches."""
    waiting = [f"{name} has {sink.lag:,} to deliver" for name, sink in snapshot.sinks.items() if sink.lag]
    failing = [f"{name}: {sink.error}" for name, sink in snapshot.sinks.items() if sink.error]
    is_first = snapshot.batch < 0
    behind = [] if is_first else [f"behind batch {snapshot.batch}"]
    state = _AT_FIRST.get(snapshot.state, snapshot.state) if is_first else snapshot.state
    return " | ".join([f"{snapshot.pipeline} {state}", *behind, *_lag(snapshot.lag), *waiting, *failing])


def _is_busy(snapshot: Snapshot) -> bool:
    """Whether there are records to process, or may be: before the first batch this is unknown."""
    if snapshot.state == "delivering":
        return True
    return snapshot.batch < 0 or bool(snapshot.lag) or any(sink.lag or sink.error for sink in snapshot.sinks.values())


def _lag(records: int | None) -> list[str]:
    """Spark reports the lag after the first batch; before that there is nothing to show."""
    return [] if records is None else [f"lag {records:,}"]


def _tables(snapshot: Snapshot) -> Group:
    head = Text(
        f"{snapshot.pipeline} {snapshot.state}  batch {snapshot.batch} in {snapshot.batch_ms} ms  "
        f"{snapshot.events_per_s:,.0f} events/s  {_size(snapshot.bytes_per_s)}/s  " + "".join(_lag(snapshot.lag))
    )
    table = Table("what", "where", "this run", "ever")
    for what, now, ever in (
        ("in", snapshot.now.records_in, snapshot.total.records_in),
        ("out", snapshot.now.out, snapshot.total.out),
        ("dropped by", snapshot.now.dropped, snapshot.total.dropped),
        ("dead at", snapshot.now.dead, snapshot.total.dead),
        ("masked", snapshot.now.masked, snapshot.total.masked),
        ("missed", snapshot.now.missed, snapshot.total.missed),
        ("expression failed", snapshot.now.failed, snapshot.total.failed),
        ("made by", snapshot.now.made, snapshot.total.made),
        ("held by", snapshot.now.held, snapshot.total.held),
        ("remembered", snapshot.now.remembered, snapshot.total.remembered),
        ("noted", snapshot.now.noted, snapshot.total.noted),
    ):
        for name in sorted(set(now) | set(ever)):
            if ever.get(name) or what in ("in", "out"):
                table.add_row(what, name, f"{now.get(name, 0):,}", f"{ever.get(name, 0):,}")
    for name, sink in snapshot.sinks.items():
        state = sink.error or (f"lag {sink.lag}" if sink.lag is not None else "")
        table.add_row("delivered", name, f"{sink.rows:,}", state)
    return Group(head, table)


def _size(size_bytes: float) -> str:
    return f"{size_bytes / MIB:,.1f} MiB"


def _print(text: str) -> None:
    print(text, flush=True)


class PipelineMetrics(Collector):
    """A running pipeline's progress as Prometheus metrics."""

    def __init__(self, progress: RunProgress) -> None:
        self._progress = progress

    def collect(self) -> Iterable[Metric]:
        """The current metrics."""
        snapshot = self._progress.snapshot()
        ledger, name = snapshot.now, snapshot.pipeline
        for word, label, counts, text in (
            ("records_in", "source", ledger.records_in, "Records read"),
            ("records_out", "route", ledger.out, "Records written, by sink or edge"),
            ("records_dropped", "rule", ledger.dropped, "Records dropped by a rule"),
            ("dead_letters", "stage", ledger.dead, "Records that became dead letters"),
            ("masked", "kind", ledger.masked, "Values masked"),
            ("missed", "table", ledger.missed, "Keys that a table did not have, by the transform that looked them up"),
            ("expressions_failed", "rule", ledger.failed, "Expressions that failed on a record"),
            ("made", "transform", ledger.made, "Events that a transform made of others"),
            ("noted", "what", ledger.noted, "What else transforms count, as transform and name"),
            ("delivered", "sink", {sink: at.rows for sink, at in snapshot.sinks.items()}, "Events delivered"),
            ("delivery_failures", "sink", {sink: at.failures for sink, at in snapshot.sinks.items()}, "Failed tries"),
        ):
            family = CounterMetricFamily(f"{_NAMESPACE}_{word}", text, labels=["pipeline", label])
            for key, count in counts.items():
                family.add_metric([name, key], count)
            yield family
        dials = GaugeMetricFamily(
            f"{_NAMESPACE}_dial",
            "Position of a dial in the last batch; a switch is 1 or 0",
            labels=["pipeline", "dial"],
        )
        for dial, at in snapshot.dials.items():
            dials.add_metric([name, dial], float(at))
        yield dials
        for word, values, text in (
            ("held", snapshot.total.held, "Events that a transform has in its state"),
            ("remembered", snapshot.total.remembered, "Keys, windows and the like that a transform has in its state"),
        ):
            state = GaugeMetricFamily(f"{_NAMESPACE}_{word}", text, labels=["pipeline", "transform"])
            for transform, number in values.items():
                state.add_metric([name, transform], number)
            yield state
        for word, value, text in (
            ("bytes_in", ledger.bytes_in, "Bytes of the values read"),
            ("bytes_out", ledger.bytes_out, "Bytes of the values written"),
            ("copies", ledger.copies, "Records that exist because one went several ways"),
            ("batches", ledger.batches, "Batches of the router"),
            ("restarts", snapshot.restarts, "Restarts of Spark after its JVM had ended, in one run"),
        ):
            total = CounterMetricFamily(f"{_NAMESPACE}_{word}", text, labels=["pipeline"])
            total.add_metric([name], value)
            yield total
        for word, gauge, text in (
            ("batch_duration_seconds", snapshot.batch_ms / 1_000, "Time the last batch took"),
            ("lag_records", snapshot.lag or 0, "Records of the sources not yet read"),
            ("unbalanced_records", snapshot.missing, "Records unaccounted for; always 0"),
        ):
            now = GaugeMetricFamily(f"{_NAMESPACE}_{word}", text, labels=["pipeline"])
            now.add_metric([name], gauge)
            yield now


class MetricsPage:
    """Serve /metrics on an address, if one is given, until the process ends."""

    def __init__(self, progress: RunProgress, address: tuple[str, int] | None) -> None:
        self._progress = progress
        self._address = address

    def serve(self) -> None:
        """Raises PipelineError if the address cannot be bound."""
        if self._address is None:
            return
        host, port = self._address
        registry = CollectorRegistry()
        registry.register(PipelineMetrics(self._progress))
        try:
            start_http_server(port, addr=host, registry=registry)
        except OSError as error:
            raise PipelineError(f"--http {host}:{port}: {error.strerror}") from error
