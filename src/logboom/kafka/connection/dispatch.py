"""From a frame to its handler: header, route, body, and the client's quotas.

The dispatcher knows who the client of its connection is. It takes requests off the backlog and begins them; whether one
may begin now is decided by `connection.io_cycle`, and its reply goes to `connection.inflight`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

from logboom.kafka.connection.inflight import InflightQueue, InflightRequest, with_oldest_header
from logboom.kafka.connection.timed import TimedAwaitable
from logboom.kafka.handlers.context import RequestContext
from logboom.kafka.handlers.template_cache import TEMPLATE_ELEMENTS, TemplateMatcher
from logboom.kafka.metrics import api_name
from logboom.kafka.produce.response import API_KEY as PRODUCE
from logboom.kafka.wire.heads import claimed_api, read_head, skip_head_tags
from logboom.kafka.wire.reading import MalformedError

if TYPE_CHECKING:
    from logboom.broker.quotas.clients import ClientQuotas
    from logboom.kafka.connection.services import ConnectionServices
    from logboom.kafka.handlers.route import Route

_ELEMENT_BYTES: Final = 256
"""The memory that each element of a request is assumed to need once decoded, in addition to its bytes in the frame."""

_RUN_ELEMENTS_BYTES: Final = TEMPLATE_ELEMENTS * _ELEMENT_BYTES
"""The same for a whole request that matches a template."""

_RUN_BYTES_MAX: Final = 128 * 1024
"""Requests of a run begin together up to this many bytes: it is better to begin the next while the disk writes
these."""


class RequestOwner(Protocol):
    """The connection, as far as a request can end it."""

    def throttle(self, throttle_ms: int) -> None:
        """A quota was exceeded: begin no request for this long."""

    def refuse(self, event: str, why: str, *, kind: str = "", limit: str = "", **fields: object) -> None:
        """Log, and close the connection."""

    def fail(self, error: BaseException) -> None:
        """Log a programming error, and close the connection."""


class RequestDispatcher:
    """The dispatcher of one connection."""

    __slots__ = (
        "_client",
        "_connection",
        "_contexts",
        "_inflight",
        "_metrics",
        "_now_ns",
        "_owner",
        "_quotas",
        "_services",
        "_templates",
        "client_host",
        "client_id",
    )

    def __init__(
        self, services: ConnectionServices, inflight: InflightQueue, owner: RequestOwner, connection: Hashable
    ) -> None:
        self._services = services
        self._inflight = inflight
        self._owner = owner
        self._connection = connection
        self._metrics = services.server.metrics
        self._now_ns = services.broker.clock.monotonic_ns
        self._templates = TemplateMatcher(services.templates)
        self._contexts: dict[Route, RequestContext] = {}
        self._client = b""
        self.client_id = ""
        """What the client calls itself."""
        self.client_host = ""
        self._quotas: ClientQuotas | None = None

    def quotas_changed(self) -> None:
        """Ask for the client's quotas again."""
        self._quotas = self._services.quotas.of(self.client_id)

    # --- beginning requests ---

    def begin(self, backlog: deque[bytearray], requests_max: int) -> int:
        """Begin the request at the head of the backlog, or a run of up to `requests_max`. Returns how many."""
        return self._begin_run(backlog, requests_max) or self._begin_one(backlog.popleft())

    def _begin_run(self, backlog: deque[bytearray], requests_max: int) -> int:
        """Begin the requests at the head of the backlog that match one template; 0 where the first matches none."""
        if self._quotas is not None:
            return 0  # a client with quotas is charged request by request
        config, inflight = self._services.server.config.now, self._inflight
        left = config.max_inflight_total_requests - self._metrics.inflight_requests
        requests_max = min(requests_max, max(1, min(left, config.max_inflight_requests - inflight.requests)))
        bytes_max = min(config.max_inflight_bytes - inflight.size_bytes, _RUN_BYTES_MAX)
        run = self._templates.take_run(backlog, requests_max, _RUN_ELEMENTS_BYTES, bytes_max)
        if run is None:
            return 0
        (route, template, _), correlation_ids, payloads, size_bytes = run
        count = len(payloads)
        entry = inflight.begin(route, correlation_ids[0], size_bytes, count * _RUN_ELEMENTS_BYTES, count)
        try:
            inflight.await_reply(entry, template.start(self._context_of(route), correlation_ids, payloads))
        except Exception as error:  # noqa: BLE001 - as in _begin_one
            self._owner.fail(error)
        return count

    def _begin_one(self, frame: bytearray) -> int:
        try:
            self._dispatch(frame)
        except MalformedError as error:
            self._metrics.malformed += 1
            key, version = claimed_api(frame)
            name = api_name(key)
            self._owner.refuse("request that cannot be read", str(error), limit=error.limit, api=name, version=version)
        except Exception as error:  # noqa: BLE001 - outermost: a bug ends one connection, not the broker
            self._owner.fail(error)
        return 1

    def _dispatch(self, frame: bytearray) -> None:
        api_key, version, correlation_id, client, position = read_head(frame)
        if client and client != self._client:
            self._identify(client)
        route = self._services.routes.find(api_key, version)
        if route is None:
            self._unsupported(api_key, version, correlation_id, memoryview(frame), position)
            return
        context = self._context_of(route)
        request, elements = self._read(route, context, frame, position)
        entry = self._inflight.begin(route, correlation_id, len(frame), elements * _ELEMENT_BYTES)
        if self._quotas is None:
            self._inflight.await_reply(entry, route.handler.handle(context, request))
        else:
            self._handle_with_quotas(self._quotas, entry, context, request)

    def _read(self, route: Route, context: RequestContext, frame: bytearray, position: int) -> tuple[Any, int]:
        """The request whose header ends at `position`, and the number of its elements."""
        most = budget = self._services.server.config.now.max_request_elements
        if route.request_tags:
            position, budget = skip_head_tags(frame, position, budget)
        request, end, left = route.read(memoryview(frame), position, budget)
        if end != len(frame):
            self._metrics.trailing += 1
        elif route.handler.template_of is not None and budget == most:
            # The header has no tagged fields (none took from the budget), so that the prefix is all there is.
            self._templates.learn(route, context, frame, position, request)
        return request, budget - left

    # --- the client ---

    def _identify(self, client: bytearray) -> None:
        """The client id changes with this request."""
        try:
            self.client_id = client.decode()
        except UnicodeDecodeError:
            raise MalformedError("the client id is no UTF-8") from None
        self._client = bytes(client)
        self._contexts.clear()
        self._templates.reset(self._client)
        self.quotas_changed()

    def _context_of(self, route: Route) -> RequestContext:
        """The context of the requests of a route, made once."""
        context = self._contexts.get(route)
        if context is None:
            context = self._contexts[route] = self._context(route.version)
        return context

    def _context(self, version: int) -> RequestContext:
        services = self._services
        return RequestContext(
            services.broker, services.server, self.client_id, self.client_host, version, self._connection
        )

    # --- versions that are not served ---

    def _unsupported(self, api_key: int, version: int, correlation_id: int, frame: memoryview, position: int) -> None:
        routes = self._services.routes
        handler = routes.handlers.get(api_key)
        if handler is not None and handler.handle_unsupported is not None:
            reply = handler.handle_unsupported(self._context(version), frame, position)
            if reply is not None:
                newest = routes.find(api_key, handler.max_version)
                assert newest is not None
                entry = self._inflight.begin(newest, correlation_id, len(frame))
                self._inflight.complete(entry, with_oldest_header(correlation_id, reply.pieces))
                return
        self._metrics.unsupported += 1
        known = "no such API here" if handler is None else handler.served
        kind, name = f"{api_key} {version}", api_name(api_key)
        self._owner.refuse("request that is not served", known, kind=kind, api=name, version=version)

    # --- quotas ---

    def _handle_with_quotas(
        self, quotas: ClientQuotas, entry: InflightRequest, context: RequestContext, request: Any
    ) -> None:
        """Handle a request and charge it. The response leaves at once, and the connection waits after it (KIP-219)."""
        reply = entry.route.handler.handle(context, request)
        entry.charged_ns = self._now_ns()
        charge = partial(self._charge, quotas, entry)
        if hasattr(reply, "__await__"):
            reply = TimedAwaitable(reply, charge, self._now_ns)
        else:
            charge(entry.charged_ns - entry.started_ns)
        self._inflight.await_reply(entry, reply)
        quotas.charge_time(self._now_ns() - entry.charged_ns)

    def _charge(self, quotas: ClientQuotas, entry: InflightRequest, spent_ns: int) -> None:
        produced_bytes = entry.size_bytes if entry.route.handler.api_key == PRODUCE else 0
        entry.throttle_ms = quotas.charge_request(spent_ns, produced_bytes)
        if entry.throttle_ms:
            self._owner.throttle(entry.throttle_ms)
