"""The requests of one connection that have begun, in order, until their replies are handed to the socket.

Replies leave in the order of the requests, as the protocol asks, though handlers finish in any order. This module knows
routes, correlation ids and the bytes of replies; not how requests arrive, nor when replies are written.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from struct import Struct
from typing import TYPE_CHECKING, Any, Final, Protocol

from logboom.kafka.replies import Close, DeferredReply, Failed
from logboom.kafka.wire.encoded import EncodedResponse, encoded_with_throttle_time, with_throttle_time
from logboom.kafka.wire.error_counts import count_errors
from logboom.kafka.wire.writing import encode

if TYPE_CHECKING:
    from logboom.base.ports import Bytes
    from logboom.kafka.connection.registry import ConnectionRegistry
    from logboom.kafka.connection.state import ConnectionState
    from logboom.kafka.handlers.handler import Handler
    from logboom.kafka.handlers.route import Route
    from logboom.kafka.metrics import KafkaMetrics

_JOIN_BYTES_MAX: Final = 16 * 1024
"""Replies up to this size are joined into one piece; the pieces of larger ones are handed to the socket as they are."""

_RESPONSE_HEADER: Final = Struct(">ii")
_RESPONSE_HEADER_TAGS: Final = Struct(">iiB")


class InflightRequest:
    """A request, or a run of them, from its start until its reply is handed to the socket."""

    __slots__ = (
        "charged_ns",
        "correlation_id",
        "deferred",
        "done",
        "held_bytes",
        "pieces",
        "reply_bytes",
        "requests",
        "route",
        "size_bytes",
        "started_ns",
        "throttle_ms",
    )

    charged_ns: int
    """Set for a client with quotas: the time up to which its use of the event loop has been charged."""

    def __init__(
        self, route: Route, correlation_id: int, size_bytes: int, held_bytes: int, requests: int, started_ns: int
    ) -> None:
        self.route = route
        self.size_bytes = size_bytes
        self.correlation_id = correlation_id
        self.held_bytes = held_bytes
        self.requests = requests
        self.started_ns = started_ns
        self.done = False
        self.deferred: DeferredReply | None = None
        self.pieces: Sequence[Bytes] = ()
        self.reply_bytes = 0
        self.throttle_ms = 0
        """The throttle time of the client's quotas, for the response."""


class ReplyListener(Protocol):
    """The side of a connection that sends replies."""

    def reply_ready(self, only: bool) -> None:
        """The oldest request, or one that changes something, has its reply; `only` if no other request is in flight."""

    def throttle(self, throttle_ms: int) -> None:
        """A reply carries a throttle time."""

    def refuse(self, event: str, why: str) -> None:
        """Log, and close the connection."""

    def fail(self, error: BaseException) -> None:
        """Log a programming error, and close the connection."""


class InflightQueue:
    """See the module."""

    __slots__ = (
        "_changes",
        "_changing",
        "_listener",
        "_metrics",
        "_now_ns",
        "_queue",
        "_registry",
        "_state",
        "_tasks",
        "ready_bytes",
        "requests",
        "size_bytes",
        "unsent_bytes",
    )

    def __init__(
        self,
        listener: ReplyListener,
        state: ConnectionState,
        metrics: KafkaMetrics,
        registry: ConnectionRegistry,
        now_ns: Callable[[], int],
    ) -> None:
        self._listener = listener
        self._state = state
        self._metrics = metrics
        self._registry = registry
        self._now_ns = now_ns
        self._queue: deque[InflightRequest] = deque()
        self._tasks: dict[asyncio.Future[Any], None] = {}
        self._changes = 0
        """Requests in flight that change something, all of one API; see `must_wait_for_changes`."""
        self._changing: Handler | None = None
        """That API, or the last one that changed something."""
        self.requests = 0
        """Requests in flight."""
        self.size_bytes = 0
        """Their memory, decoded elements included."""
        self.ready_bytes = 0
        """Replies that wait for the reply of an earlier request."""
        self.unsent_bytes = 0
        """This connection's part of the server's gauge of reply bytes that peers have not read."""

    def __bool__(self) -> bool:
        return bool(self._queue)

    # --- requests ---

    def begin(
        self, route: Route, correlation_id: int, size_bytes: int, extra_bytes: int = 0, requests: int = 1
    ) -> InflightRequest:
        """Append a request, or a run of them, and count it. `extra_bytes` is the memory of its decoded elements."""
        held_bytes = size_bytes + extra_bytes
        entry = InflightRequest(route, correlation_id, size_bytes, held_bytes, requests, self._now_ns())
        self._queue.append(entry)
        if route.changes:
            self._changes += 1
            self._changing = route.handler
        self.requests += requests
        self.size_bytes += held_bytes
        metrics = self._metrics
        metrics.inflight_requests += requests
        metrics.inflight_bytes += held_bytes
        route.metrics.requests += requests
        route.metrics.request_bytes += size_bytes
        return entry

    def must_wait_for_changes(self, handler: Handler) -> bool:
        """Whether a request has to wait because one of another API in flight changes what it may read."""
        return self._changes > 0 and handler.waits_for_changes and handler is not self._changing

    def await_reply(self, entry: InflightRequest, reply: Any) -> None:
        """Take what a handler returned (`handler.Reply`), at once or when it is ready."""
        if isinstance(reply, DeferredReply):
            entry.deferred = reply
            reply.listen(partial(self._reply_set, entry))
        elif hasattr(reply, "__await__"):
            task = asyncio.ensure_future(reply)
            self._tasks[task] = None
            task.add_done_callback(partial(self._task_done, entry))
        else:
            self._finish(entry, reply)

    # --- replies ---

    def _task_done(self, entry: InflightRequest, task: asyncio.Future[Any]) -> None:
        self._tasks.pop(task, None)
        if task.cancelled():
            return
        error = task.exception()
        if error is not None:
            self._listener.fail(error)
        else:
            self._reply_set(entry, task.result())

    def _reply_set(self, entry: InflightRequest, reply: Any) -> None:
        if self._state.closed:
            return
        try:
            self._finish(entry, reply)
        except Exception as error:  # noqa: BLE001 - a reply that cannot be encoded ends one connection
            self._listener.fail(error)
            return
        queue = self._queue
        if queue and (entry is queue[0] or entry.route.changes):  # a request may have waited for either
            self._listener.reply_ready(len(queue) == 1)

    def _finish(self, entry: InflightRequest, reply: Any) -> None:
        if isinstance(reply, bytes):
            self.complete(entry, (reply,))
            return
        if isinstance(reply, EncodedResponse):
            pieces = reply.pieces
            if reply.throttle_ms:
                self._listener.throttle(reply.throttle_ms)
            if entry.throttle_ms:
                pieces = encoded_with_throttle_time(reply, entry.throttle_ms)
        elif reply is None or isinstance(reply, Close | Failed):
            self._finish_without_reply(entry, reply)
            return
        else:
            count_errors(reply, entry.route.metrics.errors)
            if entry.throttle_ms:
                reply = with_throttle_time(reply, entry.throttle_ms)
            pieces = (encode(reply),)
        self.complete(entry, with_header(entry, pieces))

    def _finish_without_reply(self, entry: InflightRequest, reply: Close | Failed | None) -> None:
        self.complete(entry, ())
        if isinstance(reply, Close):
            self._listener.refuse("request without a reply failed", reply.reason)
        elif isinstance(reply, Failed):
            self._listener.fail(reply.error)

    def complete(self, entry: InflightRequest, pieces: Sequence[Bytes]) -> None:
        """A request has its reply, as bytes to send; no bytes if the client wants no response."""
        entry.done = True
        if entry.route.changes:
            self._changes -= 1
        entry.deferred = None  # it refers to the entry, and a cycle would live until a garbage collection
        entry.pieces = pieces
        api, metrics = entry.route.metrics, self._metrics
        if pieces:
            size = entry.reply_bytes = length(pieces)
            api.replies += entry.requests
            api.reply_bytes += size
            api.time_ns += (self._now_ns() - entry.started_ns) * entry.requests
            self.ready_bytes += size
            self.unsent_bytes += size
            metrics.unsent_bytes += size
        metrics.inflight_requests -= entry.requests
        metrics.inflight_bytes -= entry.held_bytes
        self.size_bytes -= entry.held_bytes
        if self._registry.paused:
            self._registry.resume_paused()

    def take_ready(self) -> list[Bytes]:
        """Remove the requests at the head that have their replies. Returns the bytes of these."""
        queue = self._queue
        out: list[Bytes] = []
        while queue and queue[0].done:
            entry = queue.popleft()
            self.requests -= entry.requests
            self.ready_bytes -= entry.reply_bytes
            out.extend(entry.pieces)
        return out

    def account_unsent(self, buffered_bytes: int) -> None:
        """Update the gauge of unread replies; `buffered_bytes` lie in the transport's write buffer."""
        unsent = self.ready_bytes + buffered_bytes
        self._metrics.unsent_bytes += unsent - self.unsent_bytes
        self.unsent_bytes = unsent

    # --- waiting and the end ---

    @property
    def waits_for_records(self) -> bool:
        """Whether a request waits for something that may never come, as a fetch at the end of its partitions does."""
        return any(entry.deferred is not None and entry.deferred.on_abandoned is not None for entry in self._queue)

    def expire(self, now_s: float) -> None:
        """Notify the handlers of requests whose time is over."""
        for entry in tuple(self._queue):
            deferred = entry.deferred
            if deferred is not None and deferred.expires_at_s <= now_s and deferred.on_expired is not None:
                deferred.on_expired()

    def abandon(self) -> None:
        """The connection was lost: notify handlers, and subtract everything from the server's gauges."""
        metrics = self._metrics
        metrics.unsent_bytes -= self.unsent_bytes
        metrics.inflight_bytes -= self.size_bytes
        metrics.inflight_requests -= sum(entry.requests for entry in self._queue if not entry.done)
        for entry in self._queue:
            if entry.deferred is not None and entry.deferred.on_abandoned is not None:
                entry.deferred.on_abandoned()
        self._queue.clear()

    def cancel_tasks(self) -> None:
        """Cancel the handlers that still run as tasks."""
        for task in tuple(self._tasks):
            task.cancel()


def with_header(entry: InflightRequest, pieces: Sequence[Bytes]) -> Sequence[Bytes]:
    """A response body after its length and header."""
    if not entry.route.response_tags:
        return with_oldest_header(entry.correlation_id, pieces)
    size = length(pieces)
    return _joined(_RESPONSE_HEADER_TAGS.pack(size + 5, entry.correlation_id, 0), pieces, size)


def with_oldest_header(correlation_id: int, pieces: Sequence[Bytes]) -> Sequence[Bytes]:
    """The same with a header of version 0, which clients of every age read."""
    size = length(pieces)
    return _joined(_RESPONSE_HEADER.pack(size + 4, correlation_id), pieces, size)


def _joined(head: bytes, pieces: Sequence[Bytes], size: int) -> Sequence[Bytes]:
    return (b"".join((head, *pieces)),) if size <= _JOIN_BYTES_MAX else (head, *pieces)


def length(pieces: Sequence[Bytes]) -> int:
    """Bytes of all pieces together."""
    if len(pieces) == 1:
        return len(pieces[0])
    return sum(len(piece) for piece in pieces)
