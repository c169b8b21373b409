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
from random import Random
from typing import Any, Final, cast

from logboom.base.ports import Bytes
from logboom.base.units import KIB
from logboom.sim.coverage import BYTES_KEPT, CONNECTIONS_RESET
from logboom.sim.link_config import LinkConfig
from logboom.sim.loop import SimLoop
from logboom.sim.scheduler import Scheduler
from logboom.sim.socket_buffers import ReceiveBuffer, SendBuffer

_HIGH_WATER_DEFAULT: Final = 64 * KIB
_READ_BYTES_MAX: Final = 256 * KIB


class SimulatedConnection:
    """A connection: two transports that know each other through it."""

    def __init__(
        self,
        name: str,
        scheduler: Scheduler,
        chance: Random,
        config: LinkConfig,
        links: "list[SimulatedConnection]",
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

    @property
    def kept(self) -> set[frozenset[str]]:
        """The two machines, where something that was sent between them waits until it is sent again."""
        assert self._ends is not None
        return {frozenset((end.host, end.peer.host)) for end in self._ends if end.keeps and not end.is_closing()}

    def closed(self) -> None:
        """An end has gone; once both have, nothing is left of the connection."""
        assert self._ends is not None
        if all(end.is_closing() for end in self._ends) and self in self._links:
            self._links.remove(self)


class SimTransport(asyncio.Transport):
    """One end of a connection, as asyncio's protocols know it.

    As in `SimLoop`, the abstract class determines most of the methods, because a protocol calls them on one object. The
    buffers are in `socket_buffers`, the network between the two ends is `SimulatedConnection`.
    """

    peer: "SimTransport"

    def __init__(
        self, link: SimulatedConnection, loop: SimLoop, sockname: tuple[str, int], peername: tuple[str, int]
    ) -> None:
        super().__init__({"sockname": sockname, "peername": peername})
        self.sockname = sockname
        self.host = loop.life.host
        """The machine that this end is on."""
        self._link = link
        self._where = f"{link.name} to {loop.life.name}"
        """For the trace."""
        self._loop = loop
        self._protocol: Any = None
        self._reading = True
        self._started = False
        self._closing = False
        self._lost = False
        self._out = SendBuffer(link.config, link.chance)
        self._high, self._low = _HIGH_WATER_DEFAULT, _HIGH_WATER_DEFAULT // 4
        self._paused_writer = False
        self._in = ReceiveBuffer()
        self._read_scheduled = False
        self._way: deque[tuple[float, bytes]] = deque()
        """What the peer has sent and has not arrived, with the times at which it does."""
        loop.life.at_end(self._process_killed)

    @property
    def keeps(self) -> bool:
        """Whether something has come that the network did not let through, and was not sent again yet."""
        return self._in.has_kept

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
            self._out.eof_written = True
            self._in.drop()
            self._pump()
            if not self._out:
                self._loop.call_soon(self._lose, None)

    def abort(self) -> None:
        """Forget what is not sent, and reset the connection."""
        if not self._lost:
            self._out.drop()
            self._closing = True
            self._loop.call_soon(self._lose, None)
            self._send_reset()

    def reset(self) -> None:
        """The other side, or the network, has broken the connection."""
        if not self._lost and self._loop.life.alive:
            self._out.drop()
            self._closing = True
            self._loop.call_soon(self._lose, ConnectionResetError(104, "connection reset by peer"))

    def _send_reset(self) -> None:
        peer = self.peer
        passes = self._link.passes(self.host, peer.host)
        if passes and peer._loop.life.alive:  # noqa: SLF001 - the other half of the same connection
            peer._loop.call_later(self._link.config.latency_s(self._link.chance), peer.reset)  # noqa: SLF001

    def _process_killed(self) -> None:
        """The kernel closes the sockets of a dead process; its peers see a reset."""
        if not self._lost:
            self._closing = self._lost = True
            self._send_reset()
            self._link.closed()

    def _lose(self, error: Exception | None) -> None:
        if self._lost:
            return
        self._closing = self._lost = True
        self._in.drop()
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
        if self._closing or self._out.eof_written or not len(data):
            return
        self._out.write(data)
        self._pump()
        self._control_writer()

    def writelines(self, list_of_data: Any) -> None:
        self.write(b"".join(list_of_data))

    def write_eof(self) -> None:
        if not self._closing and not self._out.eof_written:
            self._out.eof_written = True
            self._pump()

    def can_write_eof(self) -> bool:
        return True

    def get_write_buffer_size(self) -> int:
        return self._out.size_bytes

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = _HIGH_WATER_DEFAULT if high is None else high
        self._low = self._high // 4 if low is None else low
        self._control_writer()

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._low, self._high

    def _control_writer(self) -> None:
        """Tell the protocol when too much waits, and when that is over."""
        if self._out.size_bytes > self._high and not self._paused_writer:
            self._paused_writer = True
            self._protocol.pause_writing()
        elif self._out.size_bytes <= self._low and self._paused_writer:
            self._paused_writer = False
            self._protocol.resume_writing()

    def _pump(self) -> None:
        """Send as much as the peer's socket has room for, in pieces that arrive one after the other."""
        for arrival_s, piece in self._out.send(self._loop.time()):
            self.peer.expect(arrival_s, piece)

    def taken(self, size_bytes: int) -> None:
        """The peer has read so much: its socket has room for more."""
        self._out.was_read(size_bytes)
        if (self._out or self._closing or self._paused_writer) and self._loop.life.alive and not self._lost:
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

    def expect(self, arrival_s: float, piece: bytes) -> None:
        """A piece from the peer, or its end, arrives at a time that is not before that of any earlier one."""
        if not self._way or self._way[-1][0] != arrival_s:
            self._loop.call_at(arrival_s, self._arrive)
        self._way.append((arrival_s, piece))

    def _arrive(self) -> None:
        """Take all that is here by now: after a pause of the process that is much at once."""
        now_s, way = self._loop.time(), self._way
        keeps = self._in.has_kept or not self._link.passes(self.peer.host, self.host)
        while way and way[0][0] <= now_s:
            _, piece = way.popleft()
            if keeps:
                self._link.scheduler.trace.met[BYTES_KEPT] += 1
                self._in.keep(piece)
            else:
                self._take_in(piece)
        if not self._read_scheduled and self._may_read:
            self._read()

    def send_again(self, after_s: float) -> None:
        """The way here is open again: what was kept arrives when the peer's TCP sends it again."""
        if self._in.has_kept and self._loop.life.alive:
            self._loop.call_later(after_s, self._take_kept)

    def _take_kept(self) -> None:
        if self._link.passes(self.peer.host, self.host):
            for piece in self._in.take_kept():
                self._take_in(piece)
            self._read_soon()

    def _take_in(self, piece: bytes) -> None:
        if self._closing:
            if piece and not self._lost:
                self.peer.taken(len(piece))
            elif piece:
                self._send_reset()  # nobody is there to read it
            return
        if piece:
            scheduler = self._link.scheduler
            scheduler.trace.record_bytes(scheduler.now_s, "bytes", self._where, piece)
        self._in.arrive(piece)

    @property
    def _may_read(self) -> bool:
        return bool(self._in) and self._reading and self._started

    def _read_soon(self) -> None:
        if not self._read_scheduled and self._may_read:
            self._read_scheduled = True
            self._loop.call_soon(self._read)

    def _read(self) -> None:
        """Hand the protocol what one call of recv would give."""
        self._read_scheduled = False
        if self._closing or not self._reading or not self._in:
            return
        if self._in.at_end:
            self._in.pass_end()
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
            data = self._in.read(min(len(buffer), _READ_BYTES_MAX))
            buffer[: len(data)] = data
            protocol.buffer_updated(len(data))
        else:
            data = self._in.read(_READ_BYTES_MAX)
            protocol.data_received(data)
        return len(data)
