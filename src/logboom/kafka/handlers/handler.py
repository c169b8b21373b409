"""What one Kafka API is to the door: a version range and a function from a request to a reply.

Handlers know the broker and kio's entities; they never see a socket, and the connection never looks inside a request.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from kio.schema.errors import ErrorCode

from logboom.base.errors import LogboomError
from logboom.base.ports import Bytes
from logboom.kafka.errors import error_code

if TYPE_CHECKING:
    from logboom.broker.broker import Broker
    from logboom.kafka.context import Shared

Entity: TypeAlias = Any
"""A request or response of kio, of the version that was asked for."""


@dataclass(slots=True)
class Encoded:
    """A response body that is bytes already, as pieces to be sent one behind the other.

    Nobody changes one; freezing it would cost each reply of the hot path three times as much to make.
    """

    pieces: Sequence[Bytes]
    throttle_at: int = -1
    """Where the throttle time stands in the first piece; -1 where it does not."""
    throttle_ms: int = 0
    """How long the client has to wait for its next request, as the reply already says."""


@dataclass(frozen=True, slots=True)
class Failed:
    """In place of a reply: a handler went wrong; the connection is closed and the error logged."""

    error: BaseException


@dataclass(frozen=True, slots=True)
class Close:
    """In place of a reply: the connection is closed, which is how a request without a reply tells of an error."""

    why: str


class Later:
    """A reply that somebody will set: what a future is, without a trip through the event loop.

    One listener, one reply, in either order; the broker's completion sets it on the loop. Life: made by a handler,
    given back to the connection, dropped once the reply was taken or the connection closed.
    """

    __slots__ = ("_listener", "_reply", "_set", "expires_at_s", "on_abandoned", "on_expired")

    def __init__(self) -> None:
        self._listener: Callable[[Any], None] | None = None
        self._reply: Any = None
        self._set = False
        self.expires_at_s = float("inf")
        """Monotonic time from which `on_expired` is called, within about a second, unless the reply is there."""
        self.on_expired: Callable[[], None] | None = None
        self.on_abandoned: Callable[[], None] | None = None
        """Called when the connection closes before the reply is there; nobody takes a reply any more."""

    @property
    def is_set(self) -> bool:
        """Whether the reply was given."""
        return self._set

    def set(self, reply: Any) -> None:
        """Give the reply; a second one is an error of the handler."""
        assert not self._set, "a reply is given once"
        self._set = True
        # Both know their handler and it knows this: no circle is left for the garbage collector.
        self.on_expired = self.on_abandoned = None
        listener, self._listener = self._listener, None
        if listener is None:
            self._reply = reply
        else:
            listener(reply)

    def fail(self, error: BaseException) -> None:
        """Tell that there will be no reply, for an error of this program: the connection is closed."""
        self.set(Failed(error))

    def listen(self, listener: Callable[[Any], None]) -> None:
        """Call `listener` with the reply, at once when it is there."""
        if self._set:
            listener(self._reply)
        else:
            self._listener = listener


Reply: TypeAlias = Any
"""Response entity | Encoded | bytes (whole replies with heads, of a run) | Close | None (nothing is sent) | Later |
Awaitable of one of these but the last two."""


@dataclass(frozen=True, slots=True)
class RequestContext:
    """What a handler may know about the request beside its body. Requests of one kind and connection share it."""

    broker: Broker
    shared: Shared
    client_id: str
    """Empty where the client gave none."""
    client_host: str
    api_version: int
    connection: Hashable
    """Stands for the connection: equal for all its requests, and for no other's."""

    def code_of(self, error: LogboomError | None) -> ErrorCode:
        """The code that a client is told for an error; a limit that it names is counted and logged."""
        if error is not None and error.limit:
            self.shared.crossed(error.limit, str(error), client=self.client_host, client_id=self.client_id)
        return error_code(error)

    def now_ms(self) -> int:
        """Monotonic milliseconds."""
        return int(self.broker.clock.monotonic_s() * 1_000)


class Usual(Protocol):
    """Requests of an API that begin with the same bytes, and so ask for the same; their payload alone differs."""

    @property
    def begin(self) -> bytes:
        """The bytes between the correlation id and the payload."""

    @property
    def end(self) -> int:
        """Where those bytes end in a request."""

    def payload_of(self, frame: bytearray) -> memoryview | None:
        """The payload of a request of this kind, None of any other. Whatever it takes, the API's reader takes alike."""

    def start(self, context: RequestContext, correlation_ids: Sequence[int], payloads: Sequence[memoryview]) -> Later:
        """Begin requests that came together; their replies come together."""


Handle: TypeAlias = Callable[[RequestContext, Entity], Reply | Awaitable[Reply]]
HandleUnsupported: TypeAlias = Callable[[RequestContext, memoryview, int], Encoded | None]
"""(context, frame, position behind the header of version 1) -> reply under a version 0 header; None closes."""
UsualOf: TypeAlias = Callable[[RequestContext, bytearray, int, Entity], Usual | None]
"""(context, frame, position of the body, the entity read from it) -> what requests like it have in common."""


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
    handle_unsupported: HandleUnsupported | None = None
    """Answers versions outside the range; without it they close the connection, as in Kafka."""
    usual: UsualOf | None = None
    """Finds requests that need no reader, for the API that has many small ones."""
    alone: bool = False
    """Begun only when all earlier requests of its connection are answered and the peer reads: for replies of many
    bytes, so that a connection never has two of them in memory."""

    stages: bool = False
    """Begun only while what waits for the disk leaves room: for requests whose bytes wait there, answered or not."""

    @property
    def served(self) -> str:
        """The versions that are served, for a sentence."""
        return f"served are {self.min_version} to {self.max_version}"

    @property
    def first_advertised(self) -> int:
        """The lower end of the range that ApiVersions names."""
        return self.min_version if self.advertised_min_version is None else self.advertised_min_version
