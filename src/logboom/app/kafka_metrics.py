"""The Kafka server's counters as Prometheus metrics.

It is here because the Kafka and HTTP packages do not import each other.
"""

from collections.abc import Iterator
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from logboom.broker.quotas.clients import ClientQuotaManager
from logboom.kafka.metrics import KafkaMetrics

_NS_PER_S: Final = 1_000_000_000
_MS_PER_S: Final = 1_000
_GAUGES: Final = {
    "connections": "Connections open.",
    "inflight_requests": "Requests being answered.",
    "inflight_bytes": "Request bytes being answered.",
    "arriving_bytes": "Memory of requests above 1 MiB that are on their way.",
    "waiting_bytes": "Request bytes that wait to be begun.",
    "unsent_bytes": "Reply bytes that slow peers have not read.",
    "waiting_fetches": "Fetches that wait for records.",
}
_COUNTERS: Final = {
    "connections_total": "Connections taken.",
    "connections_refused": "Connections closed at once because there were too many.",
    "malformed": "Connections closed for bytes that were no request.",
    "too_slow": "Connections closed for a request that had begun and did not come.",
    "unread": "Connections closed for replies that were not read.",
    "unsupported": "Connections closed for an API or version that is not served.",
    "failures": "Connections closed for an error of this program.",
    "trailing": "Requests with bytes behind their last field.",
    "fetched_bytes": "Record bytes in fetch replies.",
    "produced_bytes": "Record bytes in produce requests.",
}
_SESSION_GAUGES: Final = {
    "sessions": ("sessions", "Incremental fetch sessions remembered."),
    "partitions": ("session_partitions", "Partitions remembered in incremental fetch sessions."),
}
_SESSION_COUNTERS: Final = {
    "evictions": ("session_evictions", "Incremental fetch sessions that gave way to others."),
    "declined": ("sessions_declined", "Full fetches that got no session for lack of room."),
    "incremental": ("incremental", "Fetches answered with changes alone."),
}
_API_COUNTERS: Final = {
    "requests": "Requests read.",
    "replies": "Replies given.",
    "request_bytes": "Request bytes.",
    "reply_bytes": "Reply bytes.",
}


def kafka_metrics(metrics: KafkaMetrics, quotas: ClientQuotaManager) -> Iterator[Metric]:
    """All metrics of the Kafka server."""
    for name, text in _GAUGES.items():
        yield GaugeMetricFamily(f"logboom_kafka_{name}", text, value=getattr(metrics, name))
    for name, text in _COUNTERS.items():
        counted = name.removesuffix("_total")
        counted = f"{counted}_opened" if counted in _GAUGES else counted
        yield CounterMetricFamily(f"logboom_kafka_{counted}", text, value=getattr(metrics, name))
    sessions = metrics.fetch_sessions
    for field, (name, text) in _SESSION_GAUGES.items():
        yield GaugeMetricFamily(f"logboom_kafka_fetch_{name}", text, value=getattr(sessions, field))
    for field, (name, text) in _SESSION_COUNTERS.items():
        yield CounterMetricFamily(f"logboom_kafka_fetch_{name}", text, value=getattr(sessions, field))
    yield from _quota_metrics(quotas)
    yield from _api_metrics(metrics)


def _quota_metrics(quotas: ClientQuotaManager) -> Iterator[Metric]:
    throttled = CounterMetricFamily(
        "logboom_kafka_throttled", "Requests, or connections, that were throttled.", labels=("quota",)
    )
    seconds = CounterMetricFamily("logboom_kafka_throttle_seconds", "How long, in all.", labels=("quota",))
    for quota, count in quotas.throttled.items():
        throttled.add_metric((quota,), count)
        seconds.add_metric((quota,), quotas.throttled_ms[quota] / _MS_PER_S)
    yield throttled
    yield seconds


def _api_metrics(metrics: KafkaMetrics) -> Iterator[Metric]:
    apis = list(metrics.apis.values())
    for name, text in _API_COUNTERS.items():
        family = CounterMetricFamily(f"logboom_kafka_api_{name}", text, labels=("api",))
        for api in apis:
            family.add_metric((api.name,), getattr(api, name))
        yield family
    spent = CounterMetricFamily(
        "logboom_kafka_api_seconds", "Time from request to reply, waiting included.", labels=("api",)
    )
    errors = CounterMetricFamily("logboom_kafka_api_errors", "Error codes given.", labels=("api", "error"))
    for api in apis:
        spent.add_metric((api.name,), api.time_ns / _NS_PER_S)
        for error, count in api.errors.items():
            errors.add_metric((api.name, error), count)
    yield spent
    yield errors
