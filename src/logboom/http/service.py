"""The HTTP application: `/metrics`, `/healthz`, `/readyz`.

It runs on an event loop of its own and calls functions on the broker's, waiting for a bounded time. A broker's loop
that does not answer in that time means that the broker is not healthy.
"""

import asyncio
import gzip
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from http import HTTPStatus
from typing import Final, TypeAlias, TypeVar
from urllib.parse import parse_qs

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector
from structlog.typing import FilteringBoundLogger

from logboom.base.limits import LimitUsage
from logboom.broker.runtime import Runtime, SecondLoop
from logboom.http.calls import run_on
from logboom.http.config import HttpConfig
from logboom.http.request import Request
from logboom.http.server import HttpServer, Response

Answer = TypeVar("Answer")
Source: TypeAlias = Callable[[], Iterable[Metric]]
"""Reads counters. Called on the event loop, which writes them, so that no counter needs a lock."""

LOOP_ANSWERS_WITHIN_S: Final = 3.0
_NO_WEIGHT: Final = re.compile(r"q=0(\.0{0,3})?")
_INDEX: Final = "logboom: /metrics /healthz /readyz\n"


class HttpService:
    """Serves the metrics of the sources, and whether the node is ready.

    Life: made on the broker's event loop; `start`, then `stop`, there.
    """

    def __init__(
        self,
        config: HttpConfig,
        sources: Sequence[Source],
        not_ready: Callable[[], str | None],
        *,
        runtime: Runtime,
        log: FilteringBoundLogger,
        process: Sequence[Collector] = (),
    ) -> None:
        """`sources` is read at each scrape, so it may still grow. `process` are collectors that need no event loop,
        such as those of the process's memory; they are asked on the server's own."""
        self._config = config
        self._broker_loop = asyncio.get_running_loop()
        self._sources = sources
        self._not_ready = not_ready
        self._process = process
        self._start_loop = runtime.start_loop
        self._loop: SecondLoop | None = None
        self._server = HttpServer(
            self._answer,
            max_connections=config.max_connections,
            request_timeout_s=config.request_timeout_s,
            clock=runtime.clock,
            log=log,
        )
        self.address = ""
        """HOST:PORT it listens on, once started."""

    def limits(self) -> Iterator[LimitUsage]:
        """How much of its limit is used; a scrape of `/metrics` counts itself."""
        yield LimitUsage("http.max_connections", self._config.max_connections, self._server.connections)

    def limit_hits(self) -> dict[str, int]:
        """How often the limit was reached."""
        return {"http.max_connections": self._server.refused}

    async def start(self) -> None:
        """Serve until `stop`. Raises OSError where the address cannot be listened on."""
        assert self._config.listen is not None
        self._loop = self._start_loop("http")
        try:
            self.address = await run_on(self._loop.loop, partial(self._server.start, self._config.listen))
        except BaseException:  # a cancelled start, too: its thread ends
            await self.stop()
            raise

    async def stop(self) -> None:
        """Stop serving. Idempotent."""
        loop, self._loop = self._loop, None
        if loop is not None:
            await run_on(loop.loop, self._server.stop)
            await self._broker_loop.run_in_executor(None, loop.stop)

    # --- on the server's own loop -----------------------------------------------------------------------------------

    async def _answer(self, request: Request) -> Response:
        try:
            match request.path:
                case "/metrics":
                    return await self._metrics(request)
                case "/healthz":
                    await self._ask(bool)
                    return _text(HTTPStatus.OK, "ok\n")
                case "/readyz":
                    reason = await self._ask(self._not_ready)
                    status = HTTPStatus.SERVICE_UNAVAILABLE if reason else HTTPStatus.OK
                    return _text(status, f"{reason or 'ready'}\n")
                case "/":
                    return _text(HTTPStatus.OK, _INDEX)
                case _:
                    return _text(HTTPStatus.NOT_FOUND, _INDEX)
        except TimeoutError:
            return _text(HTTPStatus.SERVICE_UNAVAILABLE, "the broker's loop does not answer\n")

    async def _metrics(self, request: Request) -> Response:
        """All metrics in the format that the scraper asks for, or those that its query names (`name[]=`)."""
        metrics = await self._ask(lambda: [metric for source in self._sources for metric in source()])
        registry = CollectorRegistry(support_collectors_without_names=True)
        for collector in (*self._process, _Read(metrics)):
            registry.register(collector)
        encode, content_type = _encoder(request.headers.get("accept", ""))
        names = parse_qs(request.query).get("name[]")
        body = encode(registry.restricted_registry(names) if names else registry)
        if not _takes_gzip(request.headers.get("accept-encoding", "")):
            return Response(HTTPStatus.OK, body, content_type)
        # Without a time in its head, equal metrics give equal bytes.
        packed = gzip.compress(body, mtime=0)
        return Response(HTTPStatus.OK, packed, content_type, [("Content-Encoding", "gzip")])

    async def _ask(self, question: Callable[[], Answer]) -> Answer:
        """Call `question` on the broker's loop and wait for its result. Raises TimeoutError where that is too slow."""

        async def asked() -> Answer:
            return question()

        async with asyncio.timeout(LOOP_ANSWERS_WITHIN_S):
            return await run_on(self._broker_loop, asked)


def _text(status: HTTPStatus, text: str) -> Response:
    return Response(status, text.encode())


def _encoder(accept: str) -> tuple[Callable[[Collector], bytes], str]:
    """The format that a scraper asks for; the plain one where what it asks for is none (RFC 9110, section 12.5.1)."""
    try:
        return choose_encoder(accept)
    except (TypeError, ValueError):  # a version that is not a number: the library compares it all the same
        return choose_encoder("")


def _takes_gzip(accept_encoding: str) -> bool:
    """Whether gzip is among the codings that the client takes: `gzip;q=0` refuses it (RFC 9110, section 12.5.3)."""
    for each in accept_encoding.lower().split(","):
        coding, *parameters = (part.strip() for part in each.split(";"))
        if coding == "gzip":
            return not any(_NO_WEIGHT.fullmatch(parameter) for parameter in parameters)
    return False


class _Read(Collector):
    """Metrics that were read."""

    def __init__(self, metrics: Iterable[Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> Iterable[Metric]:
        return self._metrics
