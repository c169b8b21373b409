"""How much went through a pipeline in a span of time, from its ledgers: by source, route, rule and dial. Pure but for
the ledgers, which are files.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime

import msgspec

from logboom.pipeline.checkpoint.ledger import EMPTY, BatchRecord, Ledger
from logboom.pipeline.plan.dials import Value
from logboom.pipeline.plan.layout import is_direct
from logboom.pipeline.plan.nodes import Plan
from logboom.pipeline.sinks.read_back import Held


class Saving(msgspec.Struct, frozen=True, kw_only=True):
    """What a dial keeps from being delivered."""

    dial: str
    value: Value
    """Where it stood in the last batch of the span."""
    events: int
    """Dropped under the name of its transform."""
    bytes_estimated: int
    """As many bytes as this many events of what was delivered have on the average."""


class RouteVolume(msgspec.Struct, frozen=True, kw_only=True):
    """What left the pipeline by one output."""

    route: str | None
    """The output, as `split.errors`; None if a ledger of an earlier version does not say which of several it was."""
    sinks: tuple[str, ...]
    """That got it: one that the router wrote, or those that are delivered from its edge."""
    events: int
    bytes: int | None
    """None in ledgers of earlier versions."""


class ServiceVolume(msgspec.Struct, frozen=True, kw_only=True):
    """What one sink holds of one service."""

    sink: str
    service: str
    events: int
    stands_for: int
    """Events of the input, by the weights."""
    bytes: int | None
    """None where events have no size of their own in the sink."""


class Volume(msgspec.Struct, frozen=True, kw_only=True):
    """All of it."""

    since_ms: int
    covered_since_ms: int | None
    """The start of the first batch that is counted; ledgers of older ones may be gone. None if there is none."""
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
    """What the batches that began at that moment or later did."""
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
        if rest or not routed:  # of an edge, or from ledgers of earlier versions
            known, sinks = _way_of(plan, name)
            size = None if routed else ledger.out_bytes.get(name)
            yield RouteVolume(route=known, sinks=sinks, events=rest, bytes=size)


def _way_of(plan: Plan, name: str) -> tuple[str | None, tuple[str, ...]]:
    """The output, where it is known, and the sinks behind what a ledger counts as a sink or an edge."""
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
    """What a sink holds, the service with the most events first."""
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
