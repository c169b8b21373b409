"""The counters of the listener for brokers as Prometheus metrics.

It is here because the peer and HTTP packages do not import each other.
"""

from collections.abc import Iterator
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from logboom.peer.metrics import PeerMetrics

_LANE_COUNTERS: Final = {
    "frames_sent": "Frames sent to other brokers.",
    "frames_received": "Frames of other brokers.",
    "bytes_sent": "Bytes of frames sent to other brokers.",
    "bytes_received": "Bytes of frames of other brokers.",
    "dropped_posts": "Frames without an answer that were dropped: no connection, too much to send, no handler.",
    "calls": "Requests to other brokers.",
    "failed_calls": "Requests to other brokers that got no answer.",
    "requests": "Requests of other brokers.",
    "failed_requests": "Requests of other brokers that were answered with an error.",
}
_COUNTERS: Final = {
    "dials": "Connections to other brokers that were tried.",
    "failed_dials": "Those that were refused, took too long, or led to somebody else.",
    "accepted": "Connections accepted, whoever made them.",
    "failed_handshakes": "Accepted connections that ended before their other side had proven itself.",
    "crowded_out": "Those of them that were closed to make room for newer ones.",
    "broken": "Authenticated connections ended for bytes that are not a frame of the other broker.",
    "silent": "Authenticated connections ended because nothing was heard of the other broker.",
}


def peer_metrics(metrics: PeerMetrics) -> Iterator[Metric]:
    """All metrics of the listener. A lane is the frames that share one connection: control or records."""
    connections = GaugeMetricFamily(
        "logboom_peer_connections", "Authenticated connections with other brokers.", labels=("lane",)
    )
    for lane, counts in metrics.lanes.items():
        connections.add_metric((lane.name.lower(),), counts.connections)
    yield connections
    for name, text in _LANE_COUNTERS.items():
        family = CounterMetricFamily(f"logboom_peer_{name}", text, labels=("lane",))
        for lane, counts in metrics.lanes.items():
            family.add_metric((lane.name.lower(),), getattr(counts, name))
        yield family
    yield GaugeMetricFamily(
        "logboom_peer_unauthenticated",
        "Accepted connections whose other side has not proven itself yet.",
        value=metrics.unauthenticated,
    )
    for name, text in _COUNTERS.items():
        yield CounterMetricFamily(f"logboom_peer_{name}", text, value=getattr(metrics, name))
