"""The HTTP server: what it serves, and what it says when the loop behind it hangs."""

import asyncio
import gzip
import http.client
import threading
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest
import structlog
from prometheus_client import ProcessCollector
from prometheus_client.core import CounterMetricFamily, Metric
from tests.support.waiting import WAIT_S

import logboom.http.service
from logboom.base.settings import split_address
from logboom.broker.runtime import Runtime
from logboom.http.config import HttpConfig
from logboom.http.service import HttpService


def metrics() -> Iterator[Metric]:
    asyncio.get_running_loop()  # counters are read on the loop that writes them
    yield CounterMetricFamily("logboom_things", "Things.", value=3)


async def started(not_ready: Callable[[], str | None]) -> HttpService:
    process = (ProcessCollector(registry=None),)
    config = HttpConfig(listen="127.0.0.1:0")
    server = HttpService(config, [metrics], not_ready, runtime=Runtime(), log=structlog.get_logger(), process=process)
    await server.start()
    return server


def with_server(ask: Callable[[str], None], not_ready: Callable[[], str | None] = lambda: None) -> None:
    """Run a server and ask it from a thread."""

    async def run() -> None:
        server = await started(not_ready)
        try:
            await asyncio.wait_for(asyncio.to_thread(ask, server.address), WAIT_S)
        finally:
            await server.stop()

    asyncio.run(run())


def get(address: str, path: str, method: str = "GET", **headers: str) -> tuple[int, str]:
    with closing(http.client.HTTPConnection(*split_address(address), timeout=WAIT_S)) as connection:
        connection.request(method, path, headers=headers)
        answer = connection.getresponse()
        body = answer.read()
        packed = answer.getheader("Content-Encoding") == "gzip"
        return answer.status, (gzip.decompress(body) if packed else body).decode()


def test_metrics_are_read_on_the_loop() -> None:
    def ask(address: str) -> None:
        status, text = get(address, "/metrics")
        assert status == 200
        assert "logboom_things_total 3.0" in text
        assert "process_cpu_seconds_total" in text

    with_server(ask)


@pytest.mark.parametrize(
    "accept",
    [
        "application/openmetrics-text; version=abc",
        "application/openmetrics-text; version=1.0.x",
        "text/plain; version=latest; escaping=none",
        "text/plain; version=; escaping",
        ";;,=,;version=0",
    ],
)
def test_a_format_that_is_none_gets_the_plain_one(accept: str) -> None:
    def ask(address: str) -> None:
        status, text = get(address, "/metrics", Accept=accept)
        assert status == 200
        assert "logboom_things_total 3.0" in text

    with_server(ask)


@pytest.mark.parametrize(
    ("takes", "packed"),
    [("gzip", True), ("br, GZIP;q=0.5", True), ("gzip;q=0", False), ("gzip; q=0.000, br", False), ("br;q=1", False)],
)
def test_metrics_are_packed_where_the_client_takes_it(takes: str, packed: bool) -> None:
    def ask(address: str) -> None:
        with closing(http.client.HTTPConnection(*split_address(address), timeout=WAIT_S)) as connection:
            connection.request("GET", "/metrics", headers={"Accept-Encoding": takes})
            answer = connection.getresponse()
            answer.read()
            assert (answer.getheader("Content-Encoding") == "gzip") is packed

    with_server(ask)


def test_a_scraper_chooses_format_compression_and_names() -> None:
    def ask(address: str) -> None:
        plain = get(address, "/metrics")[1]
        packed = get(address, "/metrics", **{"Accept-Encoding": "gzip"})[1]
        assert [line for line in packed.splitlines() if "process_" not in line] == [
            line for line in plain.splitlines() if "process_" not in line
        ]
        assert get(address, "/metrics", Accept="application/openmetrics-text; version=1.0.0")[1].endswith("# EOF\n")
        one = get(address, "/metrics?name[]=logboom_things_total")[1]
        assert [line for line in one.splitlines() if line[0] != "#"] == ["logboom_things_total 3.0"]

    with_server(ask)


def test_an_address_that_is_taken_is_told_and_nothing_is_left_running() -> None:
    async def run() -> None:
        server = await started(lambda: None)
        config = HttpConfig(listen=server.address)
        second = HttpService(config, [], lambda: None, runtime=Runtime(), log=structlog.get_logger())
        with pytest.raises(OSError, match="address already in use"):
            await second.start()
        assert [thread.name for thread in threading.enumerate()].count("http") == 1
        await server.stop()
        assert "http" not in [thread.name for thread in threading.enumerate()]

    asyncio.run(run())


def test_readiness_gives_its_reason() -> None:
    reasons = iter(["recovering", None])

    def ask(address: str) -> None:
        assert get(address, "/readyz") == (503, "recovering\n")
        assert get(address, "/readyz") == (200, "ready\n")

    with_server(ask, lambda: next(reasons))


def test_head_has_no_body_and_unknown_paths_name_the_known() -> None:
    def ask(address: str) -> None:
        assert get(address, "/healthz", "HEAD") == (200, "")
        assert get(address, "/metrics", "HEAD") == (200, "")
        assert get(address, "/nothing") == (404, "logboom: /metrics /healthz /readyz\n")
        assert get(address, "/")[0] == 200

    with_server(ask)


def test_loop_that_hangs_is_not_healthy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logboom.http.service, "LOOP_ANSWERS_WITHIN_S", 0.2)
    answers: list[tuple[int, str]] = []

    async def run() -> None:
        server = await started(lambda: None)

        def ask() -> None:
            answers.extend(get(server.address, path) for path in ("/healthz", "/readyz", "/metrics"))

        asking = threading.Thread(target=ask)
        asking.start()
        asking.join(WAIT_S)  # on the loop itself: it does nothing else meanwhile
        await server.stop()

    asyncio.run(run())
    assert answers == [(503, "the broker's loop does not answer\n")] * 3
