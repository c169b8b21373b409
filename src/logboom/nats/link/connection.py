"""One connection to a NATS server, as a client.

    GREETING   connected, perhaps with TLS; waiting for the server's INFO
    LOGGING IN TLS if it is used, then the login, until the server answers a ping
    UP         messages come in, acks and subscriptions go out
    LOST       reported once

All that is sent in one turn of the loop leaves in one write; if much arrives, one read is processed in a turn. The
connection is not read while a limit asks for that, or while the server does not read what is sent to it.
"""

import asyncio
import json
import ssl
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol, cast

from logboom.base.errors import LogboomError
from logboom.base.units import KIB
from logboom.nats.link import commands
from logboom.nats.link.frames import FrameError, FrameReader, Info, Ping, Pong, Refusal, Run
from logboom.nats.link.keep_alive import KeepAlive, Verdict

_UNSENT: Final = "unsent"
_CLOSED: Final = "closed by the server"
_LONG_READ_BYTES: Final = 64 * KIB
"""A read of so much has others behind it, which uvloop would do before anything else: 32 of 256 KB each (libuv,
`uv__read`), up to a quarter of a million messages. Timers, clients of Kafka and threads that come back from the disk
have their turn first."""


class ConnectionLostError(LogboomError):
    """A connection to NATS is lost, or was never made."""


class ConnectionUser(Protocol):
    """Who uses a connection."""

    def delivered(self, run: Run) -> None:
        """Messages that came one after the other: all of this read up to the next notice."""

    def told(self, info: Mapping[str, Any]) -> None:
        """The server has sent INFO again, after the login."""

    def refused(self, text: str) -> None:
        """An error of the server, which may close the connection or not."""

    def paused(self) -> None:
        """The connection is not read from now on."""

    def lost(self, reason: str) -> None:
        """The connection is lost; no other method is called after this."""


class Connection(asyncio.Protocol):
    """See the module. Life: made by `create_connection`; `log_in`; until `lost` was told."""

    def __init__(self, user: ConnectionUser, *, max_unsent_bytes: int, ping_interval_s: float) -> None:
        self._user = user
        self._max_unsent_bytes = max_unsent_bytes
        self._ping_interval_s = ping_interval_s
        self._loop = asyncio.get_running_loop()
        self._reader = FrameReader()
        self._transport: asyncio.Transport | None = None
        self._info: asyncio.Future[Mapping[str, Any]] = self._loop.create_future()
        self._last_info: Mapping[str, Any] = {}
        self._pongs: deque[tuple[asyncio.Future[None], Callable[[], None] | None]] = deque()
        self._keep_alive = KeepAlive()
        self._ticker: asyncio.TimerHandle | None = None
        self._outgoing: list[bytes] = []
        self._holds: set[str] = set()
        self._had_its_turn = False
        self._is_reading = True
        self._reason: str | None = None
        self._last_refusal: str | None = None
        """The error behind which the server has said nothing yet: it tells one before it ends a connection."""
        self._is_up = False

    def tell(self, user: ConnectionUser) -> None:
        """Calls of `ConnectionUser` go to this user from now on."""
        self._user = user

    # --- asyncio ------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=self._max_unsent_bytes)
        self._is_reading = True

    def data_received(self, data: bytes) -> None:
        if self._reason is not None:
            return
        if len(data) >= _LONG_READ_BYTES and not self._had_its_turn:
            self._had_its_turn = True
            self._read_or_wait()
            self._loop.call_soon(self._next_turn)
        try:
            for event in self._reader.feed(data):
                self._last_refusal = event.text if isinstance(event, Refusal) else None
                if isinstance(event, tuple):
                    self._noticed(event)
                else:
                    self._user.delivered(event)
        except FrameError as error:
            self.end(str(error))

    def eof_received(self) -> None:
        self._reason = self._reason or self._last_refusal or _CLOSED

    def connection_lost(self, exc: Exception | None) -> None:
        if self._ticker is not None:
            self._ticker.cancel()
        reason = self._reason or self._last_refusal or (f"broken: {exc}" if exc is not None else _CLOSED)
        self._reason = reason
        self._transport = None
        waiting: list[asyncio.Future[Any]] = [self._info, *(pong for pong, _ in self._pongs)]
        for future in waiting:
            if not future.done():
                future.set_exception(ConnectionLostError(reason))
                future.exception()  # nobody needs to be waiting
        if self._is_up:
            self._is_up = False
            self._user.lost(reason)

    def pause_writing(self) -> None:
        self.hold(_UNSENT)

    def resume_writing(self) -> None:
        self.release(_UNSENT)

    # --- log-in -------------------------------------------------------------------------------------------------

    async def greeting(self) -> Mapping[str, Any]:
        """What the server says of itself first. Raises ConnectionLostError."""
        return await asyncio.shield(self._info)

    async def begin_tls(self, tls: ssl.SSLContext, host: str) -> None:
        """Speak TLS from now on, with a server of this name. Raises ConnectionLostError; OSError where that fails."""
        if self._reason is not None or self._transport is None or self._transport.is_closing():
            # uvloop would begin a handshake, and wait for its end.
            raise ConnectionLostError(self._reason or _CLOSED)
        transport = await self._loop.start_tls(self._transport, self, tls, server_hostname=host)
        if transport is None:
            raise ConnectionLostError(self._reason or _CLOSED)
        self.connection_made(transport)

    async def log_in(self, options: Callable[[Mapping[str, Any]], Mapping[str, object]]) -> Mapping[str, Any]:
        """Log in with what `options` makes of the greeting. What the server has said of itself last. Raises
        ConnectionLostError."""
        info = await self.greeting()
        if self._transport is None:
            raise ConnectionLostError(self._reason or _CLOSED)
        speaks_tls = self._transport.get_extra_info("ssl_object") is not None
        self.send(commands.connect({**options(info), "tls_required": speaks_tls}))
        await self.round_trip()
        self._is_up = True
        self._ticker = self._loop.call_later(self._ping_interval_s, self._tick)
        return self._last_info

    def _tick(self) -> None:
        if self._reason is not None:
            self.abort(self._reason)  # a server that reads nothing lets `end` wait for ever
            return
        self._ticker = self._loop.call_later(self._ping_interval_s, self._tick)
        if not self._holds <= {_UNSENT}:
            return  # an answer could not be read
        assert self._transport is not None
        match self._keep_alive.tick(self._transport.get_write_buffer_size() if self._holds else 0):
            case Verdict.PING:
                self.round_trip()
            case Verdict.GIVE_UP:
                self.abort("the server does not answer")
            case Verdict.IT_READS:
                pass

    # --- receiving ----------------------------------------------------------------------------------------------

    def _noticed(self, notice: Info | Refusal | Ping | Pong) -> None:
        match notice:
            case Ping():
                self.send(commands.PONG)
            case Pong():
                self._keep_alive.answered()
                if self._pongs:
                    pong, at_once = self._pongs.popleft()
                    if at_once is not None:
                        at_once()
                    if not pong.done():
                        pong.set_result(None)
            case Refusal(text):
                if not self._is_up:
                    self._reason = text
                self._user.refused(text)
            case Info(text=text):
                self._told(text)

    def _told(self, text: bytes) -> None:
        try:
            info = json.loads(text)
        except (ValueError, RecursionError):  # the latter where it is nested a thousand deep
            info = None
        if not isinstance(info, dict):
            raise FrameError("an INFO line that is no JSON object")
        if self._last_info.get("ldm"):
            # nats-server says once that it leaves (`sendLDMToClients`), and not again when others come or go later.
            info = {**info, "ldm": True}
        self._last_info = info
        if not self._info.done():
            self._info.set_result(info)
        elif self._is_up:
            self._user.told(info)

    def hold(self, why: str) -> None:
        """Do not read until every reason given here was released."""
        if not self._holds and self._transport is not None:
            self._user.paused()
        self._holds.add(why)
        self._read_or_wait()

    def release(self, why: str) -> None:
        """Withdraw a reason. Idempotent."""
        self._holds.discard(why)
        self._read_or_wait()

    def _next_turn(self) -> None:
        self._had_its_turn = False
        self._read_or_wait()

    def _read_or_wait(self) -> None:
        wanted = not self._holds and not self._had_its_turn
        if wanted == self._is_reading or self._transport is None or self._transport.is_closing():
            return
        self._is_reading = wanted
        if wanted:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()

    # --- sending ------------------------------------------------------------------------------------------------

    def send(self, data: bytes) -> None:
        """Send at the end of this turn of the loop; nothing once the connection is lost."""
        if not self._outgoing:
            self._loop.call_soon(self._flush)
        self._outgoing.append(data)

    def _flush(self) -> None:
        outgoing, self._outgoing = self._outgoing, []
        if self._transport is not None:
            self._transport.write(b"".join(outgoing))

    def subscribe(self, sid: int, subject: str, queue: str | None) -> None:
        """Messages of a subject are delivered with this `sid` from now on."""
        self.send(commands.subscribe(sid, subject, queue))

    def unsubscribe(self, sid: int) -> None:
        """End a subscription; messages that are on their way still come."""
        self.send(commands.unsubscribe(sid))

    def round_trip(self, at_once: Callable[[], None] | None = None) -> asyncio.Future[None]:
        """Done once the server has handled all that was sent so far, and what it sent before was received; with
        ConnectionLostError where that will not be known. `at_once` is called then, before anything that came behind
        the answer is received, which it may be before those who wait go on."""
        pong: asyncio.Future[None] = self._loop.create_future()
        if self._transport is None:
            pong.set_exception(ConnectionLostError(self._reason or "not connected"))
            pong.exception()  # nobody needs to be waiting
            return pong
        self._pongs.append((pong, at_once))
        self.send(commands.PING)
        return pong

    def end(self, reason: str) -> None:
        """Close the connection, with what was sent. Idempotent."""
        self._reason = self._reason or reason
        if self._transport is not None:
            if self._outgoing:
                self._flush()
            self._transport.close()

    def abort(self, reason: str) -> None:
        """Close the connection at once."""
        self._reason = self._reason or reason
        if self._transport is not None:
            self._transport.abort()
