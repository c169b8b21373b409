"""What one Kafka API is to the server: a version range, and a function from a request to a reply.

Handlers know the broker and kio's entities; they never see a socket, and the connection never looks inside a request.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from logboom.kafka.handlers.context import RequestContext
from logboom.kafka.replies import DeferredReply
from logboom.kafka.wire.encoded import EncodedResponse

Entity: TypeAlias = Any
"""A request or response of kio, of the version that the request asks for."""

Reply: TypeAlias = Any
"""Response entity | EncodedResponse | bytes (whole responses with headers, of a run) | Close | None (no response) |
DeferredReply | Awaitable of any of these except the last two."""


class RequestTemplate(Protocol):
    """What requests of an API have in common that differ in their payload alone, so that they need not be parsed."""

    @property
    def prefix(self) -> bytes:
        """The bytes between the correlation id and the payload."""

    @property
    def prefix_end(self) -> int:
        """Position in the request where those bytes end."""

    def payload_of(self, frame: bytearray) -> memoryview | None:
        """The payload of a request that matches; None otherwise. A request that matches must be one that the API's
        reader would read alike."""

    def start(
        self, context: RequestContext, correlation_ids: Sequence[int], payloads: Sequence[memoryview]
    ) -> DeferredReply:
        """Begin a run of matching requests. Their responses are delivered together."""


Handle: TypeAlias = Callable[[RequestContext, Entity], Reply | Awaitable[Reply]]
HandleUnsupported: TypeAlias = Callable[[RequestContext, memoryview, int], EncodedResponse | None]
"""(context, frame, position after the header of version 1) -> response under a version 0 header; None closes."""
TemplateOf: TypeAlias = Callable[[RequestContext, bytearray, int, Entity], RequestTemplate | None]
"""(context, frame, position of the body, the entity read from it) -> the template that further requests may match."""


@dataclass(frozen=True, slots=True)
class Handler:
    """One API. `handle` takes kio's request entity of any version in the range and returns a `Reply`."""

    api_key: int
    min_version: int
    """The oldest version that works."""
    max_version: int
    handle: Handle
    advertised_min_version: int | None = None
    """The oldest version that ApiVersions names, where clients draw wrong conclusions from the true one."""
    handle_unsupported: HandleUnsupported | None = None
    """Answers versions outside the range; without it they close the connection, as in Kafka."""
    template_of: TemplateOf | None = None
    """Finds what further requests will have in common with this one, for an API of many small requests."""
    exclusive: bool = False
    """Begins only when all earlier requests of its connection are answered and the peer reads them: for large
    responses, so that a connection never has two of them in memory."""
    changes: bool = False
    """Changes what requests of other APIs read. Those that come after it on its connection begin once it is done, so
    that they find the change; more requests of the same API begin at once. Kafka works on the requests of a connection
    one by one, and clients rely on that part of it."""
    waits_for_changes: bool = True
    """Whether it waits for such changes. False for what keeps a member in its group: a disk that hangs would cost its
    session."""
    waits_for_append_capacity: bool = False
    """Begins only while the broker's append queues have capacity: for requests whose bytes wait there for the disk,
    whether they are answered before or after."""

    @property
    def served(self) -> str:
        """The versions that are served, for a log line."""
        return f"served are {self.min_version} to {self.max_version}"

    @property
    def first_advertised(self) -> int:
        """The lower end of the range that ApiVersions names."""
        return self.min_version if self.advertised_min_version is None else self.advertised_min_version
