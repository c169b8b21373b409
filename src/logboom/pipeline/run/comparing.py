"""Two sinks that should hold the same events: how many each has, what one lacks, and how late they came. Pure."""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import msgspec

from logboom.pipeline.sinks.read_back import Held

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
    """From where an event was seen first to its arrival; None if the sink does not tell when events came."""
    latency_p99_ms: int | None
    latency_max_ms: int | None


class Span(NamedTuple):
    """Which events are compared."""

    since_ms: int
    until_ms: int
    """Those that were seen first at that moment or later may be on their way."""
    by_time: bool = False
    """Whether the own times of events have to be in it as well: one of the sinks is searched by these alone."""

    def holds(self, event: Held) -> bool:
        """Whether an event counts."""
        time_ms = event.observed_ms if event.time_ms is None else event.time_ms
        is_seen = self.since_ms <= event.observed_ms < self.until_ms
        return is_seen and (not self.by_time or time_ms >= self.since_ms)


def compare(names: tuple[str, str], held: tuple[Iterable[Held], Iterable[Held]], span: Span) -> tuple[Side, Side]:
    """Both sides of the comparison."""
    first, second = (_by_id(events, span) for events in held)
    return _side(names[0], first, second), _side(names[1], second, first)


class _Found(NamedTuple):
    """What was read of one sink."""

    ids: dict[str, int]
    """Of events that count, with the time of each."""
    others: set[str]
    """Of events that do not: the other sink may say another time of them, as one that keeps whole seconds does."""
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
