"""One Kafka client's connection: asyncio's callbacks, and what ends it.

The way of a request:

    bytes -> `frames.FrameReader` -> the backlog -> `turn.IoCycle`, which decides when it begins ->
    `dispatch.RequestDispatcher`, which finds and calls its handler -> `inflight.InflightQueue`, which waits for its
    reply and for those of the requests before it -> `turn.IoCycle.send`

What may happen when is in `state.ConnectionState`. A connection knows bytes and headers, and nothing of what a request
says.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, cast

from logboom.broker.misdirected_peer import clients_only
from logboom.kafka.connection.deadlines import PeerDeadline
from logboom.kafka.connection.dispatch import RequestDispatcher
from logboom.kafka.connection.frames import FrameReader
from logboom.kafka.connection.inflight import InflightQueue
from logboom.kafka.connection.io_cycle import IoCycle
from logboom.kafka.connection.receive_budget import SHARE_EXCEEDED, ReceiveBudget
from logboom.kafka.connection.state import ConnectionState, Event, Phase
from logboom.kafka.connection.throttle import Throttle

if TYPE_CHECKING:
    from logboom.kafka.config import KafkaConfig
    from logboom.kafka.connection.admission import Refusal
    from logboom.kafka.connection.services import ConnectionServices


class Connection(asyncio.BufferedProtocol):
    """See the module. It lives from accept until either side has closed the socket."""

    def __init__(self, services: ConnectionServices, loop: asyncio.AbstractEventLoop) -> None:
        self._services = services
        self._loop = loop
        self._now_s = services.broker.clock.monotonic_s
        self._metrics = metrics = services.server.metrics
        self._config = services.server.config.now
        self._frames = FrameReader(services.scratch, self._config.max_request_bytes)
        self._transport: asyncio.Transport | None = None
        self._heard_s = 0.0
        self._state = state = ConnectionState()
        self._deadline = PeerDeadline()
        self._throttle = Throttle(loop, self._throttle_changed)
        self._receive_budget = ReceiveBudget(metrics)
        now_ns = services.broker.clock.monotonic_ns
        self._inflight = InflightQueue(self, state, metrics, services.registry, now_ns)
        self._dispatcher = RequestDispatcher(services, self._inflight, self, self)
        self._turn = IoCycle(self, services, state, self._dispatcher, self._inflight, self._receive_budget, loop)
        # Methods of its parts, bound here because some of them are called for every reply.
        self.schedule_turn = self._turn.schedule
        self.reply_ready = self._turn.reply_ready
        self.throttle = self._throttle.wait

    # --- asyncio's callbacks ------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._turn.attach(self._transport)
        peer = transport.get_extra_info("peername")
        host = self._dispatcher.client_host = str(peer[0]) if peer else ""
        self._heard_s = self._now_s()
        services = self._services
        self._metrics.connections_total += 1
        refusal = services.admission.admit(host)
        if refusal is not None and not refusal.throttle_ms:
            self._turn_away(refusal)
            return
        services.registry.add(self)
        self._dispatcher.quotas_changed()
        self.configure(services.server.config.now)
        if refusal is not None:
            self._state.handle(Event.REFUSE)
            self._turn.regulate_reading()
            self._loop.call_later(refusal.throttle_ms / 1_000, self._turn_away, refusal)

    def _turn_away(self, refusal: Refusal) -> None:
        if not self._state.closed:
            self._metrics.connections_refused += 1
            self.refuse("connection refused", refusal.why, limit=refusal.limit)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._frames.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        if self._state.closed:
            return
        frames = self._frames.received(nbytes)
        self._heard_s = self._now_s()
        if frames:
            self._turn.backlog.extend(frames)
            self._turn.run()
        if self._frames.buffer_bytes != self._receive_budget.arriving_bytes:
            self._arriving_changed()
        if not self._state.closed:
            self._turn.yield_after(nbytes)
        if self._frames.broken is not None and not self._state.closed:
            if self._frames.from_broker and self._transport is not None:
                self._transport.write(clients_only(self._services.broker.cluster.peer_address))
            self._metrics.malformed += 1
            self.refuse("bytes that are not a Kafka request", self._frames.broken, limit=self._frames.limit)

    def _arriving_changed(self) -> None:
        """The buffer of a long request was made, has grown or was handed on."""
        budget = self._receive_budget
        budget.set_arriving(self._frames.buffer_bytes)
        if not budget.arriving_bytes or self._state.closed:
            return
        if budget.exceeds_share(self._config.max_inflight_total_bytes):
            budget.release()  # at once, or other connections would be closed for it too
            self.refuse("no room for a request", SHARE_EXCEEDED, limit="kafka.max_inflight_total_bytes")
        elif self._services.budget.is_exhausted:
            self._turn.regulate_reading()

    def eof_received(self) -> bool:
        """The peer has shut down its side; True keeps the other side open for the replies it is owed.

        A request that waits for records is not waited for: it may take minutes, and nobody may be there to read.
        """
        owed = bool(self._inflight or self._turn.backlog)
        if self._state.closed or self._inflight.waits_for_records or not owed:
            return False
        self._state.handle(Event.PEER_FINISHED)
        self._turn.reading_ended()
        self._deadline.start(self._config.request_timeout_s)
        return True

    def pause_writing(self) -> None:
        self._state.set_peer_reads(False)
        self._turn.account_unsent()

    def resume_writing(self) -> None:
        self._state.set_peer_reads(True)
        self._turn.account_unsent()
        self.schedule_turn()

    def connection_lost(self, exc: Exception | None) -> None:
        self._state.handle(Event.CLOSE)
        services = self._services
        if services.registry.remove(self):
            services.admission.release(self._dispatcher.client_host)
        services.server.fetches.connection_closed(self)
        self._throttle.cancel()
        self._receive_budget.release()
        self._inflight.abandon()
        self._turn.backlog.clear()
        services.registry.resume_paused()

    # --- what the server does with it ---------------------------------------------------------------------------

    @property
    def client_id(self) -> str:
        """What the client calls itself."""
        return self._dispatcher.client_id

    @property
    def inflight(self) -> tuple[int, int]:
        """Requests in flight, and their memory in bytes."""
        return self._inflight.requests, self._inflight.size_bytes

    def configure(self, config: KafkaConfig) -> None:
        """Apply changed settings."""
        self._frames.max_bytes = config.max_request_bytes
        self._config = config
        if self._transport is not None:
            self._transport.set_write_buffer_limits(high=config.max_unsent_bytes)

    def quotas_changed(self) -> None:
        """Quotas of some client have changed: a throttled connection continues and is charged again."""
        self._dispatcher.quotas_changed()
        self._throttle.lift()

    def _throttle_changed(self, throttled: bool) -> None:
        self._state.set_throttled(throttled)
        self.schedule_turn()

    def server_stops(self) -> None:
        """Begin no more requests; close once those in flight are answered."""
        self._state.handle(Event.SERVER_STOPS)
        self.schedule_turn()

    def tick(self, now_s: float) -> None:
        """About a second has passed: end requests whose time is over, and close a peer that is silent or too slow."""
        self._inflight.expire(now_s)
        self._check_unread()
        state, config = self._state, self._config
        if state.closed:
            return
        if not self._inflight and state.peer_reads and now_s - self._heard_s > config.idle_timeout_s:
            self.close()
        elif state.phase is Phase.HALF_CLOSED:
            if self._deadline.tick():
                self._drop()
        elif self._frames.in_frame and state.reads:
            why = self._deadline.tick_request(self._frames, config.request_timeout_s)
            if why is not None:
                self._metrics.too_slow += 1
                self.refuse("request that does not arrive", why)
        else:
            self._deadline.nothing_awaited()

    def _check_unread(self) -> None:
        """Close a peer that reads none of its replies for too long; sooner where the memory is needed."""
        assert self._transport is not None
        buffered_bytes = self._transport.get_write_buffer_size()
        self._turn.buffered_bytes = buffered_bytes if self._state.peer_reads else 0
        if not buffered_bytes and not self._inflight.unsent_bytes:
            return
        self._turn.account_unsent()
        config = self._config
        needed = not self._services.server.fetches.budget.left_bytes
        why = self._deadline.tick_unread(buffered_bytes, config.request_timeout_s if needed else config.idle_timeout_s)
        if why is not None:
            self._metrics.unread += 1
            self.refuse("peer that does not read", why)
            self.abort()

    # --- the end ------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Flush what was written, and close."""
        self._state.handle(Event.CLOSE)
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Close now, without flushing, and cancel the handlers that still work on replies."""
        self._inflight.cancel_tasks()
        if self._transport is not None:
            self._transport.abort()

    def fail(self, error: BaseException) -> None:
        """Log a programming error, and close: the broker goes on."""
        self._metrics.failures += 1
        self._services.server.log.failure("a request failed", error, client=self._dispatcher.client_host)
        self._drop()

    def refuse(self, event: str, why: str, *, kind: str = "", limit: str = "", **fields: object) -> None:
        """Log what the client did, and close. `limit` names the limit that was reached, if that is the reason."""
        if limit:
            self._metrics.limit_hits[limit] += 1
            kind, fields["limit"] = limit, limit
        client = {"client": self._dispatcher.client_host, "client_id": self._dispatcher.client_id}
        self._services.server.log.warning(f"{event} {kind}", event, why=why, **client, **fields)
        self._drop()

    def _drop(self) -> None:
        """Close after the replies that are ready; nothing more begins."""
        if self._state.closed:
            return
        self._turn.send()
        self._turn.backlog.clear()
        self.close()
