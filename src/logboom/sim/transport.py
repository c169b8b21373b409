"""One end of a connection between two simulated processes, and the connection itself.

What is written waits first in the writer's own buffer, which asyncio's flow control bounds; then, as far as the peer's
socket has room, it is on the way; at last it lies in the peer's socket until its protocol reads. A reader that pauses
therefore fills the socket, then stalls the way, then pauses the writer, as with TCP.

The end of a direction travels like bytes: behind all that was written before. A reset does not wait for anything. While
the network blocks a direction, bytes and ends that would have arrived are kept, as TCP sends them again later; resets
are lost.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any, Final, cast

from logboom.base.ports import Bytes
from logboom.base.units import KIB
from logboom.sim.coverage import BYTES_KEPT, CONNECTIONS_RESET
from logboom.sim.loop import SimLoop
from logboom.sim.scheduler import Scheduler

_HIGH_WATER_DEFAULT: Final = 64 * KIB
_READ_BYTES_MAX: Final = 256 * KIB
_EOF: Final = b""


@dataclass(frozen=True, slots=True)
class LinkConfig:
    """How connections behave."""

    latency_min_s: float = 20e-6
    latency_max_s: float = 2e-3
    piece_bytes_min: int = 1
    """Writes arrive cut into pieces of a random size from here on."""
    piece_bytes_max: int = 64 * KIB
    socket_bytes: int = 128 * KIB
    """What is on the way and in the peer's socket at most."""

    def latency_s(self, chance: Random) -> float:
        """How long the next piece takes."""
        return chance.uniform(self.latency_min_s, self.latency_max_s)

    def piece_bytes(self, chance: Random) -> int:
        """How long the next piece may be: every order of magnitude is as likely."""
        low, high = self.piece_bytes_min, self.piece_bytes_max
        return max(low, min(high, int(low * (high / low) ** chance.random())))


class Link:
    """A connection: two transports that know each other through it."""

    def __init__(
        self,
        name: str,
        scheduler: Scheduler,
        chance: Random,
        config: LinkConfig,
        links: "list[Link]",
        passes: Callable[[str, str], bool],
    ) -> None:
        """`passes`: whether what one machine sends another arrives."""
        self.name = name
        self.scheduler = scheduler
        self.chance = chance
        self.config = config
        self.passes = passes
        self._links = links
        self._ends: tuple[SimTransport, SimTransport] | None = None

    def open(self, near: "SimTransport", far: "SimTransport") -> None:
        """Both ends are there."""
        self._ends = (near, far)
        near.peer, far.peer = far, near

    def cut(self) -> None:
        """Break the connection: both ends are told that it was reset."""
        assert self._ends is not None
        self.scheduler.trace.met[CONNECTIONS_RESET] += 1
        for end in self._ends:
            end.reset()

    def healed(self, blocked: Mapping[tuple[str, str], float]) -> None:
        """Directions, sender first, are not blocked any more; since when they were."""
        assert self._ends is not None
        for end in self._ends:
            since_s = blocked.get((end.peer.host, end.host))
            if since_s is not None:
                end.send_again(self.chance.uniform(0, self.scheduler.now_s - since_s))

    def closed(self) -> None:
        """An end has gone; once both have, nothing is left of the connection."""
        assert self._ends is not None
        if all(end.is_closing() for end in self._ends) and self in self._links:
            self._links.remove(self)


class SimTransport(asyncio.Transport):
    """One end of a connection, as asyncio's protocols know it."""

    peer: "SimTransport"

    def __init__(self, link: Link, loop: SimLoop, sockname: tuple[str, int], peername: tuple[str, int]) -> None:
        super().__init__({"sockname": sockname, "peername": peername})
        self.sockname = sockname
        self._link = link
        self._loop = loop
        self._protocol: Any = None
        self._reading = True
        self._started = False
        self._closing = False
        self._lost = False
        # What this end has written and its peer has not taken yet.
        self._out: deque[memoryview] = deque()
        self._out_bytes = 0
        self._eof_written = False
        self._eof_sent = False
        self._under_way_bytes = 0
        self._last_arrival_s = 0.0
        self._high, self._low = _HIGH_WATER_DEFAULT, _HIGH_WATER_DEFAULT // 4
        self._paused_writer = False
        # What has arrived here and was not read.
        self._in: deque[bytes] = deque()
        self._read_scheduled = False
        # What would have arrived here while the network blocked the way.
        self._kept: deque[bytes] = deque()
        loop.at_kill(self._process_killed)

    @property
    def host(self) -> str:
        """The machine that this end is on."""
        return self._loop.host

    # --- life -----------------------------------------------------------------------------------------------------

    def attach(self, factory: Callable[[], asyncio.BaseProtocol]) -> None:
        """The listener's side: a protocol for the connection that was taken."""
        if self._lost:
            return
        self._protocol = factory()
        self._protocol.connection_made(self)
        self.start()

    def start(self) -> None:
        """The protocol is there: let it read what has come meanwhile."""
        self._started = True
        self._read_soon()

    def is_closing(self) -> bool:
        return self._closing

    def close(self) -> None:
        """Send what is written, then the end; read nothing more."""
        if not self._closing:
            self._closing = True
            self._eof_written = True
            self._in.clear()
            self._pump()
            if not self._out:
                self._loop.call_soon(self._lose, None)

    def abort(self) -> None:
        """Forget what is not sent, and reset the connection."""
        if not self._lost:
            self._drop_out()
            self._closing = True
            self._loop.call_soon(self._lose, None)
            self._send_reset()

    def reset(self) -> None:
        """The other side, or the network, has broken the connection."""
        if not self._lost and self._loop.alive:
            self._drop_out()
            self._closing = True
            self._loop.call_soon(self._lose, ConnectionResetError(104, "connection reset by peer"))

    def _send_reset(self) -> None:
        peer = self.peer
        passes = self._link.passes(self.host, peer.host)
        if passes and peer._loop.alive:  # noqa: SLF001 - the other half of the same connection
            peer._loop.call_later(self._link.config.latency_s(self._link.chance), peer.reset)  # noqa: SLF001

    def _process_killed(self) -> None:
        """The kernel closes the sockets of a dead process; its peers see a reset."""
        if not self._lost:
            self._closing = self._lost = True
            self._send_reset()
            self._link.closed()

    def _drop_out(self) -> None:
        self._out.clear()
        self._out_bytes = 0

    def _lose(self, error: Exception | None) -> None:
        if self._lost:
            return
        self._closing = self._lost = True
        self._in.clear()
        self._link.closed()
        if self._protocol is not None:
            self._protocol.connection_lost(error)

    # --- protocol and addresses -----------------------------------------------------------------------------------

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        return cast("asyncio.BaseProtocol", self._protocol)

    # --- writing --------------------------------------------------------------------------------------------------

    def write(self, data: Bytes) -> None:
        if self._closing or self._eof_written or not len(data):
            return
        # The caller may use its buffer again as soon as this returns.
        copy = memoryview(bytes(data))
        self._out.append(copy)
        self._out_bytes += len(copy)
        self._pump()
        self._control_writer()

    def writelines(self, list_of_data: Any) -> None:
        self.write(b"".join(list_of_data))

    def write_eof(self) -> None:
        if not self._closing and not self._eof_written:
            self._eof_written = True
            self._pump()

    def can_write_eof(self) -> bool:
        return True

    def get_write_buffer_size(self) -> int:
        return self._out_bytes

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = _HIGH_WATER_DEFAULT if high is None else high
        self._low = self._high // 4 if low is None else low
        self._control_writer()

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._low, self._high

    def _control_writer(self) -> None:
        """Tell the protocol when too much waits, and when that is over."""
        if self._out_bytes > self._high and not self._paused_writer:
            self._paused_writer = True
            self._protocol.pause_writing()
        elif self._out_bytes <= self._low and self._paused_writer:
            self._paused_writer = False
            self._protocol.resume_writing()

    def _pump(self) -> None:
        """Send as much as the peer's socket has room for, in pieces that arrive one after the other."""
        link = self._link
        while self._out and self._under_way_bytes < link.config.socket_bytes:
            room = link.config.socket_bytes - self._under_way_bytes
            piece = self._take(min(room, link.config.piece_bytes(link.chance)))
            self._under_way_bytes += len(piece)
            self._send(piece)
        if self._eof_written and not self._out and not self._eof_sent:
            self._eof_sent = True
            self._send(_EOF)

    def _take(self, size_bytes: int) -> bytes:
        first = self._out[0]
        piece = bytes(first[:size_bytes])
        if len(piece) == len(first):
            self._out.popleft()
        else:
            self._out[0] = first[len(piece) :]
        self._out_bytes -= len(piece)
        return piece

    def _send(self, piece: bytes) -> None:
        """Bytes of one direction never overtake each other."""
        link, peer = self._link, self.peer
        arrival_s = max(self._last_arrival_s, self._loop.time() + link.config.latency_s(link.chance))
        self._last_arrival_s = arrival_s
        peer._loop.call_at(arrival_s, peer.arrive, piece)  # noqa: SLF001 - the other half of the same connection

    def taken(self, size_bytes: int) -> None:
        """The peer has read so much: its socket has room for more."""
        self._under_way_bytes -= size_bytes
        if self._loop.alive and not self._lost:
            self._loop.call_soon(self._pump_again)

    def _pump_again(self) -> None:
        if self._lost:
            return
        self._pump()
        if self._closing and not self._out:
            self._lose(None)
        elif not self._closing:
            self._control_writer()

    # --- reading --------------------------------------------------------------------------------------------------

    def is_reading(self) -> bool:
        return self._reading and not self._closing

    def pause_reading(self) -> None:
        self._reading = False

    def resume_reading(self) -> None:
        if not self._reading:
            self._reading = True
            self._read_soon()

    def arrive(self, piece: bytes) -> None:
        """A piece from the peer, or its end."""
        if self._kept or not self._link.passes(self.peer.host, self.host):
            self._link.scheduler.trace.met[BYTES_KEPT] += 1
            self._kept.append(piece)
            return
        self._take_in(piece)

    def send_again(self, after_s: float) -> None:
        """The way here is open again: what was kept arrives when the peer's TCP sends it again."""
        if self._kept and self._loop.alive:
            self._loop.call_later(after_s, self._take_kept)

    def _take_kept(self) -> None:
        if self._link.passes(self.peer.host, self.host):
            kept, self._kept = self._kept, deque()
            for piece in kept:
                self._take_in(piece)

    def _take_in(self, piece: bytes) -> None:
        if self._closing:
            if piece and not self._lost:
                self.peer.taken(len(piece))
            elif piece:
                self._send_reset()  # nobody is there to read it
            return
        if piece:
            where = f"{self._link.name} to {self._loop.process}"
            self._link.scheduler.trace.record_bytes(self._loop.time(), "bytes", where, piece)
        self._in.append(piece)
        self._read_soon()

    def _read_soon(self) -> None:
        if self._in and self._reading and self._started and not self._read_scheduled:
            self._read_scheduled = True
            self._loop.call_soon(self._read)

    def _read(self) -> None:
        """Hand the protocol what one call of recv would give."""
        self._read_scheduled = False
        if self._closing or not self._reading or not self._in:
            return
        if self._in[0] == _EOF:
            self._in.popleft()
            if not self._protocol.eof_received():
                self.close()
            return
        size_bytes = self._feed()
        self.peer.taken(size_bytes)
        self._read_soon()

    def _feed(self) -> int:
        protocol = self._protocol
        if isinstance(protocol, asyncio.BufferedProtocol):
            buffer = memoryview(protocol.get_buffer(-1)).cast("B")
            data = self._received(min(len(buffer), _READ_BYTES_MAX))
            buffer[: len(data)] = data
            protocol.buffer_updated(len(data))
        else:
            data = self._received(_READ_BYTES_MAX)
            protocol.data_received(data)
        return len(data)

    def _received(self, size_bytes: int) -> bytes:
        """All that has arrived, up to so many bytes or the end of the direction."""
        pieces: list[bytes] = []
        while size_bytes and self._in and self._in[0]:
            piece = self._in[0]
            if len(piece) <= size_bytes:
                self._in.popleft()
            else:
                self._in[0] = piece[size_bytes:]
                piece = piece[:size_bytes]
            pieces.append(piece)
            size_bytes -= len(piece)
        return b"".join(pieces)
