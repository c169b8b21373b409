"""What a kind of sink brings: how an event is encoded for its server, how encoded events are sent, what came of it.

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
    """The server did not take a request, but may take it later: no connection, no answer in time, too many requests."""

    def __init__(self, reason: str, *, pause_s: float | None = None, is_overload: bool = False) -> None:
        super().__init__(reason)
        self.pause_s = pause_s
        """How long the server asks to wait."""
        self.is_overload = is_overload
        """Whether fewer requests at once would help."""


class RefusedWholeError(LogboomError):
    """The server refuses a request for what is in it, without saying which of its events it means."""


class GiveUpError(LogboomError):
    """No request can succeed as things are: a wrong address, a credential that is not taken."""


class UnfitError(LogboomError):
    """An event that the server could never take: it dies before anything is sent. The text is the reason."""


class Item(NamedTuple):
    """An event as its server gets it, and the record of the edge that it is in."""

    place: str
    """`STREAM/PARTITION` of the record."""
    offset: int
    value: bytes
    """The record's: the event as JSON."""
    event_id: str
    payload: bytes
    """What `Target.encode` made of it."""
    group: str = ""
    order: int = 0


class Encoded(NamedTuple):
    """What a target makes of one event."""

    payload: bytes
    group: str = ""
    """What events have to have in common that stand together in a request, where the server wants that."""
    order: int = 0
    """Where it stands among those of its group, for servers that want an order."""


@dataclass(frozen=True, slots=True)
class BulkResponse:
    """What became of the items of a request; those that are not named were taken."""

    refused: Mapping[int, str] = field(default_factory=dict)
    """By index: the server's reason for never taking the item."""
    again: Mapping[int, str] = field(default_factory=dict)
    """By index: why the item is to be sent once more."""
    repeats: int = 0
    """Items that the server says it had already."""
    is_overload: bool = False
    """Whether items are to be sent again because the server has too much to do."""
    pause_s: float | None = None
    """How long it asks to wait."""


class Target(Protocol):
    """An open server, in one task. `send` is called by several threads at once."""

    def encode(self, event: EventRecord, value: bytes) -> Encoded:
        """The event for the server; `value` is its JSON.

        :raises UnfitError: the server could never take it.
        :raises ValueError: a value in it is not what fields of events are; so do OverflowError and those of `NOT_JSON`.
        """
        ...

    def send(self, items: Sequence[Item]) -> BulkResponse:
        """One request. Bounded in time.

        :raises TryAgainError: it may be taken later.
        :raises RefusedWholeError: it never will, for one or more of its items.
        :raises GiveUpError: nothing can be sent as things are.
        """
        ...

    def probe(self) -> None:
        """Finds out whether requests would be taken, and writes nothing; raises what `send` would."""
        ...

    def close(self) -> None:
        """Ends its connections, also those of requests under way, which then fail."""
        ...


class StagingTarget(ABC):
    """What a target is beside that whose server keeps what it takes apart, until the driver commits it.

    Nothing of it counts as delivered before. Its requests are sent one after the other (`Sending.concurrency` is 1).
    """

    @abstractmethod
    def finish(self, taken: int) -> str | None:
        """Ends what was staged, of which the server has confirmed so many items; its name for the commit, None where
        there is nothing.

        :raises LogboomError: it cannot be told whether the server has these items and no others, so that they have to
            be staged again.
        """


class TargetSpec(Protocol):
    """How a target is opened on an executor: a node of the plan."""

    def open_target(self, secrets: Mapping[str, str]) -> Target:
        """`secrets`: the texts of its credentials by `KeyRef.id`."""
        ...
