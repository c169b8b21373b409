"""One Kafka client's connection: frames in, replies out in the order of the requests, and nobody left to grow.

It knows bytes, headers and slots, and nothing of what a request says. The flow: bytes -> FrameReader -> backlog -> (as
many as the limits allow) handler -> slot -> replies that are next in line, one write per turn of the loop. While a
limit holds, the backlog waits and the socket is not read, so the peer feels it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

import structlog

from logboom.base.ports import Bytes
from logboom.kafka.connection.admission import Refusal
from logboom.kafka.connection.deadlines import Patience
from logboom.kafka.connection.frames import FrameReader
from logboom.kafka.connection.inflight import Slot, abandon, expire, length, with_head, with_plain_head
from logboom.kafka.connection.receive_budget import CROWDED, Unbegun
from logboom.kafka.connection.throttle import Muting
from logboom.kafka.handlers.handler import Close, Encoded, Failed, Later, RequestContext
from logboom.kafka.handlers.route import Route
from logboom.kafka.handlers.template_cache import ELEMENTS, Recent
from logboom.kafka.metrics import api_name
from logboom.kafka.quota.clients import ClientMeters
from logboom.kafka.wire.error_counts import count_errors
from logboom.kafka.wire.heads import api_key_of, claimed_api, read_head, skip_head_tags
from logboom.kafka.wire.messages import make_wait, put_wait
from logboom.kafka.wire.reading import MalformedError
from logboom.kafka.wire.writing import encode

if TYPE_CHECKING:
    from logboom.kafka.config import KafkaConfig
    from logboom.kafka.context import Shared

_REQUESTS_PER_TURN: Final = 64
"""Requests of one connection handled before the other connections get their turn."""

_ELEMENT_BYTES: Final = 256
"""What an element of a request is reckoned to take in memory, beside its bytes in the frame."""

_USUAL_BYTES: Final = ELEMENTS * _ELEMENT_BYTES
"""The same for a usual request."""

_RUN_BYTES: Final = 128 * 1024
"""Usual requests are begun together up to so many bytes: more are worth being begun while the disk works."""


class Connection(asyncio.BufferedProtocol):
    """See the module. Life: from accept until the socket is closed by either side."""

    def __init__(self, shared: Shared, loop: asyncio.AbstractEventLoop) -> None:
        self._shared = shared
        self._loop = loop
        self._now_s = shared.clock.monotonic_s
        self._now_ns = shared.clock.monotonic_ns
        self._metrics = shared.metrics
        self._frames = FrameReader(shared.scratch, shared.config.max_request_bytes)
        self._backlog: deque[bytearray] = deque()
        self._slots: deque[Slot] = deque()
        self._transport: asyncio.Transport | None = None
        self._tasks: set[asyncio.Future[Any]] = set()
        self._config = shared.config
        self._inflight_requests = 0
        self._inflight_bytes = 0
        self._recent = Recent(shared.usuals)
        self._ready_bytes = 0
        self._unsent_bytes = 0
        self._turn_scheduled = False
        self._reading = True
        self._writable = True
        self._closed = False
        self._client_bytes = b""
        self.client_id = ""
        """What the client calls itself."""
        self._contexts: dict[Route, RequestContext] = {}
        self._host = ""
        self._heard_s = 0.0
        self._patience = Patience()
        self._lying_bytes = 0
        self._said_all = False
        self._quota: ClientMeters | None = None
        self._muting = Muting(loop, self.schedule_turn)
        self._unbegun = Unbegun(shared.metrics)
        self._backpressured = False

    # --- asyncio's side -----------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        peer = transport.get_extra_info("peername")
        self._host = str(peer[0]) if peer else ""
        self._heard_s = self._now_s()
        shared = self._shared
        self._metrics.connections_total += 1
        refusal = shared.admission.enter(self._host)
        if refusal is not None and not refusal.wait_ms:
            self._turn_away(refusal)
            return
        shared.connections[self] = None
        self._quota = shared.quotas.of(self.client_id)
        self._metrics.connections = len(shared.connections)
        self.configure(shared.config)
        if refusal is not None:
            # It keeps its place until it is closed: whoever comes too fast is not helped to come even faster.
            self._transport.pause_reading()
            self._loop.call_later(refusal.wait_ms / 1_000, self._turn_away, refusal)

    def _turn_away(self, refusal: Refusal) -> None:
        if not self._closed:
            self._metrics.connections_refused += 1
            self._refuse("connection refused", refusal.why, limit=refusal.limit)

    def configure(self, config: KafkaConfig) -> None:
        """Take settings that changed."""
        self._frames.max_bytes = config.max_request_bytes
        self._config = config
        if self._transport is not None:
            self._transport.set_write_buffer_limits(high=config.max_unsent_bytes)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._frames.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        if self._closed:
            return
        frames = self._frames.received(nbytes)
        self._heard_s = self._now_s()
        if frames:
            self._backlog.extend(frames)
            self._turn()
        if self._frames.room_bytes != self._unbegun.arriving:
            self._arrives()
        if self._frames.broken is not None and not self._closed:
            self._metrics.malformed += 1
            self._refuse("bytes that are no Kafka request", self._frames.broken, limit=self._frames.limit)

    def _arrives(self) -> None:
        """A long request is on its way, or is whole."""
        unbegun = self._unbegun
        unbegun.note_arriving(self._frames.room_bytes)
        if not unbegun.arriving or self._closed:
            return
        if unbegun.crowds_out(self._config.max_inflight_total_bytes):
            unbegun.release()  # at once, or others were closed for it too
            self._refuse("request that finds no room", CROWDED, limit="kafka.max_inflight_total_bytes")
        elif self._shared.is_full:
            self._regulate_reading()

    def eof_received(self) -> bool:
        """A peer that has said all still gets its answers, as from Kafka; not those that wait for records to come."""
        waits = any(slot.later is not None and slot.later.on_abandoned is not None for slot in self._slots)
        if self._closed or waits or not (self._slots or self._backlog):
            return False
        self._said_all = True
        self._patience.begin(self._shared.config.request_timeout_s)
        return True

    def pause_writing(self) -> None:
        self._writable = False
        self._account_unsent()

    def resume_writing(self) -> None:
        self._writable = True
        self._account_unsent()
        self.schedule_turn()

    def connection_lost(self, exc: Exception | None) -> None:
        self._closed = True
        shared, metrics = self._shared, self._metrics
        if self in shared.connections:
            del shared.connections[self]
            shared.admission.leave(self._host)
        shared.starved.pop(self, None)
        shared.fetch_sessions.owner_gone(self)
        self._muting.end()
        self._unbegun.release()
        metrics.connections = len(shared.connections)
        metrics.unsent_bytes -= self._unsent_bytes
        metrics.inflight_bytes -= self._inflight_bytes
        metrics.inflight_requests -= abandon(self._slots)
        self._backlog.clear()
        shared.feed_starved()
        shared.note_departure()

    # --- one turn -----------------------------------------------------------------------------------------------

    def schedule_turn(self) -> None:
        """See to replies, backlog and reading once, after all that happens in this turn of the loop."""
        if not self._turn_scheduled and not self._closed:
            self._turn_scheduled = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._turn_scheduled = False
        if self._closed:
            return
        slots, backlog = self._slots, self._backlog
        if slots:
            self._send()
        left = _REQUESTS_PER_TURN
        while backlog and (not slots or self._has_room()) and self._may_begin(backlog[0]):
            if left <= 0:
                self.schedule_turn()
                break
            begun = self._begin_next(left)
            if not begun:
                return
            left -= begun
        if left < _REQUESTS_PER_TURN:
            self._send()
        self._regulate_reading()
        if not slots and (self._shared.stopping or (self._said_all and not backlog)):
            self.close()

    def _has_room(self) -> bool:
        """Whether one more request may be under way beside those that are."""
        config = self._config
        return (
            self._inflight_requests < config.max_inflight_requests
            and self._inflight_bytes < config.max_inflight_bytes
            and self._metrics.inflight_requests < config.max_inflight_total_requests
        )

    def _may_begin(self, frame: bytearray) -> bool:
        if not self._writable or self._muting.on or self._shared.stopping:
            return False
        shared = self._shared
        self._backpressured = False
        if not self._slots and not shared.staging.backpressured:
            return True
        handler = shared.routes.handlers.get(api_key_of(frame))
        if handler is None:
            return True
        self._backpressured = handler.stages and shared.staging.backpressured
        return not self._backpressured and (not handler.alone or self._all_answered())

    def _all_answered(self) -> bool:
        self._send()
        return not self._slots and self._writable

    def _regulate_reading(self) -> None:
        """Read the socket only while what it brings can be begun."""
        assert self._transport is not None
        if self._said_all:
            return
        if self._backlog or self._unbegun.waiting:
            self._unbegun.note_waiting(self._backlog)
        waits = self._slots or (self._unbegun.arriving and not self._unbegun.alone)
        starved = self._backpressured or (bool(waits) and self._shared.is_full)
        held_up = starved or self._muting.on or self._shared.stopping
        reading = not self._backlog and self._writable and not held_up
        if starved:
            self._shared.starved[self] = None
        else:
            self._shared.starved.pop(self, None)
        if reading is not self._reading and not self._transport.is_closing():
            self._reading = reading
            if reading:
                self._transport.resume_reading()
            else:
                self._transport.pause_reading()
                self._shared.note_pause(self.held, backpressured=self._backpressured, writable=self._writable)

    # --- requests -----------------------------------------------------------------------------------------------

    def _begin_next(self, most: int) -> int:
        """Begin what is next in the backlog: a run of at most so many, or one; 0 at the connection's end."""
        begun = self._begin_run(most) or self._begin(self._backlog.popleft())
        return 0 if self._closed else begun

    def _begin_run(self, most: int) -> int:
        """Begin the requests at the head of the backlog that are alike, as one; how many they are."""
        if self._quota is not None:
            return 0  # a client with quotas is measured request by request
        config = self._config
        room = config.max_inflight_total_requests - self._metrics.inflight_requests
        most = min(most, max(1, min(room, config.max_inflight_requests - self._inflight_requests)))
        bytes_max = min(config.max_inflight_bytes - self._inflight_bytes, _RUN_BYTES)
        run = self._recent.take_run(self._backlog, most, _USUAL_BYTES, bytes_max)
        if run is None:
            return 0
        (route, usual, _), correlation_ids, payloads, size_bytes = run
        count = len(payloads)
        slot = self._take_place(route, correlation_ids[0], size_bytes, count * _USUAL_BYTES, count)
        try:
            self._await_reply(slot, usual.start(self._context_of(route), correlation_ids, payloads))
        except Exception as error:  # noqa: BLE001  # as in _begin
            self._fail(error)
        return count

    def _begin(self, frame: bytearray) -> int:
        """Handle one request, and count it."""
        try:
            self._dispatch(frame)
        except MalformedError as error:
            self._metrics.malformed += 1
            key, version = claimed_api(frame)
            name = api_name(key)
            self._refuse("request that cannot be read", str(error), limit=error.limit, api=name, version=version)
        except Exception as error:  # noqa: BLE001  # the outermost loop: one connection ends, the broker does not
            self._fail(error)
        return 1

    def _dispatch(self, frame: bytearray) -> None:
        api_key, version, correlation_id, client, position = read_head(frame)
        if client and client != self._client_bytes:
            self._know_client(client)
        route = self._shared.routes.find(api_key, version)
        if route is None:
            self._unsupported(api_key, version, correlation_id, memoryview(frame), position)
            return
        context = self._context_of(route)
        request, elements = self._read(route, context, frame, position)
        slot = self._take_place(route, correlation_id, len(frame), elements * _ELEMENT_BYTES)
        if self._quota is None:
            self._await_reply(slot, route.handler.handle(context, request))
        else:
            self._handle_measured(self._quota, slot, context, request)

    def _read(self, route: Route, context: RequestContext, frame: bytearray, position: int) -> tuple[Any, int]:
        """The request whose head ends at `position`, and of how many elements it is."""
        most = budget = self._shared.config.max_request_elements
        if route.request_tags:
            position, budget = skip_head_tags(frame, position, budget)
        request, end, left = route.read(memoryview(frame), position, budget)
        if end != len(frame):
            self._metrics.trailing += 1
        elif route.handler.usual is not None and budget == most:
            self._recent.learn(route, context, frame, position, request)
        return request, budget - left

    def _know_client(self, raw: bytearray) -> None:
        try:
            self.client_id = raw.decode()
        except UnicodeDecodeError:
            raise MalformedError("the client id is no UTF-8") from None
        self._client_bytes = bytes(raw)
        self._contexts.clear()
        self._recent.forget(self._client_bytes)
        self._quota = self._shared.quotas.of(self.client_id)

    def _context_of(self, route: Route) -> RequestContext:
        """Made once per route, also by a usual request whose kind another connection has learned."""
        context = self._contexts.get(route)
        if context is None:
            context = self._contexts[route] = self._context(route.version)
        return context

    def _context(self, version: int) -> RequestContext:
        return RequestContext(self._shared.broker, self._shared, self.client_id, self._host, version, self)

    def _take_place(self, route: Route, correlation_id: int, size: int, extra: int = 0, requests: int = 1) -> Slot:
        held = size + extra
        slot = Slot(route, correlation_id, size, held, requests, self._now_ns())
        self._slots.append(slot)
        self._inflight_requests += requests
        self._inflight_bytes += held
        metrics = self._metrics
        metrics.inflight_requests += requests
        metrics.inflight_bytes += held
        route.metrics.requests += requests
        route.metrics.request_bytes += size
        return slot

    def _await_reply(self, slot: Slot, reply: Any) -> None:
        if isinstance(reply, Later):
            slot.later = reply
            reply.listen(partial(self._finish_later, slot))
        elif hasattr(reply, "__await__"):
            task = asyncio.ensure_future(reply)
            self._tasks.add(task)
            task.add_done_callback(partial(self._finish_task, slot))
        else:
            self._finish(slot, reply)

    def _unsupported(self, api_key: int, version: int, correlation_id: int, frame: memoryview, position: int) -> None:
        handler = self._shared.routes.handlers.get(api_key)
        if handler is not None and handler.handle_unsupported is not None:
            reply = handler.handle_unsupported(self._context(version), frame, position)
            if reply is not None:
                newest = self._shared.routes.find(api_key, handler.max_version)
                assert newest is not None
                slot = self._take_place(newest, correlation_id, len(frame))
                self._complete(slot, with_plain_head(correlation_id, reply.pieces))
                return
        self._metrics.unsupported += 1
        known = "no such API here" if handler is None else handler.served
        kind, name = f"{api_key} {version}", api_name(api_key)
        self._refuse("request that is not served", known, kind=kind, api=name, version=version)

    # --- quotas -------------------------------------------------------------------------------------------------

    @property
    def held(self) -> tuple[int, int]:
        """Requests under way, and their memory."""
        return self._inflight_requests, self._inflight_bytes

    def quotas_changed(self) -> None:
        """Some client's quota is another now; whoever waits for one is judged anew."""
        self._quota = self._shared.quotas.of(self.client_id)
        self._muting.lift()

    def _handle_measured(self, meters: ClientMeters, slot: Slot, context: RequestContext, request: Any) -> None:
        """Handle a request of a client that has quotas. The reply goes out at once; the connection waits (KIP-219)."""
        self._await_reply(slot, meters.handle(slot, context, request, self._muting.wait))
        meters.charge_rest(slot)

    # --- replies ------------------------------------------------------------------------------------------------

    def _finish_task(self, slot: Slot, task: asyncio.Future[Any]) -> None:
        self._tasks.discard(task)
        if task.cancelled():
            return
        error = task.exception()
        if error is not None:
            self._fail(error)
        else:
            self._finish_later(slot, task.result())

    def _finish_later(self, slot: Slot, reply: Any) -> None:
        if self._closed:
            return
        try:
            self._finish(slot, reply)
        except Exception as error:  # noqa: BLE001  # as in _begin: a reply that cannot be written ends one connection
            self._fail(error)
            return
        if self._slots and slot is self._slots[0]:
            more = self._backlog or not self._reading or self._said_all or self._shared.stopping
            if isinstance(reply, bytes) and not more:
                self._send()
            else:
                self.schedule_turn()

    def _finish(self, slot: Slot, reply: Any) -> None:
        route = slot.route
        if isinstance(reply, bytes):
            self._complete(slot, (reply,))
            return
        if isinstance(reply, Encoded):
            pieces = reply.pieces
            if reply.throttle_ms:
                self._muting.wait(reply.throttle_ms)
            if slot.throttle_ms:
                pieces = put_wait(reply, slot.throttle_ms)
        elif reply is None or isinstance(reply, Close | Failed):
            self._finish_without_reply(slot, reply)
            return
        else:
            count_errors(reply, route.metrics.errors)
            if slot.throttle_ms:
                reply = make_wait(reply, slot.throttle_ms)
            pieces = (encode(reply),)
        self._complete(slot, with_head(slot, pieces))

    def _finish_without_reply(self, slot: Slot, reply: Close | Failed | None) -> None:
        self._complete(slot, ())
        if isinstance(reply, Close):
            self._refuse("request without a reply failed", reply.why)
        elif isinstance(reply, Failed):
            self._fail(reply.error)

    def _complete(self, slot: Slot, pieces: Sequence[Bytes]) -> None:
        slot.done = True
        slot.later = None  # it knows the slot, and a circle would wait for the garbage collector
        slot.pieces = pieces
        api, metrics = slot.route.metrics, self._metrics
        if pieces:
            size = slot.reply_bytes = length(pieces)
            api.replies += slot.requests
            api.reply_bytes += size
            api.time_ns += (self._now_ns() - slot.started_ns) * slot.requests
            self._ready_bytes += size
            self._unsent_bytes += size
            metrics.unsent_bytes += size
        metrics.inflight_requests -= slot.requests
        metrics.inflight_bytes -= slot.held_bytes
        self._inflight_bytes -= slot.held_bytes
        if self._shared.starved:
            self._shared.feed_starved()

    def _send(self) -> None:
        """Write all replies that are next in line."""
        slots = self._slots
        out: list[Bytes] = []
        while slots and slots[0].done:
            slot = slots.popleft()
            self._inflight_requests -= slot.requests
            self._ready_bytes -= slot.reply_bytes
            out.extend(slot.pieces)
        transport = self._transport
        if not out or transport is None:
            return
        if transport.is_closing():
            pass  # the peer left while its requests were worked on
        elif len(out) == 1:
            transport.write(out[0])
        else:
            transport.writelines(out)
        self._account_unsent()

    def _account_unsent(self) -> None:
        """What the peer has not read yet, together with replies that wait for their turn.

        What was just written is on its way, and counts from the next tick on if it still lies here then.
        """
        assert self._transport is not None
        lying = self._lying_bytes if self._writable else self._transport.get_write_buffer_size()
        unsent = self._ready_bytes + lying
        self._metrics.unsent_bytes += unsent - self._unsent_bytes
        self._unsent_bytes = unsent

    # --- the end ------------------------------------------------------------------------------------------------

    def tick(self, now_s: float) -> None:
        """Once a second: requests whose time is over, and a peer that has gone silent or brings next to nothing."""
        expire(self._slots, now_s)
        self._look_at_unread()
        if not self._slots and self._writable and now_s - self._heard_s > self._config.idle_timeout_s:
            self.close()
        elif self._said_all:
            if self._patience.is_over():
                self._drop()
        elif self._frames.in_frame and self._reading:
            why = self._patience.await_rest(self._frames, self._config.request_timeout_s)
            if why is not None:
                self._metrics.too_slow += 1
                self._refuse("request that does not come", why)
        else:
            self._patience.nothing_awaited()

    def _look_at_unread(self) -> None:
        """A peer that reads nothing is closed when it has been silent for too long, or its room is needed."""
        assert self._transport is not None
        lying = self._transport.get_write_buffer_size()
        self._lying_bytes = lying if self._writable else 0
        if not lying and not self._unsent_bytes:
            return
        self._account_unsent()
        config = self._config
        limit_s = config.idle_timeout_s if self._shared.reply_room_bytes else config.request_timeout_s
        why = self._patience.await_reader(lying, limit_s)
        if why is not None:
            self._metrics.unread += 1
            self._refuse("peer that does not read", why)
            self.abort()

    def close(self) -> None:
        """Send what is written and close."""
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Close now; tasks that still work on replies are cancelled."""
        for task in tuple(self._tasks):
            task.cancel()
        if self._transport is not None:
            self._transport.abort()

    def _fail(self, error: BaseException) -> None:
        self._metrics.failures += 1
        structlog.get_logger("logboom.kafka").error("a request failed", client=self._host, exc_info=error)
        self._drop()

    def _refuse(self, event: str, why: str, *, kind: str = "", limit: str = "", **fields: object) -> None:
        if limit:
            self._metrics.crossed[limit] += 1
            kind, fields["limit"] = limit, limit
        who = {"client": self._host, "client_id": self.client_id}
        self._shared.complaints.say(f"{event} {kind}", event, why=why, **who, **fields)
        self._drop()

    def _drop(self) -> None:
        """Close after the replies that are ready; nothing more is begun."""
        if self._closed:
            return
        self._send()
        self._backlog.clear()
        self.close()
        self._closed = True
