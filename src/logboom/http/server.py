"""A small HTTP/1 server on asyncio: one request a connection, bounded in connections and in the time of each.

It is meant for metrics and health, which a few clients ask for now and then. A connection goes through these states,
and is closed `request_timeout_s` after it was opened in whichever it is, however slowly its peer sends or reads:

    READING    the head of the request arrives (`request`); EOF or a fault in it is answered with 4xx
    ANSWERING  the application works; what the peer still sends is dropped
    SENDING    the response is on its way, after it the end of the connection

Knows the event loop that it is started on, not what is served. Timers and connections are the loop's, so that a
simulated loop simulates all of it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from email.utils import formatdate
from enum import Enum, auto
from http import HTTPStatus
from typing import Final, cast

from structlog.typing import FilteringBoundLogger

from logboom.base.ports import Clock
from logboom.base.settings import join_address, split_address
from logboom.http.request import METHODS, BadRequestError, HeadReader, Request

_BACKLOG: Final = 64
_WARNING_INTERVAL_S: Final = 10.0
_MS_PER_S: Final = 1_000


@dataclass(frozen=True, slots=True)
class Response:
    """What the application answers with; to HEAD the body is not sent, but its length is."""

    status: HTTPStatus
    body: bytes
    content_type: str = "text/plain; charset=utf-8"
    headers: Iterable[tuple[str, str]] = ()
    """Others than Content-Type and Content-Length."""


Application = Callable[[Request], Awaitable[Response]]


class HttpServer:
    """Life: made anywhere; `start` and `stop` on the loop that it serves on. The counts may be read from any thread."""

    def __init__(
        self,
        application: Application,
        *,
        max_connections: int,
        request_timeout_s: float,
        clock: Clock,
        log: FilteringBoundLogger,
    ) -> None:
        self.application = application
        self.request_timeout_s = request_timeout_s
        self.clock = clock
        self.log = log
        self.refused = 0
        """Connections that were closed at once."""
        self._max_connections = max_connections
        self._connections: dict[_Connection, None] = {}
        self._next_warning_s = 0.0
        self._server: asyncio.Server | None = None

    @property
    def connections(self) -> int:
        """Open connections."""
        return len(self._connections)

    async def start(self, address: str) -> str:
        """Listen; HOST:PORT with the port that the system chose. Raises OSError."""
        host, port = split_address(address)
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Connection(self, loop), host or None, port, backlog=_BACKLOG)
        name = self._server.sockets[0].getsockname()
        return join_address(str(name[0]), int(name[1]))

    async def stop(self) -> None:
        """Stop listening, and abort all connections."""
        if self._server is not None:
            self._server.close()
        for connection in tuple(self._connections):
            connection.abort()
        await asyncio.sleep(0)  # an aborted transport is closed by the next turn of the loop

    def admit(self, connection: "_Connection", client: str) -> bool:
        """Count a new connection; False where there are too many."""
        if len(self._connections) < self._max_connections:
            self._connections[connection] = None
            return True
        self.refused += 1
        if (now_s := self.clock.monotonic_s()) >= self._next_warning_s:
            self._next_warning_s = now_s + _WARNING_INTERVAL_S
            self.log.warning(
                "limit reached",
                limit="http.max_connections",
                why=f"there are {self._max_connections} connections, as many as allowed",
                client=client,
                refused=self.refused,
            )
        return False

    def forget(self, connection: "_Connection") -> None:
        """A connection has ended."""
        self._connections.pop(connection, None)


class _State(Enum):
    READING = auto()
    ANSWERING = auto()
    SENDING = auto()


class _Connection(asyncio.Protocol):
    def __init__(self, server: HttpServer, loop: asyncio.AbstractEventLoop) -> None:
        self._server = server
        self._loop = loop
        self._state = _State.READING
        self._head = HeadReader()
        self._deadline: asyncio.TimerHandle | None = None
        self._answering: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        peer = transport.get_extra_info("peername") or ("unknown",)
        if not self._server.admit(self, str(peer[0])):
            self._state = _State.SENDING
            self._transport.abort()
            return
        self._deadline = self._loop.call_later(self._server.request_timeout_s, self.abort)

    def data_received(self, data: bytes) -> None:
        if self._state is not _State.READING:
            return
        try:
            request = self._head.feed(data)
        except BadRequestError as error:
            self._refuse(error)
            return
        if request is not None:
            self._state = _State.ANSWERING
            self._answering = self._loop.create_task(self._answer(request))

    def eof_received(self) -> bool:
        """Keep the connection open for the response: a client may close its own direction after its request."""
        if self._state is _State.READING and not self._head.empty:
            self._refuse(BadRequestError(HTTPStatus.BAD_REQUEST))
        return self._state is not _State.READING

    def connection_lost(self, error: Exception | None) -> None:
        self._server.forget(self)
        if self._deadline is not None:
            self._deadline.cancel()
        if self._answering is not None:
            self._answering.cancel()

    def abort(self) -> None:
        """Close now, sent or not."""
        self._transport.abort()

    async def _answer(self, request: Request) -> None:
        try:
            response = await self._server.application(request)
        except Exception as error:  # the outermost frame of a request: a bug ends that request only
            self._server.log.error("http request failed", path=request.path, exc_info=error)
            response = Response(HTTPStatus.INTERNAL_SERVER_ERROR, b"failed: see the log of the broker\n")
        self._send(response, with_body=request.method != "HEAD")

    def _refuse(self, error: BadRequestError) -> None:
        allowed = [("Allow", ", ".join(METHODS))] if error.status is HTTPStatus.METHOD_NOT_ALLOWED else []
        self._send(Response(error.status, f"{error}\n".encode(), headers=allowed), with_body=True)

    def _send(self, response: Response, *, with_body: bool) -> None:
        self._state = _State.SENDING
        headers = (
            ("Date", formatdate(self._server.clock.wall_ms() // _MS_PER_S, usegmt=True)),
            ("Server", "logboom"),
            ("Content-Type", response.content_type),
            ("Content-Length", str(len(response.body))),
            ("Connection", "close"),
            *response.headers,
        )
        # HTTP/1.0 says to old clients too that the connection ends with the body.
        lines = [f"HTTP/1.0 {response.status.value} {response.status.phrase}", *(f"{k}: {v}" for k, v in headers)]
        head = ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")
        self._transport.write(head + response.body if with_body else head)
        self._transport.close()
