"""The counters of the way to NATS as Prometheus metrics.

It is here because the NATS and HTTP packages do not import each other.
"""

from collections.abc import Iterator
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from logboom.nats.metrics import NatsMetrics

_GAUGES: Final = {
    "connected": "1 while a server of NATS takes what this broker says.",
    "subscriptions": "Subscriptions of this broker.",
    "inflight_bytes": "Memory of messages that have arrived and are not stored yet.",
}
_COUNTERS: Final = {
    "connections": "Connections to NATS that were made.",
    "moves": "Connections left for one to another server, because a server was about to leave its cluster.",
    "failed_connections": "Attempts to connect that failed.",
    "reading_pauses": "Times that the connection was not read for a moment, because a limit was reached.",
    "received": "Messages received.",
    "received_bytes": "Bytes of payloads and headers received.",
    "stored": "Messages stored, duplicates not among them.",
    "duplicates": "Messages that were stored before, by their ids.",
    "unanswered": "Messages without an answer, since it is not known whether another leader has stored them.",
    "handovers": "Partitions of which the leader before this one has told what it had not stored.",
    "failed_handovers": "Partitions of which it has not told in time; plain messages of that moment may be lost.",
    "handed_over": "Messages given to the next leader of their partition.",
    "elsewhere": "Messages received that another broker stores, since it leads their partition.",
    "acks": "Answers sent to reply subjects, errors among them.",
    "lost_acks": "Answers for which there was no connection.",
    "service_requests": "Requests to recorded services.",
    "service_replies": "Replies to them.",
    "service_unanswered": "Requests to recorded services without a reply in time.",
    "service_forgotten": "Requests to recorded services that were forgotten before a reply, for want of memory.",
}
_BY_REASON: Final = {
    "disconnects": "Connections lost, by what was the matter; plain messages published meanwhile are lost.",
    "errors": "Errors that servers of NATS told, by kind.",
    "refused": "Messages not stored whose publisher was told so, by reason.",
    "dropped": "Messages not stored whose publisher asked for no answer, by reason.",
}


def nats_metrics(metrics: NatsMetrics) -> Iterator[Metric]:
    """All metrics of the way to NATS."""
    for name, text in _GAUGES.items():
        yield GaugeMetricFamily(f"logboom_nats_{name}", text, value=getattr(metrics, name))
    for name, text in _COUNTERS.items():
        yield CounterMetricFamily(f"logboom_nats_{name}", text, value=getattr(metrics, name))
    for name, text in _BY_REASON.items():
        family = CounterMetricFamily(f"logboom_nats_{name}", text, labels=("reason",))
        for reason, count in getattr(metrics, name).items():
            family.add_metric((reason,), count)
        yield family
