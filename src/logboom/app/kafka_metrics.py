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
    "inflight_requests": "Requests in flight.",
    "inflight_bytes": "Memory of the requests in flight.",
    "arriving_bytes": "Buffers of requests above 1 MiB that are arriving.",
    "waiting_bytes": "Bytes of requests that have arrived and not begun.",
    "unsent_bytes": "Reply bytes that peers have not read.",
    "waiting_fetches": "Fetches waiting for records.",
}
_COUNTERS: Final = {
    "connections_total": "Connections accepted.",
    "connections_refused": "Connections closed for a limit on connections.",
    "malformed": "Connections closed for bytes that are not a valid request.",
    "too_slow": "Connections closed because the rest of a request did not arrive in time.",
    "unread": "Connections closed because the peer did not read its replies.",
    "unsupported": "Connections closed for an API or version that is not served.",
    "failures": "Connections closed for a programming error in the server.",
    "trailing": "Requests with bytes behind their last field.",
    "fetched_bytes": "Record bytes in fetch responses.",
    "produced_bytes": "Record bytes in produce requests.",
    "sent_to_observers": "Times that a consumer was sent to an observer of a partition.",
    "sent_to_replicas": "Times that a consumer was sent to a replica in its rack.",
}
_SESSION_GAUGES: Final = {
    "sessions": ("sessions", "Incremental fetch sessions in the cache."),
    "partitions": ("session_partitions", "Partitions in incremental fetch sessions."),
}
_SESSION_COUNTERS: Final = {
    "evictions": ("session_evictions", "Incremental fetch sessions that were evicted."),
    "declined": ("sessions_declined", "Full fetches that got no session for lack of room."),
    "incremental": ("incremental", "Incremental fetches that were answered."),
}
_API_COUNTERS: Final = {
    "requests": "Requests read.",
    "replies": "Replies sent.",
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
    seconds = CounterMetricFamily("logboom_kafka_throttle_seconds", "Sum of their throttle times.", labels=("quota",))
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
    errors = CounterMetricFamily("logboom_kafka_api_errors", "Error codes sent.", labels=("api", "error"))
    for api in apis:
        spent.add_metric((api.name,), api.time_ns / _NS_PER_S)
        for error, count in api.errors.items():
            errors.add_metric((api.name, error), count)
    yield spent
    yield errors
