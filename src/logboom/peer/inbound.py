"""The connections that other brokers make to this one: who may stay, their requests, and the answers to these.

Until its other side has proven itself a connection costs some memory and a place among a few; where they are all taken,
the oldest is closed, so that whoever opens many and says nothing keeps no broker out. After that, its requests run side
by side; a connection with too many of them, or with answers that are not read, is itself not read for a while.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Final

from logboom.base.errors import LogboomError
from logboom.base.units import KIB, MIB
from logboom.broker.peers import BODY_BYTES_MAX, LANES, ONE_WAY, FrameKind, Lane, PeerIdentity, PeerUnavailableError
from logboom.peer.connection import Connection
from logboom.peer.failures import encode_failure
from logboom.peer.frames import Frame, FrameError, What, size_of
from logboom.peer.handshake import HandshakeError, ListenerHandshake, Session

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from logboom.base.ports import Bytes
    from logboom.peer.services import PeerServices

UNAUTHENTICATED_MAX: Final = 64
PER_BROKER_MAX: Final = 16
"""Connections of one broker: one a lane are needed, and some may be broken without this side knowing it."""
REQUESTS_MAX: Final = 1_024
REQUEST_BYTES_MAX: Final = 64 * MIB
"""Bodies of the requests of one connection that run; above either no more are read."""
_COVERED_WHOLE_BYTES: Final = 16 * KIB
"""An answer of up to this length is under its seal as a whole, whatever it holds."""
_MS_PER_S: Final = 1_000
_KINDS: Final = {int(kind): kind for kind in FrameKind}


class Inbound:
    """All accepted connections of one server. Life: made; `close`, once."""

    def __init__(self, services: PeerServices, seen: Callable[[Session], None]) -> None:
        """`seen` is told who has proven itself."""
        self.services = services
        self.seen = seen
        self.connections: dict[Connection, None] = {}
        self.unauthenticated: dict[Connection, None] = {}
        self.by_broker: dict[PeerIdentity, dict[Connection, None]] = {}
        self.tasks: set[asyncio.Task[None]] = set()

    def accept(self) -> Connection:
        """The protocol of a new connection."""
        metrics = self.services.metrics
        if len(self.unauthenticated) >= UNAUTHENTICATED_MAX:
            oldest = next(iter(self.unauthenticated))
            metrics.crowded_out += 1
            self.services.limit_hits["peer.unauthenticated_connections"] += 1
            self.forget_unauthenticated(oldest)
            oldest.end(f"{UNAUTHENTICATED_MAX} newer connections came before its other side had authenticated itself")
        services = self.services
        handshake = ListenerHandshake(services.keys, lambda: services.own, services.nonce(), lambda: services.processes)
        connection = Connection(self.services, _Accepted(self), handshake)
        metrics.accepted += 1
        self.connections[connection] = self.unauthenticated[connection] = None
        metrics.unauthenticated = len(self.unauthenticated)
        return connection

    def forget_unauthenticated(self, connection: Connection) -> None:
        """Its other side has proven itself, or it has ended."""
        self.unauthenticated.pop(connection, None)
        self.services.metrics.unauthenticated = len(self.unauthenticated)

    def go_on(self) -> None:
        """This broker knows by now who it is: handshakes that waited for it go on."""
        for connection in tuple(self.unauthenticated):
            try:
                connection.shake()
            except (HandshakeError, FrameError) as error:
                connection.end(str(error))

    def end_all(self, reason: str) -> None:
        """End all connections; others may be made."""
        for connection in tuple(self.connections):
            connection.end(reason)

    async def close(self, reason: str) -> None:
        """End all connections, and the handlers that run."""
        self.end_all(reason)
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)


class _Accepted:
    """One of them. A `connection.ConnectionUser`."""

    def __init__(self, inbound: Inbound) -> None:
        self._inbound = inbound
        self._services = inbound.services
        self._session: Session | None = None
        self._requests = 0
        self._request_bytes = 0
        self._unread_answers = False

    def established(self, connection: Connection, session: Session) -> None:
        inbound = self._inbound
        self._session = session
        inbound.forget_unauthenticated(connection)
        others = inbound.by_broker.setdefault(session.other.identity, {})
        others[connection] = None
        if len(others) > PER_BROKER_MAX:
            next(iter(others)).end(f"the same broker has made {PER_BROKER_MAX} newer ones")
        inbound.seen(session)

    def received(self, connection: Connection, frame: Frame) -> None:
        assert self._session is not None
        kind = _KINDS.get(frame.kind)
        if kind is None or LANES[kind] is not self._session.lane:
            raise FrameError(f"a frame of kind {frame.kind} in lane {self._session.lane.name}")
        if frame.what is not (What.POST if kind in ONE_WAY else What.REQUEST):
            raise FrameError(f"a frame of kind {kind.name} that is of form {frame.what.name}")
        if kind in ONE_WAY:
            self._take(kind, frame)
        else:
            self._begin(connection, kind, frame)

    def _take(self, kind: FrameKind, frame: Frame) -> None:
        assert self._session is not None
        handler = self._services.handlers.posts.get(kind)
        if handler is None:
            self._services.metrics.lanes[self._session.lane].dropped_posts += 1
            return
        try:
            handler(self._session.other.identity, frame.body)
        except Exception as error:  # noqa: BLE001 - the outermost frame of a post; a fault ends that post alone
            self._services.log.failure("a frame of another broker failed", error, kind=kind.name)

    def _begin(self, connection: Connection, kind: FrameKind, frame: Frame) -> None:
        assert self._session is not None
        self._services.metrics.lanes[self._session.lane].requests += 1
        self._requests += 1
        self._request_bytes += len(frame.body)
        task: asyncio.Task[Any] = asyncio.get_running_loop().create_task(self._answer(connection, kind, frame))
        self._inbound.tasks.add(task)
        task.add_done_callback(self._inbound.tasks.discard)
        self._regulate(connection)

    async def _answer(self, connection: Connection, kind: FrameKind, frame: Frame) -> None:
        assert self._session is not None
        try:
            handler = await self._services.handlers.for_requests(kind, frame.timeout_ms / _MS_PER_S)
            send_part = partial(self._send, connection, What.PART, frame.number)
            answer = await handler(self._session.other.identity, frame.body, send_part)
            self._send(connection, What.ANSWER, frame.number, answer)
        except LogboomError as error:
            self._refuse(connection, frame, error)
        except Exception as error:  # noqa: BLE001 - the outermost frame of a request; a fault ends that request alone
            self._services.log.failure("a request of another broker failed", error, kind=kind.name)
            self._refuse(connection, frame, PeerUnavailableError("the broker that was asked failed: see its log"))
        finally:
            self._requests -= 1
            self._request_bytes -= len(frame.body)
            self._regulate(connection)

    def _send(self, connection: Connection, what: What, number: int, body: Sequence[Bytes]) -> None:
        size_bytes = size_of(body)
        if size_bytes > BODY_BYTES_MAX:
            raise AssertionError(f"an answer of {size_bytes} bytes is longer than {BODY_BYTES_MAX}")
        connection.send(what, body, number=number, covered=self._covered(size_bytes))

    def _covered(self, size_bytes: int) -> int | None:
        """How many buffers of an answer are under its seal; None for all."""
        assert self._session is not None
        short = size_bytes <= _COVERED_WHOLE_BYTES
        return None if short or self._session.lane is Lane.CONTROL or self._services.seal_records else 1

    def _refuse(self, connection: Connection, frame: Frame, error: LogboomError) -> None:
        assert self._session is not None
        self._services.metrics.lanes[self._session.lane].failed_requests += 1
        connection.send(What.FAILURE, (encode_failure(error),), number=frame.number)

    def unsent_changed(self, connection: Connection, too_much: bool) -> None:
        self._unread_answers = too_much
        self._regulate(connection)

    def _regulate(self, connection: Connection) -> None:
        full = self._requests >= REQUESTS_MAX or self._request_bytes >= REQUEST_BYTES_MAX
        connection.set_reading(not (full or self._unread_answers))

    def lost(self, connection: Connection, reason: str) -> None:
        inbound, metrics = self._inbound, self._services.metrics
        inbound.connections.pop(connection, None)
        inbound.forget_unauthenticated(connection)
        if self._session is None:
            metrics.failed_handshakes += 1
            self._services.log.warning(
                "handshake", "a connection of another broker was refused", why=reason, remote=connection.remote
            )
            return
        others = inbound.by_broker[self._session.other.identity]
        del others[connection]
        if not others:
            del inbound.by_broker[self._session.other.identity]
