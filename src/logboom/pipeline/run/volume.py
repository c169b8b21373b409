"""The volume of a pipeline in a time range, from its ledgers: by source, route, rule and dial. Pure, except that
ledgers are files."""

from collections.abc import Iterable, Sequence
from datetime import datetime

import msgspec

from logboom.pipeline.checkpoint.ledger import EMPTY, BatchRecord, Ledger
from logboom.pipeline.plan.dials import Value
from logboom.pipeline.plan.layout import is_direct
from logboom.pipeline.plan.nodes import Plan
from logboom.pipeline.sinks.read_back import Held


class Saving(msgspec.Struct, frozen=True, kw_only=True):
    """The effect of a dial on the delivered volume."""

    dial: str
    value: Value
    """Its value in the last batch of the range."""
    events: int
    """Number of events that its transform dropped."""
    bytes_estimated: int
    """Estimated bytes that were not delivered: that number times the average size of delivered events."""


class RouteVolume(msgspec.Struct, frozen=True, kw_only=True):
    """The events that left the pipeline by one output."""

    route: str | None
    """The output, as `split.errors`; None if a ledger of an earlier version does not distinguish several."""
    sinks: tuple[str, ...]
    """The sink that received it: one that the router wrote, or those that are delivered from its edge."""
    events: int
    bytes: int | None
    """None in ledgers of earlier versions."""


class ServiceVolume(msgspec.Struct, frozen=True, kw_only=True):
    """The content of one sink for one service."""

    sink: str
    service: str
    events: int
    stands_for: int
    """Number of input events that they represent, by their weights."""
    bytes: int | None
    """None if the sink does not store sizes."""


class Volume(msgspec.Struct, frozen=True, kw_only=True):
    """The volume of the whole pipeline."""

    since_ms: int
    covered_since_ms: int | None
    """The start of the first counted batch; older ledgers may be deleted. None if there is none."""
    seconds: float
    """From there to the end of the last batch."""
    ledger: Ledger
    routes: tuple[RouteVolume, ...]
    savings: tuple[Saving, ...]
    services: tuple[ServiceVolume, ...] = ()


def started_ms(entry: BatchRecord) -> int:
    """When a batch began, in milliseconds since 1970."""
    return int(datetime.fromisoformat(entry.started_at).timestamp() * 1_000)


def volume_of(plan: Plan, entries: Sequence[BatchRecord], since_ms: int) -> Volume:
    """Sum up the batches that began at or after a time."""
    counted = [entry for entry in entries if started_ms(entry) >= since_ms]
    total = EMPTY
    for entry in counted:
        total = total.plus(entry.ledger)
    first = started_ms(counted[0]) if counted else None
    seconds = 0.0 if first is None else (started_ms(counted[-1]) + counted[-1].duration_ms - first) / 1_000
    turned = counted[-1].dials if counted else {}
    return Volume(
        since_ms=since_ms,
        covered_since_ms=first,
        seconds=seconds,
        ledger=total,
        routes=tuple(_routes(plan, total)),
        savings=tuple(_savings(plan, total, turned)),
    )


def _routes(plan: Plan, ledger: Ledger) -> Iterable[RouteVolume]:
    for name, events in ledger.out.items():
        routed, sizes = ledger.routed.get(name, {}), ledger.routed_bytes.get(name, {})
        for route, count in routed.items():
            yield RouteVolume(route=route, sinks=(name,), events=count, bytes=sizes.get(route))
        rest = events - sum(routed.values())
        if rest or not routed:  # for an edge, or from ledgers of earlier versions
            known, sinks = _way_of(plan, name)
            size = None if routed else ledger.out_bytes.get(name)
            yield RouteVolume(route=known, sinks=sinks, events=rest, bytes=size)


def _way_of(plan: Plan, name: str) -> tuple[str | None, tuple[str, ...]]:
    """The output, if known, and the sinks behind a name that a ledger counts as a sink or an edge."""
    direct = next((sink for sink in plan.sinks if sink.name == name and is_direct(sink)), None)
    if direct is not None:
        return (direct.inputs[0] if len(direct.inputs) == 1 else None), (name,)
    return name, tuple(sink.name for sink in plan.sinks if name in sink.inputs and not is_direct(sink))


def _savings(plan: Plan, ledger: Ledger, turned: dict[str, Value]) -> Iterable[Saving]:
    events_out = sum(ledger.out.values())
    mean_bytes = sum(ledger.out_bytes.values()) / events_out if events_out else 0.0
    for node in plan.transforms:
        for dial in node.dials:
            is_main = dial == node.dials[0] and not dial.name.startswith(f"{node.name}.")
            rule = node.name if is_main else dial.name
            if dropped := ledger.dropped.get(rule, 0):
                yield Saving(
                    dial=dial.name,
                    value=turned.get(dial.name, dial.value),
                    events=dropped,
                    bytes_estimated=round(dropped * mean_bytes),
                )


def by_service(sink: str, events: Iterable[Held]) -> list[ServiceVolume]:
    """The content of a sink by service, the one with the most events first."""
    counts: dict[str, tuple[int, float, int | None]] = {}
    for event in events:
        number, weight, size = counts.get(event.service, (0, 0.0, 0))
        sum_bytes = None if size is None or event.size_bytes is None else size + event.size_bytes
        counts[event.service] = (number + 1, weight + event.weight, sum_bytes)
    ordered = sorted(counts.items(), key=lambda item: (-item[1][0], item[0]))
    return [
        ServiceVolume(sink=sink, service=name, events=number, stands_for=round(weight), bytes=size)
        for name, (number, weight, size) in ordered
    ]
