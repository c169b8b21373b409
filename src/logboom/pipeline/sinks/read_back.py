"""Reads the events of a sink back from its server, so that two sinks can be compared. Must not know any particular
sink."""

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
    """When it was first seen, in milliseconds since 1970."""
    arrived_ms: int | None = None
    """When it arrived at the sink; None if the sink does not store that."""
    size_bytes: int | None = None
    """Its size in bytes; None if the sink does not store one."""
    weight: float = 1.0
    time_ms: int | None = None
    """Its own time; None if it has none, or the sink does not store it."""


class Since(NamedTuple):
    """The range of the query: events that were first seen at this time or later."""

    ms: int

    @property
    def text(self) -> str:
        """The time in RFC 3339."""
        return datetime.fromtimestamp(self.ms / 1_000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _always(sink: Sink) -> None:
    return None


@dataclass(frozen=True, slots=True)
class ReadBack(Generic[Node]):
    """How a sink's server is queried for its events."""

    events: Callable[[Node, Mapping[str, str], Since], Iterator[Held]]
    """Yields the events, using the texts of the sink's credentials by `KeyRef.id`; LogboomError if the server does not
    answer."""
    hindrance: Callable[[Node], str | None] = _always
    """Why a sink with these settings cannot be queried, as the end of a sentence; None if it can."""
    is_by_time: Callable[[Node], bool] = lambda _: False
    """Whether the server finds events only by their own time: then some that were first seen later may be missing."""


def milliseconds_of(text: str | None) -> int | None:
    """Milliseconds since 1970 of an event's time; None if it is not valid.

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
    """A sink whose server has a table."""

    @property
    def columns(self) -> tuple[tuple[str, str], ...]:
        """Field of the event, by column."""
        ...


def has_only_time(sink: Rows) -> bool:
    """Whether the table has the event's time, and not when it was first seen."""
    fields = {field for _, field in sink.columns}
    return "observed_time" not in fields and "time" in fields


def hindrance_of_rows(sink: Rows) -> str | None:
    """Why rows cannot be compared, by the columns of the table; None if they can."""
    fields = {field for _, field in sink.columns}
    if "event_id" not in fields:
        return "has no column for event_id"
    return None if fields & {"observed_time", "time"} else "has no column for observed_time or time"
