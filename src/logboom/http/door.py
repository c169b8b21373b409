"""The HTTP application: `/metrics`, `/healthz`, `/readyz`.

It runs on the server's threads and calls functions on the broker's event loop, waiting for a bounded time. A loop that
does not answer in that time means that the broker is not healthy.
"""

import asyncio
import concurrent.futures
from collections.abc import Callable, Iterable, Iterator, Sequence
from http import HTTPStatus
from typing import Any, Final, TypeAlias, TypeVar

from prometheus_client import CollectorRegistry, GCCollector, ProcessCollector, make_wsgi_app
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from logboom.base.limits import LimitUsage
from logboom.http.config import HttpConfig
from logboom.http.server import BoundedServer

Answer = TypeVar("Answer")
Source: TypeAlias = Callable[[], Iterable[Metric]]
"""Reads counters. Called on the event loop, which writes them, so that no counter needs a lock."""

LOOP_ANSWERS_WITHIN_S: Final = 3.0
_PLAIN: Final = [("Content-Type", "text/plain; charset=utf-8")]
_INDEX: Final = "logboom: /metrics /healthz /readyz\n"


class HttpDoor:
    """Serves the metrics of the sources, and whether the node is ready. Made and started on the broker's event loop."""

    def __init__(self, config: HttpConfig, sources: Sequence[Source], not_ready: Callable[[], str | None]) -> None:
        assert config.listen is not None
        self._config = config
        self._loop = asyncio.get_running_loop()
        self._not_ready = not_ready
        registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        GCCollector(registry=registry)
        registry.register(_OnLoop(lambda: self._ask(lambda: [metric for source in sources for metric in source()])))
        self._metrics = make_wsgi_app(registry)
        self._server = BoundedServer(
            config.listen,
            self._answer,
            max_connections=config.max_connections,
            request_timeout_s=config.request_timeout_s,
        )

    @property
    def address(self) -> str:
        """HOST:PORT it listens on."""
        return self._server.address

    def limits(self) -> Iterator[LimitUsage]:
        """How much of its limit is used; a scrape of `/metrics` counts itself."""
        yield LimitUsage("http.max_connections", self._config.max_connections, self._server.connections)

    def limit_hits(self) -> dict[str, int]:
        """How often the limit was reached."""
        return {"http.max_connections": self._server.refused}

    def start(self) -> None:
        """Serve until `stop`."""
        self._server.start()

    async def stop(self) -> None:
        """Stop serving."""
        await self._loop.run_in_executor(None, self._server.stop)

    def _ask(self, question: Callable[[], Answer]) -> Answer:
        """Call `question` on the event loop and wait for its result. Raises TimeoutError where the loop is too slow."""
        answer: concurrent.futures.Future[Answer] = concurrent.futures.Future()
        self._loop.call_soon_threadsafe(_settle, answer, question)
        return answer.result(LOOP_ANSWERS_WITHIN_S)

    def _answer(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> list[bytes]:
        try:
            match environ["PATH_INFO"]:
                case "/metrics":
                    # The library refuses HEAD, which means a GET without the body.
                    body: list[bytes] = self._metrics({**environ, "REQUEST_METHOD": "GET"}, start_response)
                    return [] if environ["REQUEST_METHOD"] == "HEAD" else body
                case "/healthz":
                    self._ask(bool)
                    status, text = HTTPStatus.OK, "ok\n"
                case "/readyz":
                    reason = self._ask(self._not_ready)
                    status = HTTPStatus.SERVICE_UNAVAILABLE if reason else HTTPStatus.OK
                    text = f"{reason or 'ready'}\n"
                case "/":
                    status, text = HTTPStatus.OK, _INDEX
                case _:
                    status, text = HTTPStatus.NOT_FOUND, _INDEX
        except (TimeoutError, RuntimeError):
            status, text = HTTPStatus.SERVICE_UNAVAILABLE, "the broker's loop does not answer\n"
        start_response(f"{status.value} {status.phrase}", [*_PLAIN, ("Content-Length", str(len(text.encode())))])
        return [] if environ["REQUEST_METHOD"] == "HEAD" else [text.encode()]


def _settle(answer: "concurrent.futures.Future[Answer]", question: Callable[[], Answer]) -> None:
    if not answer.set_running_or_notify_cancel():
        return
    try:
        answer.set_result(question())
    except Exception as error:  # noqa: BLE001  # raised in the thread that asked, not on the loop
        answer.set_exception(error)


class _OnLoop(Collector):
    """All metrics, read by one call on the event loop."""

    def __init__(self, read: Callable[[], Iterable[Metric]]) -> None:
        self._read = read

    def collect(self) -> Iterable[Metric]:
        return self._read()
