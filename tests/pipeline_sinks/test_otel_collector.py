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
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from tests.clients.drivers import DriverMissingError, otel_collector
from tests.pipeline_sinks.harness import delivering, edge_batch, event, sink_of
from tests.pipeline_sinks.server import wait_for
from tests.support.server import free_port

pytestmark = [
    pytest.mark.slow,
    pytest.mark.clients,
    pytest.mark.timeout(1_800),
    pytest.mark.skipif(shutil.which("go") is None, reason="the collector is built with Go"),
    pytest.mark.xdist_group("otelcol"),
]

CONFIG = """
receivers: {otlp: {protocols: {http: {endpoint: "127.0.0.1:PORT"}}}}
exporters: {debug: {verbosity: detailed}}
service:
  telemetry: {metrics: {level: none}}
  pipelines: {logs: {receivers: [otlp], exporters: [debug]}}
"""


class Collector:
    """A collector on a port of this machine; what it prints is kept over its lives."""

    def __init__(self, command: list[str], directory: Path) -> None:
        self.port = free_port()
        self._log = directory / "log"
        config = directory / "config.yaml"
        config.write_text(CONFIG.replace("PORT", str(self.port)))
        self._command = [*command, "--config", str(config)]
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=subprocess.STDOUT)
        deadline = time.monotonic() + 120
        while not self._answers():
            assert self._process.poll() is None, self.printed()[-2_000:]
            assert time.monotonic() < deadline, "the collector did not start"
            time.sleep(0.1)

    def kill(self) -> None:
        if self._process is not None:
            os.kill(self._process.pid, signal.SIGKILL)
            self._process.wait(60)
            self._process = None

    def printed(self) -> str:
        return self._log.read_text(errors="replace")

    def ids(self) -> list[str]:
        return re.findall(r"logboom\.event_id: Str\(([^)]*)\)", self.printed())

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/v1/logs", timeout=5):
                return True
        except urllib.error.HTTPError:  # it takes POST alone
            return True
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            return False


@pytest.fixture
def collector(tmp_path: Path) -> Iterator[Collector]:
    try:
        running = Collector(otel_collector(), tmp_path)
    except DriverMissingError as missing:
        pytest.skip(str(missing))
    running.start()
    yield running
    running.kill()


def test_records_are_read_as_they_were_meant(collector: Collector) -> None:
    batch = delivering(sink_of(f"type: otlp, url: '{collector.url}'"), "")
    batch.until_done([edge_batch([event(7, attributes={"a": [1, True, None, {"b": 1.5}]})])])
    wait_for(lambda: bool(collector.ids()))
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


def test_a_collector_that_is_killed_and_comes_back_gets_every_event(collector: Collector) -> None:
    starts = range(0, 2_000, 200)
    batches = [edge_batch([event(at) for at in range(start, start + 200)], first=start) for start in starts]

    def killing() -> Iterator[pa.RecordBatch]:
        for number, each in enumerate(batches):
            if number == 5:
                wait_for(lambda: bool(collector.ids()))
                collector.kill()
                collector.start()
            yield each

    batch = delivering(sink_of(f"type: otlp, url: '{collector.url}', retry_for: 300s, batch: {{max_events: 50}}"), "")
    batch.attempt(killing())
    batch.until_done(batches)
    wait_for(lambda: len(set(collector.ids())) == 2_000)
    assert batch.letters.refused == []
