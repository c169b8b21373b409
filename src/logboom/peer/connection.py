"""One connection to another broker, whichever side has made it: handshake, frames, pings, the end.

    SHAKING   bytes go to the handshake; it has HANDSHAKE_S
    OPEN      frames go to the connection's user; the side that dialled pings where a tick passes in which it did not
              send or did not hear anything, the other side answers
    CLOSED

Nothing is known of a network that is silent, so a connection on which nothing was heard for 2 s is ended: its dialler
then makes another one, instead of waiting for TCP, which tries again ever more rarely. That is twice the usual lease:
whoever is silent for this long is given up by the controller too. Silence is counted in ticks of the server's timer and
not by a clock, so that a process that was stopped for a while first reads what has come.

Of much that arrives one read is taken in a turn of the loop, so that one broker that sends much keeps nobody's
heartbeats waiting.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, Protocol, cast

from logboom.base.units import KIB, MIB
from logboom.peer.frames import PREFIX_BYTES, Frame, FrameError, FrameReader, FrameWriter, What, size_of
from logboom.peer.handshake import DiallerHandshake, HandshakeError, ListenerHandshake, MisdirectedError, Session

if TYPE_CHECKING:
    from collections.abc import Sequence

    from logboom.base.ports import Bytes
    from logboom.peer.metrics import LaneMetrics
    from logboom.peer.services import PeerServices

HANDSHAKE_S: Final = 3.0
"""How long a handshake may take."""
UNSENT_BYTES_MAX: Final = 16 * MIB
"""What may wait to be sent on a connection; one frame may be longer."""
TICK_S: Final = 0.5
"""How often a connection is looked at, and pinged where that is needed."""
_DIALLER_SILENCE_TICKS: Final = 4
_LISTENER_SILENCE_TICKS: Final = 10
"""Longer, so that of two sides that hear nothing the one that can make a new connection ends it first."""
_LONG_READ_BYTES: Final = 64 * KIB
"""A read of so much is followed by others, which uvloop would do before anything else, up to 32 of them (libuv,
`uv__read`): 8 MB of frames."""
_JOIN_BYTES_MAX: Final = 4 * KIB
"""Frames up to this size are copied into one buffer, which costs less than giving the socket several."""


class ConnectionUser(Protocol):
    """Who sends and takes the frames of a connection."""

    def established(self, connection: Connection, session: Session) -> None:
        """The handshake has succeeded: frames may be sent."""

    def received(self, connection: Connection, frame: Frame) -> None:
        """A frame that is no ping. Raises FrameError where it does not belong here."""

    def unsent_changed(self, connection: Connection, too_much: bool) -> None:
        """More waits to be sent than `UNSENT_BYTES_MAX`, or no longer."""

    def lost(self, connection: Connection, reason: str) -> None:
        """It has ended, established or not."""


class Connection(asyncio.BufferedProtocol):
    """See the module."""

    def __init__(
        self, services: PeerServices, user: ConnectionUser, handshake: DiallerHandshake | ListenerHandshake
    ) -> None:
        self._services = services
        self._user = user
        self._handshake = handshake
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._reader: FrameReader | None = None
        self._writer: FrameWriter | None = None
        self._counts: LaneMetrics | None = None
        self._reads = True
        self._user_reads = True
        self._yields_reading = False
        self._silence = _Silence()
        self._reason = ""
        self._ended = False
        self.refused = False
        """Whether it ended since one side does not take the other."""
        self.remote = ""
        """The address at the other end, for messages."""

    # --- asyncio's callbacks ------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        if self._ended:
            self._transport.abort()
            return
        peer = transport.get_extra_info("peername")
        self.remote = f"{peer[0]}:{peer[1]}" if peer else "unknown"
        self._transport.set_write_buffer_limits(high=UNSENT_BYTES_MAX)
        self._deadline = self._loop.call_later(HANDSHAKE_S, self._too_slow)
        if hello := self._handshake.start():
            self._transport.write(hello)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._services.scratch if self._reader is None else self._reader.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        if self._ended:
            return
        self._silence.heard = True
        if nbytes >= _LONG_READ_BYTES and not self._yields_reading:
            self._yields_reading = True
            self._regulate_reading()
            self._loop.call_soon(self._read_again)
        try:
            if self._reader is None:
                self.shake(bytes(self._services.scratch[:nbytes]))
            else:
                self._take(nbytes, self._reader.received(nbytes))
        except HandshakeError as error:
            self.refused = not isinstance(error, MisdirectedError)
            self.end(str(error))
        except FrameError as error:
            self._services.metrics.broken += 1
            self._cut_off(str(error))

    def eof_received(self) -> bool:
        self._reason = self._reason or "the other side has closed it"
        return False

    def pause_writing(self) -> None:
        self._user.unsent_changed(self, too_much=True)

    def resume_writing(self) -> None:
        self._user.unsent_changed(self, too_much=False)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._reason and isinstance(exc, OSError):
            self._reason = exc.strerror or str(exc)
        self._lost(self._reason or "it was closed")

    def _lost(self, reason: str) -> None:
        """Whoever used it is told once, at once: nothing may be sent on it any more."""
        if self._ended:
            return
        self._ended = True
        if self._deadline is not None:
            self._deadline.cancel()
        if self._counts is not None:
            self._counts.connections -= 1
        self._user.lost(self, reason)

    # --- handshake ----------------------------------------------------------------------------------------------

    def shake(self, data: bytes = b"") -> None:
        """Bytes of the handshake came, or this broker knows by now who it is. Raises HandshakeError, FrameError."""
        if self._transport is None:
            return  # accepted a moment ago: the loop has not given it over yet, and nothing was said on it
        answer = self._handshake.received(data)
        if answer:
            self._transport.write(answer)
        session = self._handshake.session
        if session is None:
            return
        assert self._deadline is not None
        self._deadline.cancel()
        self._reader = FrameReader(session.receive_key, self._services.scratch)
        self._writer = FrameWriter(session.send_key)
        self._counts = self._services.metrics.lanes[session.lane]
        self._counts.connections += 1
        self._user.established(self, session)
        if (rest := self._handshake.rest()) and not self._ended:
            self._take(len(rest), self._reader.feed(rest))

    def _too_slow(self) -> None:
        dialled = isinstance(self._handshake, DiallerHandshake)
        hint = ": is it the address of a broker's peer.listen?" if dialled else ""
        self.end(f"the handshake did not end within {HANDSHAKE_S:g} s{hint}")

    # --- frames -------------------------------------------------------------------------------------------------

    def _take(self, size_bytes: int, frames: list[Frame]) -> None:
        assert self._counts is not None
        self._counts.bytes_received += size_bytes
        self._counts.frames_received += len(frames)
        for frame in frames:
            if self._ended:
                return
            if frame.what is What.PING:
                self.send(What.PONG)
            elif frame.what is not What.PONG:
                self._user.received(self, frame)

    @property
    def unsent_bytes(self) -> int:
        """What waits to be sent."""
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    def send(
        self,
        what: What,
        body: Sequence[Bytes] = (),
        *,
        kind: int = 0,
        number: int = 0,
        timeout_ms: int = 0,
        covered: int | None = None,
    ) -> None:
        """Send a frame, the first `covered` buffers of its body under the seal, all by default. The body has at most
        `BODY_BYTES_MAX` bytes, and its buffers must not change any more. What is sent on a connection that has ended is
        dropped."""
        if self._ended:
            return
        assert self._transport is not None
        assert self._writer is not None
        assert self._counts is not None
        prefix = self._writer.prefix(what, body, kind=kind, number=number, timeout_ms=timeout_ms, covered=covered)
        size_bytes = PREFIX_BYTES + size_of(body)
        if size_bytes <= _JOIN_BYTES_MAX:
            self._transport.write(b"".join((prefix, *body)))
        else:
            self._transport.writelines((prefix, *body))
        self._silence.sent_bytes += size_bytes
        self._counts.bytes_sent += size_bytes
        self._counts.frames_sent += 1

    def set_reading(self, reads: bool) -> None:
        """Whether the other side's frames are read; TCP makes it wait otherwise."""
        self._user_reads = reads
        self._regulate_reading()

    def _read_again(self) -> None:
        self._yields_reading = False
        self._regulate_reading()

    def _regulate_reading(self) -> None:
        reads, transport = self._user_reads and not self._yields_reading, self._transport
        if transport is None or self._ended or transport.is_closing() or reads == self._reads:
            return
        self._reads = reads
        if reads:
            transport.resume_reading()
        else:
            transport.pause_reading()

    # --- the end ------------------------------------------------------------------------------------------------

    def tick(self) -> None:
        """About `TICK_S` has passed."""
        if self._reader is None or self._ended:
            return
        dialled = isinstance(self._handshake, DiallerHandshake)
        silence = self._silence
        silence.tick(self.unsent_bytes, reads=self._user_reads)
        if silence.ticks >= (_DIALLER_SILENCE_TICKS if dialled else _LISTENER_SILENCE_TICKS):
            self._services.metrics.silent += 1
            self._cut_off(f"nothing was heard for {silence.ticks * TICK_S:g} s")
        elif dialled and silence.is_quiet:
            self.send(What.PING)

    def _cut_off(self, reason: str) -> None:
        self._services.log.warning(
            "cut off", "a connection with another broker was cut off", why=reason, remote=self.remote
        )
        self.end(reason)

    def end(self, reason: str) -> None:
        """Drop it now, with what is not sent yet. Idempotent."""
        self._lost(reason)
        if self._transport is not None:
            self._transport.abort()


class _Silence:
    """For how many ticks nothing was heard of the other side: nothing came, and nothing that waits here went out."""

    __slots__ = ("_gone_bytes", "_sent_before_bytes", "heard", "is_quiet", "sent_bytes", "ticks")

    def __init__(self) -> None:
        self.heard = False
        """Whether something came since the last tick."""
        self.sent_bytes = 0
        """All that was sent, or waits to be."""
        self.ticks = 0
        self.is_quiet = False
        """Whether in the last tick nothing was sent or nothing came: without a ping, this side could hear nothing of a
        side that lives, or the other side nothing of this one. Requests and their answers do as well as pings."""
        self._gone_bytes = 0
        self._sent_before_bytes = 0

    def tick(self, unsent_bytes: int, *, reads: bool) -> None:
        """About `TICK_S` has passed. `reads`: whether this side would have heard anything."""
        gone_bytes = self.sent_bytes - unsent_bytes
        # Where all has gone out, it may lie in the system's buffer: that says nothing of the other side.
        alive = self.heard or not reads or (unsent_bytes > 0 and gone_bytes > self._gone_bytes)
        self.ticks = 0 if alive else self.ticks + 1
        self.is_quiet = not self.heard or self.sent_bytes == self._sent_before_bytes
        self.heard = False
        self._gone_bytes = gone_bytes
        self._sent_before_bytes = self.sent_bytes
