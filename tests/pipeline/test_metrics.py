"""Metrics of an aggregate in a real Prometheus and at a server of statsd: they add up to what went in."""

from __future__ import annotations

import json
import re
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.pipeline.support import Said, ledger, make_stream, needs_java, publish
from tests.support.prometheus import Prometheus, PrometheusMissingError
from tests.support.server import BrokerProcess
from tests.support.skipping import skipped_on
from tests.support.waiting import WAIT_S, until

from logboom.pipeline.config.compile import compile_pipeline
from logboom.pipeline.run.runner import Runner, RunOptions

pytestmark = [pytest.mark.spark, needs_java, pytest.mark.slow]
FILE = """
name: metered
sources:
  web: {{type: stream, stream: metered-web}}
transforms:
  parsed: {{type: parse, inputs: [web], rules: [{{format: json}}]}}
  load:
    type: aggregate
    inputs: [parsed]
    window: 2s
    lateness: 0s
    by: [service]
    metrics:
      requests: {{type: count}}
      ms: {{type: histogram, of: attributes.ms, bounds: [10, 50]}}
sinks:
  prometheus: {{type: prometheus_remote_write, inputs: [load], url: '{url}/api/v1/write', prefix: shop_}}
  agent: {{type: statsd, inputs: [load], address: '127.0.0.1:{port}', protocol: tcp}}
"""
LINE = re.compile(r"(?P<name>[\w.]+):(?P<value>[\d.]+)\|c\|#(?P<tags>\S+)")


@pytest.fixture
def prometheus(tmp_path: Path) -> Iterator[Prometheus]:
    directory = tmp_path / "prometheus"
    directory.mkdir()
    with skipped_on(PrometheusMissingError), Prometheus(directory) as running:
        yield running


class Statsd:
    """Takes lines over TCP, from any number of connections."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._received: list[bytearray] = []
        self._threads = [threading.Thread(target=self._accept, daemon=True)]

    def __enter__(self) -> Statsd:
        self._threads[0].start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join(WAIT_S)

    def totals(self) -> Counter[tuple[str, str]]:
        """The sums of all counters, by name and tags."""
        found: Counter[tuple[str, str]] = Counter()
        for received in list(self._received):
            for match in LINE.finditer(received.decode()):
                found[match["name"], match["tags"]] += int(float(match["value"]))
        return found

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            received = bytearray()
            self._received.append(received)
            self._threads.append(threading.Thread(target=self._read, args=(connection, received), daemon=True))
            self._threads[-1].start()

    def _read(self, connection: socket.socket, received: bytearray) -> None:
        with connection:
            while data := connection.recv(65_536):
                received.extend(data)


def _totals(prometheus: Prometheus) -> Counter[tuple[str, ...]]:
    """The sums of all samples, by name, service and bound."""
    found: Counter[tuple[str, ...]] = Counter()
    for labels, samples in prometheus.samples('{__name__=~"shop_.*"}[1d]').items():
        told = dict(labels)
        key = (told["__name__"], told["service"], *([told["le"]] if "le" in told else []))
        found[key] += int(sum(value for _, value in samples))
    return found


def test_counts_arrive_as_they_were_though_prometheus_is_killed(
    spark: Any, broker: BrokerProcess, tmp_path: Path, prometheus: Prometheus
) -> None:
    make_stream(broker.kafka, "metered-web", 2)
    lines = [json.dumps({"service": "ab"[number % 2], "ms": number}).encode() for number in range(100)]
    publish(broker.kafka, "metered-web", lines, 2)
    buckets = {"a": (6, 26, 50), "b": (5, 25, 50)}
    with Statsd() as statsd:
        text = FILE.format(url=prometheus.url, port=statsd.port)
        file = tmp_path / "pipeline.yaml"
        file.write_text(text)
        runner = Runner(compile_pipeline(text, str(file)), RunOptions(bootstrap=broker.kafka), Said())
        thread = threading.Thread(target=runner.run_in, args=(spark,))
        thread.start()
        expected: Counter[tuple[str, ...]] = Counter()
        for service, (low, middle, all_) in buckets.items():
            expected["shop_requests", service] = all_
            expected["shop_ms_count", service] = all_
            expected["shop_ms_sum", service] = sum(range("ab".index(service), 100, 2))
            for bound, count in (("10", low), ("50", middle), ("+Inf", all_)):
                expected["shop_ms_bucket", service, bound] = count
        try:
            until(lambda: _totals(prometheus) == expected, "windows are samples", every_s=1)
            until(lambda: statsd.totals()["requests", "service:b"] == 50, "and lines", every_s=1)
            first = prometheus.samples('{__name__=~"shop_.*"}[1d]')
            prometheus.kill9()
            publish(broker.kafka, "metered-web", lines, 2)
            until(lambda: statsd.totals()["requests", "service:b"] == 100, "of the next windows", every_s=1)
            prometheus.start()
            doubled = Counter({key: 2 * count for key, count in expected.items()})
            until(lambda: _totals(prometheus) == doubled, "a server that was away has them all", every_s=1)
        finally:
            runner.stop()
            thread.join(WAIT_S)
        later = prometheus.samples('{__name__=~"shop_.*"}[1d]')
        assert all(later[labels][: len(samples)] == samples for labels, samples in first.items())
        assert statsd.totals()["ms.count", "service:a"] == 100
    assert not any(ledger(tmp_path / "checkpoints" / "metered")["total"]["dead"].values())
