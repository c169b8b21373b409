"""The way to one other broker in one lane: a connection that this broker makes, and what is sent and asked on it.

    DOWN      nothing; a request or a post makes it dial, at once or when the pause after the last failure is over
    DIALLING  connecting, then the handshake
    UP        frames go out, answers come in

A request that finds it down waits for the next attempt and fails with it. Requests on a connection that breaks fail:
what the other side has done with them is not known.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, NamedTuple

from logboom.base.errors import InvalidRequestError
from logboom.base.ids import BrokerId
from logboom.broker.peers import (
    BODY_BYTES_MAX,
    Address,
    FrameKind,
    Lane,
    PartHandler,
    PeerIdentity,
    PeerRefusedError,
    PeerUnavailableError,
)
from logboom.peer.connection import UNSENT_BYTES_MAX, Connection
from logboom.peer.failures import decode_failure
from logboom.peer.frames import NUMBER_MAX, TIMEOUT_MS_MAX, Frame, FrameError, What, size_of
from logboom.peer.handshake import ANY_BROKER, DiallerHandshake, Session

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from logboom.base.ports import Bytes
    from logboom.peer.services import PeerServices

CONNECT_S: Final = 3.0
"""How long a connection may take, without the handshake."""
PAUSE_MIN_S: Final = 0.05
PAUSE_MAX_S: Final = 2.0
CALLS_MAX: Final = 4_096
"""Requests without an answer yet, on one link."""
_JITTER_STEPS: Final = 1_000
_MS_PER_S: Final = 1_000


class _Unsent(NamedTuple):
    """A request that waits for a connection."""

    kind: FrameKind
    body: Sequence[Bytes]
    size_bytes: int
    deadline_s: float


class Link:
    """See the module. Life: made; `close`, once. A `connection.ConnectionUser`."""

    def __init__(
        self,
        services: PeerServices,
        to: BrokerId | None,
        lane: Lane,
        address: Callable[[], Address | None],
        *,
        opened: Callable[[Connection], None],
        closed: Callable[[Connection], None],
    ) -> None:
        """`to` None: whichever broker listens at the address. `address` is asked each time that it dials. `opened` and
        `closed` are told of its connections."""
        self._services = services
        self._to = to
        self._lane = lane
        self._address = address
        self._opened = opened
        self._closed = closed
        self._loop = asyncio.get_running_loop()
        self._counts = services.metrics.lanes[lane]
        self._up: Connection | None = None
        self._shaking: Connection | None = None
        self._dialling: asyncio.Task[None] | None = None
        self._retry: asyncio.TimerHandle | None = None
        self._pause_s = PAUSE_MIN_S
        self._not_before_s = 0.0
        self._number = 0
        self._answers: dict[int, asyncio.Future[memoryview]] = {}
        self._on_part: dict[int, PartHandler] = {}
        self._unsent: dict[int, _Unsent] = {}
        self._unsent_bytes = 0
        self._ended = False
        self.lost_s: float | None = None
        """The loop's time when the last connection broke, by itself or by the other side; None where there is one, or
        never was."""
        self.other: PeerIdentity | None = None
        """Who answered last."""

    @property
    def _name(self) -> str:
        address = self._address()
        where = f" at {address.host}:{address.port}" if address else ""
        return f"the broker{where}" if self._to is None else f"broker {self._to}{where}"

    @property
    def calls(self) -> int:
        """Requests without an answer yet."""
        return len(self._answers)

    @property
    def unsent_bytes(self) -> int:
        """What waits to be sent."""
        return self._unsent_bytes + (0 if self._up is None else self._up.unsent_bytes)

    # --- sending ------------------------------------------------------------------------------------------------

    def post(self, kind: FrameKind, body: Sequence[Bytes]) -> bool:
        """Send a frame that is not answered; False where it was dropped."""
        connection = self._up
        if connection is None:
            self._dial_soon()
        elif connection.unsent_bytes > UNSENT_BYTES_MAX:
            self._services.log.limit_reached(
                "peer.unsent_bytes", f"{self._name} does not read what it is sent", lane=self._lane.name
            )
        elif size_of(body) <= BODY_BYTES_MAX:
            connection.send(What.POST, body, kind=kind)
            return True
        self._counts.dropped_posts += 1
        return False

    async def call(
        self, kind: FrameKind, body: Sequence[Bytes], timeout_s: float, on_part: PartHandler | None = None
    ) -> memoryview:
        """Send a request; its answer. Raises as `Peers.call`."""
        size_bytes = size_of(body)
        if size_bytes > BODY_BYTES_MAX:
            raise InvalidRequestError(
                f"a request of {size_bytes} bytes to {self._name} is longer than {BODY_BYTES_MAX}"
            )
        self._counts.calls += 1
        self._check_room()
        number = self._number = self._number + 1 & NUMBER_MAX
        answer: asyncio.Future[memoryview] = self._loop.create_future()
        self._answers[number] = answer
        if on_part is not None:
            self._on_part[number] = on_part
        deadline = self._loop.call_later(timeout_s, self._expire, number, timeout_s)
        try:
            if self._up is not None:
                self._send(self._up, number, kind, body, timeout_s)
            else:
                self._unsent[number] = _Unsent(kind, body, size_bytes, self._loop.time() + timeout_s)
                self._unsent_bytes += size_bytes
                self._dial_soon()
            return await answer
        finally:
            deadline.cancel()
            self._answers.pop(number, None)
            self._on_part.pop(number, None)
            if (unsent := self._unsent.pop(number, None)) is not None:
                self._unsent_bytes -= unsent.size_bytes

    def _check_room(self) -> None:
        if self._ended:
            why, limit = "this broker is stopping", ""
        elif len(self._answers) >= CALLS_MAX:
            why, limit = f"{CALLS_MAX} requests wait for its answer, as many as allowed", "peer.calls"
        elif self.unsent_bytes > UNSENT_BYTES_MAX:
            why, limit = "it does not read what it is sent", "peer.unsent_bytes"
        else:
            return
        self._counts.failed_calls += 1
        if limit:
            self._services.log.limit_reached(limit, f"{self._name}: {why}", lane=self._lane.name)
        raise PeerUnavailableError(f"{self._name} is not asked: {why}", limit=limit)

    @staticmethod
    def _send(connection: Connection, number: int, kind: FrameKind, body: Sequence[Bytes], timeout_s: float) -> None:
        timeout_ms = max(0, min(round(timeout_s * _MS_PER_S), TIMEOUT_MS_MAX))
        connection.send(What.REQUEST, body, kind=kind, number=number, timeout_ms=timeout_ms)

    def _expire(self, number: int, timeout_s: float) -> None:
        self._fail(number, f"{self._name} did not answer within {timeout_s:g} s")

    def _fail(self, number: int, reason: str, kind: type[PeerUnavailableError] = PeerUnavailableError) -> None:
        answer = self._answers.get(number)
        if answer is not None and not answer.done():
            self._counts.failed_calls += 1
            answer.set_exception(kind(reason))

    def _fail_all(self, reason: str, kind: type[PeerUnavailableError] = PeerUnavailableError) -> None:
        for number in tuple(self._answers):
            self._fail(number, reason, kind)

    # --- dialling -----------------------------------------------------------------------------------------------

    def hurry(self) -> None:
        """The other broker may be reached better than it could: what waits for it waits no longer."""
        self._pause_s, self._not_before_s = PAUSE_MIN_S, 0.0
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None
            self._dial_soon()
        elif self._unsent:
            self._dial_soon()

    def _dial_soon(self) -> None:
        """There is something to send."""
        busy = self._up or self._shaking or self._dialling or self._retry
        address = self._address()
        if busy is not None or self._ended or self._services.own is None or address is None:
            return
        if (wait_s := self._not_before_s - self._loop.time()) > 0:
            self._retry = self._loop.call_later(wait_s, self._pause_over)
        else:
            self._dialling = self._loop.create_task(self._dial(address))

    def _pause_over(self) -> None:
        self._retry = None
        self._dial_soon()

    async def _dial(self, address: Address) -> None:
        self._services.metrics.dials += 1
        connection = self._shaking = self._new_connection()
        self._opened(connection)
        reason = "this broker is stopping"
        is_made = False
        try:
            async with asyncio.timeout(CONNECT_S):
                await self._loop.create_connection(lambda: connection, address.host, address.port)
            is_made = True
        except TimeoutError:
            reason = "it cannot be reached: nothing answers"
        except OSError as error:
            reason = f"it cannot be reached: {error.strerror or error}"
        finally:
            self._dialling = None
            if not is_made:
                connection.end(reason)
        if self._unsent:
            self._dial_soon()  # it was asked after the attempt had failed

    def _new_connection(self) -> Connection:
        own = self._services.own
        assert own is not None
        expected = ANY_BROKER if self._to is None else self._to
        services = self._services
        handshake = DiallerHandshake(services.keys[0], own, services.nonce(), self._lane, expected, services.processes)
        return Connection(services, self, handshake)

    def _failed(self, reason: str, kind: type[PeerUnavailableError]) -> None:
        """An attempt has failed: so do the requests that wait, and the next attempt waits longer."""
        self._services.metrics.failed_dials += 1
        self._services.log.warning(f"dial {self._to}", "another broker cannot be reached", why=reason)
        self._not_before_s = self._loop.time() + self._pause_s * self._jitter()
        self._pause_s = min(2 * self._pause_s, PAUSE_MAX_S)
        self._fail_all(reason, kind)

    def _jitter(self) -> float:
        """Between a half and one."""
        return 0.5 + self._services.ids.below(_JITTER_STEPS) / (2 * _JITTER_STEPS)

    # --- the connection (ConnectionUser) ------------------------------------------------------------------------

    def established(self, connection: Connection, session: Session) -> None:
        self._shaking, self._up, self.lost_s = None, connection, None
        self.other = session.other.identity
        self._pause_s = PAUSE_MIN_S
        unsent, self._unsent = self._unsent, {}
        self._unsent_bytes = 0
        now_s = self._loop.time()
        for number, request in unsent.items():
            self._send(connection, number, request.kind, request.body, request.deadline_s - now_s)

    def received(self, connection: Connection, frame: Frame) -> None:
        if frame.what not in (What.PART, What.ANSWER, What.FAILURE):
            raise FrameError("a request on a connection for answers")
        answer = self._answers.get(frame.number)
        if answer is None or answer.done():
            return  # it came too late
        if frame.what is What.ANSWER:
            answer.set_result(frame.body)
            return
        if frame.what is What.PART:
            self._take_part(frame)
            return
        try:
            answer.set_exception(decode_failure(frame.body))
        except ValueError as error:
            raise FrameError(f"an error that cannot be read: {error}") from None

    def _take_part(self, frame: Frame) -> None:
        on_part = self._on_part.get(frame.number)
        if on_part is None:
            raise FrameError("a part of an answer to a request that takes none")
        try:
            on_part(frame.body)
        except Exception as error:  # noqa: BLE001 - the outermost frame of a part; a fault ends its request alone
            self._services.log.failure("a part of an answer failed", error, broker=self._to)
            self._fail(frame.number, "a part of its answer was not taken: see the log")

    def unsent_changed(self, connection: Connection, too_much: bool) -> None:
        """Looked at whenever something is to be sent."""

    def lost(self, connection: Connection, reason: str) -> None:
        self._closed(connection)
        if connection is self._shaking:
            self._shaking = None
            kind = PeerRefusedError if connection.refused else PeerUnavailableError
            self._failed(f"{self._name}: {reason}", kind)
        elif connection is self._up:
            self._up = None
            self.lost_s = self._loop.time()
            self._not_before_s = self._loop.time() + PAUSE_MIN_S * self._jitter()
            self._fail_all(f"the connection to {self._name} broke: {reason}")

    # --- the end ------------------------------------------------------------------------------------------------

    def reconnect(self, reason: str) -> None:
        """End the connection; the next one is made when there is something to send."""
        for connection in (self._up, self._shaking):
            if connection is not None:
                connection.end(reason)
        self.lost_s = None

    def close(self, reason: str) -> None:
        """Send and ask nothing any more. Idempotent."""
        self._ended = True
        if self._retry is not None:
            self._retry.cancel()
        if self._dialling is not None:
            self._dialling.cancel()
        self._fail_all(reason)
        self.reconnect(reason)
