"""The interface of a server-specific target: encode an event, send encoded events, report the results.

Knows events. Must not know Spark, batches, or how often something is tried.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from logboom.base.errors import LogboomError
from logboom.pipeline.event.record import EventRecord


class TryAgainError(LogboomError):
    """The server did not accept a request, but may accept it later: no connection, no answer in time, too many
    requests."""

    def __init__(self, reason: str, *, pause_s: float | None = None, is_overload: bool = False) -> None:
        super().__init__(reason)
        self.pause_s = pause_s
        """Seconds that the server asks to wait."""
        self.is_overload = is_overload
        """Whether fewer concurrent requests would help."""


class RefusedWholeError(LogboomError):
    """The server refuses a request for its content, without saying which event is the cause."""


class GiveUpError(LogboomError):
    """No request can succeed at the moment, for example because of a wrong address or a refused credential."""


class UnfitError(LogboomError):
    """The server could never accept this event, so it becomes a dead letter unsent. The text is the reason."""


class Item(NamedTuple):
    """An encoded event, and the record of the edge that contains it."""

    place: str
    """`STREAM/PARTITION` of the record."""
    offset: int
    value: bytes
    """The record's value: the event as JSON."""
    event_id: str
    payload: bytes
    """The result of `Target.encode`."""
    group: str = ""
    order: int = 0


class Encoded(NamedTuple):
    """An event as encoded by a target."""

    payload: bytes
    group: str = ""
    """Events with different groups are sent in different requests, if the server needs that."""
    order: int = 0
    """Sort key within the group, for servers that need an order."""


@dataclass(frozen=True, slots=True)
class BulkResponse:
    """The results of a request's items. Items that are not listed were accepted."""

    refused: Mapping[int, str] = field(default_factory=dict)
    """The server's reason for refusing an item for good, by index."""
    again: Mapping[int, str] = field(default_factory=dict)
    """Why an item must be sent again, by index."""
    repeats: int = 0
    """Number of items that the server already had."""
    is_overload: bool = False
    """Whether items must be sent again because the server is overloaded."""
    pause_s: float | None = None
    """Seconds that the server asks to wait."""


class Target(Protocol):
    """A connection to a server, in one task. Several threads call `send` at the same time."""

    def encode(self, event: EventRecord, value: bytes) -> Encoded:
        """Encode an event for the server; `value` is its JSON.

        :raises UnfitError: the server could never accept it.
        :raises ValueError: it has values that events cannot have; the same for OverflowError and the errors in
        `NOT_JSON`.
        """
        ...

    def send(self, items: Sequence[Item]) -> BulkResponse:
        """Send one request. Takes a bounded time.

        :raises TryAgainError: the server may accept it later.
        :raises RefusedWholeError: the server refuses it because of some of its items.
        :raises GiveUpError: no request can succeed at the moment.
        """
        ...

    def probe(self) -> None:
        """Check whether the server would accept requests, without writing events; raises the same errors as `send`."""
        ...

    def close(self) -> None:
        """Close its connections. Requests in progress fail."""
        ...


class StagingTarget(ABC):
    """A target whose server stages items until the driver commits them.

    Items count as delivered only after the commit. Its requests are sent one at a time (`Sending.concurrency` is 1).
    """

    @abstractmethod
    def finish(self, taken: int) -> str | None:
        """Finish staging. `taken`: how many items the server has confirmed. Returns the name for the commit, or
        None if there is nothing to commit.

        :raises LogboomError: it is not known whether the server has exactly these items, so they must be staged again.
        """


class TargetSpec(Protocol):
    """Opens a target on an executor. A node of the plan."""

    def open_target(self, secrets: Mapping[str, str]) -> Target:
        """`secrets`: the texts of its credentials by `KeyRef.id`."""
        ...
