"""The turn of a connection: send what is ready, begin what may begin, read the socket or not.

A turn runs when bytes have arrived, and once per turn of the event loop after anything else that may change its
outcome: a reply, a drained write buffer, a lifted throttle, memory or capacity that others have freed. What it does
follows from the connection's state (`connection.state`), the limits and the next request alone, so that one turn too
many is harmless.

How much one connection does before all others, the timers and the threads that come back from the disk have their turn
is bounded in requests, in time and in reads: a broker that is late with its own heartbeats loses its leaderships,
whatever its clients ask for.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, Protocol

from logboom.base.units import KIB
from logboom.kafka.connection.registry import OpenConnection
from logboom.kafka.connection.state import Pause, Phase
from logboom.kafka.wire.heads import api_key_of

if TYPE_CHECKING:
    import asyncio

    from logboom.kafka.connection.dispatch import RequestDispatcher
    from logboom.kafka.connection.inflight import InflightQueue
    from logboom.kafka.connection.receive_budget import ReceiveBudget
    from logboom.kafka.connection.services import ConnectionServices
    from logboom.kafka.connection.state import ConnectionState

_REQUESTS_PER_TURN: Final = 64
"""Requests of one connection that begin before the other connections have their turn."""

_TURN_S: Final = 0.005
"""No more of them begin after this long: 64 requests of Metadata with some hundred names each take half a second."""

_LONG_READ_BYTES: Final = 64 * KIB
"""A read of so much is followed by others, which uvloop would do before anything else, up to 32 of them (libuv,
`uv__read`): two thousand requests of 2 KB."""


_BULK_BYTES: Final = 16 * KIB
"""A connection with this much in flight waits for the disk, not for wake-ups, and its client needs the other cores."""


class TurnOwner(OpenConnection, Protocol):
    """The connection, as far as a turn can end it."""

    def close(self) -> None:
        """Flush what was written, and close."""


class IoCycle:
    """One connection's turns; `attach` it to the transport first."""

    __slots__ = (
        "_dispatcher",
        "_has_replied",
        "_in_turn",
        "_inflight",
        "_is_read",
        "_loop",
        "_metrics",
        "_now_s",
        "_owner",
        "_receive_budget",
        "_scheduled",
        "_services",
        "_state",
        "_transport",
        "_was_free",
        "_worked",
        "_yields_reading",
        "backlog",
        "buffered_bytes",
    )

    def __init__(
        self,
        owner: TurnOwner,
        services: ConnectionServices,
        state: ConnectionState,
        dispatcher: RequestDispatcher,
        inflight: InflightQueue,
        receive_budget: ReceiveBudget,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._owner = owner
        self._services = services
        self._state = state
        self._dispatcher = dispatcher
        self._inflight = inflight
        self._receive_budget = receive_budget
        self._loop = loop
        self._metrics = services.server.metrics
        self._now_s = services.broker.clock.monotonic_s
        self._worked = services.broker.runtime.worked
        self._transport: asyncio.Transport | None = None
        self._in_turn = False
        """Whether a turn is under way, which sends what its requests are answered at once."""
        self._has_replied = False
        """Whether a reply was sent at once in this turn of the loop, while others were in flight."""
        self._scheduled = False
        self._is_read = True
        self._was_free = True
        self._yields_reading = False
        self.backlog: deque[bytearray] = deque()
        """Requests that have arrived whole and have not begun."""
        self.buffered_bytes = 0
        """Bytes in the transport's write buffer at the last tick, while the peer reads."""

    def attach(self, transport: asyncio.Transport) -> None:
        """Turns may run from now on."""
        self._transport = transport

    def schedule(self) -> None:
        """Run one turn at the end of this turn of the loop."""
        if not self._scheduled and not self._state.closed:
            self._scheduled = True
            self._loop.call_soon(self.run)

    def run(self) -> None:
        """Run one turn."""
        self._scheduled = False
        if not self._state.closed:
            self._in_turn = True
            try:
                self._run()
            finally:
                self._in_turn = False

    def _run(self) -> None:
        state = self._state
        inflight, backlog = self._inflight, self.backlog
        if inflight:
            self.send()
        left, end_s = _REQUESTS_PER_TURN, 0.0
        # A connection with nothing in flight may always begin one request, or limits that are too small would stop it
        # for ever.
        while backlog and (not inflight or self._has_capacity()) and self._may_begin(backlog[0]):
            now_s = self._now_s()
            end_s = end_s or now_s + _TURN_S
            if left <= 0 or now_s > end_s:
                self.schedule()
                break
            left -= self._dispatcher.begin(backlog, left)
            if self._state.closed:
                return  # the request could not be read, or its handler failed
        if left < _REQUESTS_PER_TURN:
            self.send()
        self.regulate_reading()
        if inflight.size_bytes < _BULK_BYTES:
            self._worked()
        if not inflight and (state.phase is Phase.STOPPING or (state.phase is Phase.HALF_CLOSED and not backlog)):
            self._owner.close()

    # --- beginning ---

    def _has_capacity(self) -> bool:
        """Whether the limits allow one more request in flight."""
        config, inflight = self._services.server.config.now, self._inflight
        return (
            inflight.requests < config.max_inflight_requests
            and inflight.size_bytes < config.max_inflight_bytes
            and self._metrics.inflight_requests < config.max_inflight_total_requests
        )

    def _may_begin(self, frame: bytearray) -> bool:
        """Whether the state allows the next request, and what that request needs before it begins is available."""
        state = self._state
        if not state.begins:
            return False
        backpressured = self._services.flusher.backpressured
        if not self._inflight and not backpressured:
            return True
        handler = self._services.routes.handlers.get(api_key_of(frame))
        if handler is None:
            return True  # it is refused when it begins
        if backpressured and handler.waits_for_append_capacity:
            return False
        if self._inflight.must_wait_for_changes(handler):
            return False
        return not handler.exclusive or self._all_answered()

    def _all_answered(self) -> bool:
        self.send()
        return not self._inflight and self._state.peer_reads

    # --- reading ---

    def regulate_reading(self) -> None:
        """Read the socket only while what it brings can begin."""
        transport, state, receive_budget = self._transport, self._state, self._receive_budget
        assert transport is not None
        if self.backlog or receive_budget.waiting_bytes:
            receive_budget.set_waiting(self.backlog)
        waits_for = self._waits_for()
        if waits_for is not state.waits_for:
            state.set_waits_for(waits_for)
            waits_for_others = waits_for is Pause.APPEND_CAPACITY or waits_for is Pause.SERVER_MEMORY
            self._services.registry.set_paused(self._owner, waits_for_others)
        if transport.is_closing():
            return
        if state.reads != self._was_free:
            self._was_free = state.reads
            if not state.reads and state.phase is Phase.OPEN:
                self._services.budget.count_pause(state.pause, self._inflight.requests, self._inflight.size_bytes)
        reads = state.reads and not self._yields_reading
        if reads != self._is_read:
            self._is_read = reads
            if reads:
                transport.resume_reading()
            else:
                transport.pause_reading()

    def yield_after(self, read_bytes: int) -> None:
        """A read brought this many bytes. If that is much, read no more before the next turn of the loop."""
        if read_bytes >= _LONG_READ_BYTES and not self._yields_reading:
            self._yields_reading = True
            self.regulate_reading()
            self._loop.call_soon(self._read_again)

    def _read_again(self) -> None:
        self._yields_reading = False
        if not self._state.closed:
            self.regulate_reading()

    def reading_ended(self) -> None:
        """The peer has shut down its side: the transport reads no more by itself."""
        self._is_read = False

    def _waits_for(self) -> Pause | None:
        backlog, services = self.backlog, self._services
        if backlog and self._state.begins and services.flusher.backpressured:
            handler = services.routes.handlers.get(api_key_of(backlog[0]))
            if handler is not None and handler.waits_for_append_capacity:
                return Pause.APPEND_CAPACITY
        arriving = self._receive_budget.arriving_bytes and not self._receive_budget.pausing_frees_nothing
        if (self._inflight or arriving) and services.budget.is_exhausted:
            return Pause.SERVER_MEMORY
        return Pause.BACKLOG if backlog else None

    # --- sending ---

    def reply_ready(self, only: bool) -> None:
        """A request has its reply; `only` if nothing else is in flight. The first in a turn of the loop is sent at
        once, if nothing else has to be done in a turn of the connection. The others leave together, in one write."""
        if self._has_replied or self._scheduled or self._in_turn or self.backlog or not self._state.reads:
            self.schedule()
            return
        if self._inflight.size_bytes < _BULK_BYTES:
            self._worked()
        self.send()
        if not only:
            self._has_replied = True
            self._loop.call_soon(self._next_turn_of_loop)

    def _next_turn_of_loop(self) -> None:
        self._has_replied = False

    def send(self) -> None:
        """Hand the socket all replies that are next in order."""
        out = self._inflight.take_ready()
        transport = self._transport
        if not out or transport is None:
            return
        if transport.is_closing():
            pass  # the peer went away while its requests were worked on
        elif len(out) == 1:
            transport.write(out[0])
        else:
            transport.writelines(out)
        self.account_unsent()

    def account_unsent(self) -> None:
        """Update the gauge of bytes that the peer has not read. What was just written counts from the next tick on, if
        it is still there: usually it leaves at once."""
        assert self._transport is not None
        buffered_bytes = self.buffered_bytes if self._state.peer_reads else self._transport.get_write_buffer_size()
        self._inflight.account_unsent(buffered_bytes)
