"""What is known of the nats-server that a process keeps up, as Prometheus metrics."""

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from logboom.app.supervisor.nats_server import EmbeddedNats


class EmbeddedNatsCollector(Collector):
    """What is known of a nats-server that this process keeps up."""

    def __init__(self, server: EmbeddedNats) -> None:
        self._server = server

    def collect(self) -> Iterator[Metric]:
        """The metrics."""
        yield GaugeMetricFamily(
            "logboom_nats_server_up", "1 while the embedded nats-server runs.", value=int(self._server.pid is not None)
        )
        yield CounterMetricFamily(
            "logboom_nats_server_restarts",
            "Times that the embedded nats-server ended and was started again.",
            value=self._server.restarts,
        )
        yield CounterMetricFamily(
            "logboom_nats_server_slow_consumers",
            "Times that the embedded nats-server cut off a client that did not read what was sent to it.",
            value=self._server.slow_consumers,
        )
