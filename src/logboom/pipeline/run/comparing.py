"""Compares two sinks that should have the same events: counts, missing events, and delays. Pure."""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import msgspec

from logboom.pipeline.sinks.read_back import Held

SHOWN_MAX: Final = 20


class Side(msgspec.Struct, frozen=True, kw_only=True):
    """One of the two sinks."""

    sink: str
    events: int
    """Number of events, each id counted once."""
    repeats: int
    """Number of duplicates, not counting the first copy of an event."""
    lacks: int
    """Number of events that only the other sink has."""
    lacking: tuple[str, ...]
    """Ids of the first missing events."""
    latency_p50_ms: int | None
    """Time from when an event was first seen to its arrival; None if the sink does not store arrival times."""
    latency_p99_ms: int | None
    latency_max_ms: int | None


class Span(NamedTuple):
    """The time range of the comparison."""

    since_ms: int
    until_ms: int
    """Events that were first seen at this time or later may still be on their way."""
    by_time: bool = False
    """Whether the events' own times must be in the range, too: one of the sinks can be searched by these only."""

    def holds(self, event: Held) -> bool:
        """Whether an event is in the range."""
        time_ms = event.observed_ms if event.time_ms is None else event.time_ms
        is_seen = self.since_ms <= event.observed_ms < self.until_ms
        return is_seen and (not self.by_time or time_ms >= self.since_ms)


def compare(names: tuple[str, str], held: tuple[Iterable[Held], Iterable[Held]], span: Span) -> tuple[Side, Side]:
    """The result for both sinks."""
    first, second = (_by_id(events, span) for events in held)
    return _side(names[0], first, second), _side(names[1], second, first)


class _Found(NamedTuple):
    """Events read from one sink."""

    ids: dict[str, int]
    """Ids and times of events in the range."""
    others: set[str]
    """Ids of events outside the range: the other sink may have another time for them, for example in whole seconds."""
    repeats: int
    latencies: list[int]


def _by_id(events: Iterable[Held], span: Span) -> _Found:
    ids: dict[str, int] = {}
    others: set[str] = set()
    repeats, latencies = 0, []
    for event in events:
        if not span.holds(event):
            others.add(event.event_id)
            continue
        if event.event_id in ids:
            repeats += 1
            continue
        ids[event.event_id] = event.observed_ms
        if event.arrived_ms is not None:
            latencies.append(max(0, event.arrived_ms - event.observed_ms))
    return _Found(ids, others, repeats, sorted(latencies))


def _side(name: str, own: _Found, other: _Found) -> Side:
    lacking = sorted(
        (at, event_id) for event_id, at in other.ids.items() if event_id not in own.ids and event_id not in own.others
    )
    latencies = own.latencies
    return Side(
        sink=name,
        events=len(own.ids),
        repeats=own.repeats,
        lacks=len(lacking),
        lacking=tuple(event_id for _, event_id in lacking[:SHOWN_MAX]),
        latency_p50_ms=_quantile(latencies, 0.5),
        latency_p99_ms=_quantile(latencies, 0.99),
        latency_max_ms=latencies[-1] if latencies else None,
    )


def _quantile(ordered: Sequence[int], part: float) -> int | None:
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))] if ordered else None
