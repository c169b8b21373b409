"""What one Kafka API is to the door: a version range and a function from a request to a reply.

Handlers know the broker and kio's entities; they never see a socket, and the connection never looks inside a request.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from logboom.base.ports import Bytes

if TYPE_CHECKING:
    from logboom.broker.broker import Broker
    from logboom.kafka.config import KafkaConfig

Entity: TypeAlias = Any
"""A request or response of kio, of the version that was asked for."""


@dataclass(frozen=True, slots=True)
class Encoded:
    """A response body that is bytes already, as pieces to be sent one behind the other."""

    pieces: Sequence[Bytes]


class Later:
    """A reply that somebody will set: what a future is, without a trip through the event loop.

    One listener, one reply, in either order; the broker's completion sets it on the loop. Life: made by a handler,
    given back to the connection, dropped once the reply was taken.
    """

    __slots__ = ("_listener", "_reply", "_set")

    def __init__(self) -> None:
        self._listener: Callable[[Entity | Encoded | None], None] | None = None
        self._reply: Entity | Encoded | None = None
        self._set = False

    def set(self, reply: Entity | Encoded | None) -> None:
        """Give the reply; a second one is an error of the handler."""
        assert not self._set, "a reply is given once"
        self._set = True
        if self._listener is None:
            self._reply = reply
        else:
            self._listener(reply)

    def listen(self, listener: Callable[[Entity | Encoded | None], None]) -> None:
        """Call `listener` with the reply, at once when it is there."""
        if self._set:
            listener(self._reply)
        else:
            self._listener = listener


Reply: TypeAlias = Any
"""Response entity | Encoded | None (nothing is sent) | Later | Awaitable of one of the first three."""


@dataclass(frozen=True, slots=True)
class RequestContext:
    """What a handler may know about the request beside its body."""

    broker: Broker
    config: KafkaConfig
    client_id: str
    """Empty where the client gave none."""
    client_host: str
    api_version: int
    correlation_id: int
    on_close: Callable[[Callable[[], None]], None]
    """Registers a function to call when the connection closes before the reply was given."""


Handle: TypeAlias = Callable[[RequestContext, Entity], Reply | Awaitable[Reply]]


@dataclass(frozen=True, slots=True)
class Handler:
    """One API. `handle` takes kio's request entity of any version in the range and gives a `Reply`."""

    api_key: int
    min_version: int
    """The oldest version that works."""
    max_version: int
    handle: Handle
    advertised_min_version: int | None = None
    """The oldest version that ApiVersions names, where clients draw wrong conclusions from the true one."""

    @property
    def first_advertised(self) -> int:
        """The lower end of the range that ApiVersions names."""
        return self.min_version if self.advertised_min_version is None else self.advertised_min_version
