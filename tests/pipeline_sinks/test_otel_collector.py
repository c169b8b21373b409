"""The sink `otlp` with a real OpenTelemetry Collector: what it prints of each record, and one that is killed."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from tests.clients.drivers import DriverMissingError, otel_collector
from tests.pipeline_sinks.harness import delivering, edge_batch, event, sink_of
from tests.pipeline_sinks.odd_events import NO_OBJECT, NO_RECORD, NO_TIME, assert_reasons, check_all, odd_batch
from tests.pipeline_sinks.server import IN_DOUBT, NOT_TAKEN, Gateway, Server
from tests.pipeline_sinks.test_metrics import HISTOGRAM, QUANTILES, metric
from tests.support.server import free_port
from tests.support.skipping import skipped_on
from tests.support.waiting import WAIT_S, until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.clients,
    pytest.mark.timeout(1_800),
    pytest.mark.skipif(shutil.which("go") is None, reason="the collector is built with Go"),
    pytest.mark.xdist_group("otelcol"),
]

CONFIG = """
receivers: {otlp: {protocols: {http: {endpoint: "127.0.0.1:PORT"}, grpc: {endpoint: "127.0.0.1:GRPC_PORT"}}}}
exporters: {debug: {verbosity: detailed}}
service:
  telemetry: {metrics: {level: none}}
  pipelines:
    logs: {receivers: [otlp], exporters: [debug]}
    metrics: {receivers: [otlp], exporters: [debug]}
"""


class Collector:
    """A collector on a port of this machine; what it prints is kept over its lives."""

    def __init__(self, command: list[str], directory: Path) -> None:
        self.port, self.grpc_port = free_port(), free_port()
        self._log = directory / "log"
        config = directory / "config.yaml"
        config.write_text(CONFIG.replace("GRPC_PORT", str(self.grpc_port)).replace("PORT", str(self.port)))
        self._command = [*command, "--config", str(config)]
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def keys(self, transport: str) -> str:
        """Of a sink that sends to it."""
        port = self.grpc_port if transport == "grpc" else self.port
        return f"type: otlp, transport: {transport}, url: 'http://127.0.0.1:{port}'"

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=subprocess.STDOUT)
        deadline = time.monotonic() + WAIT_S
        while not self._answers():
            assert self._process.poll() is None, self.printed()[-2_000:]
            assert time.monotonic() < deadline, "the collector did not start"
            time.sleep(0.1)

    def kill(self) -> None:
        if self._process is not None:
            os.kill(self._process.pid, signal.SIGKILL)
            self._process.wait(WAIT_S)
            self._process = None

    def printed(self) -> str:
        return self._log.read_text(errors="replace")

    def ids(self) -> list[str]:
        return re.findall(r"logboom\.event_id: Str\(([^)]*)\)", self.printed())

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/v1/logs", timeout=WAIT_S):
                return True
        except urllib.error.HTTPError:  # it takes POST alone
            return True
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            return False


@pytest.fixture
def collector(tmp_path: Path) -> Iterator[Collector]:
    with skipped_on(DriverMissingError):
        running = Collector(otel_collector(), tmp_path)
    running.start()
    yield running
    running.kill()


@pytest.mark.parametrize("transport", ["http", "grpc"])
def test_records_are_read_as_they_were_meant(collector: Collector, transport: str) -> None:
    batch = delivering(sink_of(collector.keys(transport)), "")
    batch.until_done([edge_batch([event(7, attributes={"a": [1, True, None, {"b": 1.5}]})])])
    until(lambda: bool(collector.ids()))
    printed = collector.printed()
    for line in (
        "-> service.name: Str(shop-1)",
        "-> host.name: Str(h1)",
        "Timestamp: 2026-11-23 07:00:00.007 +0000 UTC",
        "SeverityText: INFO",
        "SeverityNumber: Info(9)",
        "Body: Str(line 7)",
        f"Trace ID: {7:032x}",
        f"Span ID: {7:016x}",
        '-> a: Slice([1,true,null,{"b":1.5}])',
    ):
        assert line in printed


@pytest.mark.parametrize("transport", ["http", "grpc"])
def test_metrics_are_read_as_they_were_meant(collector: Collector, transport: str) -> None:
    batch = delivering(sink_of(f"{collector.keys(transport)}, signal: metrics"), "")
    events = [metric(1, "count", 5.5, name="requests"), metric(2, "unique", 3.0, name="users"), HISTOGRAM, QUANTILES]
    batch.until_done([edge_batch(events)])
    until(lambda: "-> Name: size" in collector.printed())
    printed = collector.printed()
    for line in (
        "-> Name: requests",
        "-> DataType: Sum",
        "-> IsMonotonic: true",
        "-> AggregationTemporality: Delta",
        "Value: 5.500000",
        "-> service: Str(cart)",
        "StartTimestamp: 2026-11-23 12:00:00 +0000 UTC",
        "Timestamp: 2026-11-23 12:01:00 +0000 UTC",
        "-> DataType: Gauge",
        "-> DataType: Histogram",
        "Count: 6",
        "Sum: 70.500000",
        "ExplicitBounds #1: 20.500000",
        "Buckets #2, Count: 3",
        "-> DataType: Summary",
        "QuantileValue #1: Quantile 0.990000, Value -4.000000",
    ):
        assert line in printed
    assert not batch.letters.refused


@pytest.mark.parametrize("transport", ["http", "grpc"])
def test_a_collector_that_is_killed_and_comes_back_gets_every_event(collector: Collector, transport: str) -> None:
    starts = range(0, 2_000, 200)
    batches = [edge_batch([event(at) for at in range(start, start + 200)], first=start) for start in starts]

    def killing() -> Iterator[pa.RecordBatch]:
        for number, each in enumerate(batches):
            if number == 5:
                until(lambda: bool(collector.ids()))
                collector.kill()
                collector.start()
            yield each

    batch = delivering(sink_of(f"{collector.keys(transport)}, retry_for: 300s, batch: {{max_events: 50}}"), "")
    batch.attempt(killing())
    batch.until_done(batches)
    until(lambda: len(set(collector.ids())) == 2_000)
    assert batch.letters.refused == []


def test_a_fault_in_front_of_the_collector_loses_no_event(collector: Collector) -> None:
    first = 0
    for fault in (*NOT_TAKEN, *IN_DOUBT):
        with Server(Gateway(collector.url)) as gateway:
            keys = f"type: otlp, url: '{gateway.url}', timeout: 1s, retry_for: 60s, concurrency: 1"
            batch = delivering(sink_of(f"{keys}, batch: {{max_events: 20}}"), "")
            gateway.faults.next += [None, fault]
            batch.until_done([edge_batch([event(number) for number in range(first, first + 100)], first=first)])
            assert gateway.faults.applied[fault] == 1
        assert (batch.rows, batch.letters.refused) == (100, [])
        wanted = {f"web:0:{number}" for number in range(first, first + 100)}
        until(lambda: wanted <= set(collector.ids()))  # noqa: B023
        found = Counter(one for one in collector.ids() if one in wanted)
        assert 0 < found.total() - 100 <= 20 if fault in IN_DOUBT else found.total() == 100
        first += 100


@pytest.mark.parametrize("transport", ["http", "grpc"])
def test_odd_events_are_records_or_dead_letters(collector: Collector, transport: str) -> None:
    batch = delivering(sink_of(f"{collector.keys(transport)}, timeout: 30s, retry_for: 0"), "")
    batch.until_done([edge_batch(odd_batch())], attempts=1)
    until(lambda: len(collector.ids()) >= batch.rows)
    dead = check_all(batch, Counter(collector.ids()))
    too_large = {"a body of 10 MB": "larger than max", "attributes of 10 MB": "larger than max"}
    assert_reasons(dead, NO_OBJECT | NO_TIME | NO_RECORD | (too_large if transport == "grpc" else {}))
