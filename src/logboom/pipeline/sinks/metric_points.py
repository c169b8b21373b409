"""Metrics from events of `aggregate`, for sinks that send metrics.

The event of a metric has the attributes `metric.name`, `metric.type`, `metric.start` and `metric.end` (microseconds
since 1970), `metric.labels`, `metric.value`, and depending on its type `metric.sum`, `metric.bounds`, `metric.buckets`,
`metric.quantiles`. A point covers only its own window. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Final, NamedTuple

import msgspec

from logboom.pipeline.event.record import EventRecord, attributes_of
from logboom.pipeline.sinks.bulk.target import UnfitError

_MICROSECONDS_MAX: Final = 1 << 62
Microseconds = Annotated[int, msgspec.Meta(ge=-_MICROSECONDS_MAX, le=_MICROSECONDS_MAX)]
"""Times must fit in 64 bits in any unit that a server uses."""


class _Metric(msgspec.Struct, rename=lambda name: f"metric.{name}"):
    """The attributes of a metric's event."""

    name: str
    type: str
    end: Microseconds
    value: float
    start: Microseconds | None = None
    labels: dict[str, Any] = {}
    sum: float | None = None
    bounds: list[float] = []
    buckets: list[float] = []
    quantiles: dict[str, float] = {}


class Point(NamedTuple):
    """One metric of one window and group."""

    name: str
    kind: str
    """`count`, `sum`, `min`, `max`, `unique`, `histogram` or `quantiles`."""
    labels: Mapping[str, str]
    end_ms: int
    """Milliseconds since 1970."""
    start_ms: int | None
    value: float
    sum: float | None
    bounds: tuple[float, ...]
    """Upper bounds of a histogram's buckets, increasing; the last bucket has none."""
    buckets: tuple[float, ...]
    """Count of each bucket."""
    quantiles: Mapping[str, float]


def point_of(event: EventRecord) -> Point:
    """Decode the point of an event.

    :raises UnfitError: the event is not a metric.
    """
    try:
        metric = msgspec.convert(attributes_of(event), type=_Metric)
    except msgspec.ValidationError as error:
        raise UnfitError(f"the event is not a metric, such as aggregate makes: {error}") from error
    if metric.buckets and len(metric.buckets) != len(metric.bounds) + 1:
        raise UnfitError("the event is not a metric: its buckets do not match its bounds")
    return Point(
        name=metric.name,
        kind=metric.type,
        labels={name: str(value) for name, value in metric.labels.items() if value not in (None, "")},
        end_ms=metric.end // 1_000,
        start_ms=None if metric.start is None else metric.start // 1_000,
        value=metric.value,
        sum=metric.sum,
        bounds=tuple(metric.bounds),
        buckets=tuple(metric.buckets),
        quantiles=metric.quantiles,
    )


def cumulative(point: Point) -> Iterator[tuple[float, float]]:
    """Cumulative buckets of a histogram: each bound, and the count of values up to it. The last bound is infinite.
    Empty for other types."""
    total = 0.0
    for bound, count in zip((*point.bounds, float("inf")), point.buckets, strict=False):
        total += count
        yield bound, total
