"""Two sinks that should hold the same events: how many each has, what one lacks, and how late they came. Pure."""

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from logboom.pipeline.run.sink_contents import Held

SHOWN_MAX: Final = 20


class Side(msgspec.Struct, frozen=True, kw_only=True):
    """One of the two."""

    sink: str
    events: int
    """With different ids."""
    repeats: int
    """Events that are there more than once, counted beyond the first."""
    lacks: int
    """Events that the other has."""
    lacking: tuple[str, ...]
    """Ids of the first of these."""
    latency_p50_ms: int | None
    """From where an event was seen first to its arrival; None where the sink does not tell when events came."""
    latency_p99_ms: int | None
    latency_max_ms: int | None


def compare(names: tuple[str, str], held: tuple[Iterable[Held], Iterable[Held]], until_ms: int) -> tuple[Side, Side]:
    """Both sides; events that were seen first at `until_ms` or later may be on their way and do not count."""
    first, second = (_by_id(events, until_ms) for events in held)
    return _side(names[0], first, second), _side(names[1], second, first)


_Found = tuple[dict[str, int], int, list[int]]
"""Ids with the time of each event, repeats, and latencies."""


def _by_id(events: Iterable[Held], until_ms: int) -> _Found:
    ids: dict[str, int] = {}
    repeats, latencies = 0, []
    for event in events:
        if event.observed_ms >= until_ms:
            continue
        if event.event_id in ids:
            repeats += 1
            continue
        ids[event.event_id] = event.observed_ms
        if event.arrived_ms is not None:
            latencies.append(max(0, event.arrived_ms - event.observed_ms))
    return ids, repeats, sorted(latencies)


def _side(name: str, own: _Found, other: _Found) -> Side:
    ids, repeats, latencies = own
    lacking = sorted((at, event_id) for event_id, at in other[0].items() if event_id not in ids)
    return Side(
        sink=name,
        events=len(ids),
        repeats=repeats,
        lacks=len(lacking),
        lacking=tuple(event_id for _, event_id in lacking[:SHOWN_MAX]),
        latency_p50_ms=_quantile(latencies, 0.5),
        latency_p99_ms=_quantile(latencies, 0.99),
        latency_max_ms=latencies[-1] if latencies else None,
    )


def _quantile(ordered: Sequence[int], part: float) -> int | None:
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))] if ordered else None
