"""What a sink holds, read back from its server, so that two sinks can be compared. Knows no particular sink."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Generic, NamedTuple, Protocol, TypeVar

from logboom.pipeline.plan.nodes import Sink

Node = TypeVar("Node", bound=Sink)


class Held(NamedTuple):
    """One event that a sink holds."""

    event_id: str
    service: str
    observed_ms: int
    """When it was seen first, in milliseconds since 1970."""
    arrived_ms: int | None = None
    """When it came to the sink; None if the sink does not say."""
    size_bytes: int | None = None
    """None where events have no size of their own there."""
    weight: float = 1.0
    time_ms: int | None = None
    """Its own time; None if it has none, or the sink does not tell."""


class Since(NamedTuple):
    """Which events are asked for: those that were seen first at that moment or later."""

    ms: int

    @property
    def text(self) -> str:
        """As RFC 3339 writes it."""
        return datetime.fromtimestamp(self.ms / 1_000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _always(sink: Sink) -> None:
    return None


@dataclass(frozen=True, slots=True)
class ReadBack(Generic[Node]):
    """How the server of a sink is asked for what it holds."""

    events: Callable[[Node, Mapping[str, str], Since], Iterator[Held]]
    """With the texts of the sink's credentials by `KeyRef.id`; LogboomError if the server does not tell."""
    hindrance: Callable[[Node], str | None] = _always
    """Why a sink of this kind, as it is set, cannot be asked; the end of a sentence about it. None: it can."""
    is_by_time: Callable[[Node], bool] = lambda _: False
    """Whether the server finds events by their own time alone, and so holds others that were seen first since then."""


def milliseconds_of(text: str | None) -> int | None:
    """Milliseconds since 1970 of a time as events have it; None if it is none.

    >>> milliseconds_of("1970-01-01T00:00:01.5Z"), milliseconds_of("soon")
    (1500, None)
    """
    if not text:
        return None
    try:
        return int(datetime.fromisoformat(text).timestamp() * 1_000)
    except (ValueError, OverflowError):
        return None


class Rows(Protocol):
    """A sink that is a table."""

    @property
    def columns(self) -> tuple[tuple[str, str], ...]:
        """Column and field of the event."""
        ...


def has_only_time(sink: Rows) -> bool:
    """Whether rows have the time of an event, and not when it was seen first."""
    fields = {field for _, field in sink.columns}
    return "observed_time" not in fields and "time" in fields


def hindrance_of_rows(sink: Rows) -> str | None:
    """Why rows cannot be compared: by the columns that the table has."""
    fields = {field for _, field in sink.columns}
    if "event_id" not in fields:
        return "has no column for event_id"
    return None if fields & {"observed_time", "time"} else "has no column for observed_time or time"
