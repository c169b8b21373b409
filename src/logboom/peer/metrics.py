"""What the listener for brokers counts, for `/metrics` to read: ints that only grow, or gauges where it says so.

They change on the event loop alone, so they need no lock.
"""

from dataclasses import dataclass, field

from logboom.broker.peers import Lane


@dataclass(slots=True)
class LaneMetrics:
    """One lane, all connections in both directions."""

    connections: int = 0
    """Gauge: authenticated connections, dialled and accepted."""
    frames_sent: int = 0
    frames_received: int = 0
    bytes_sent: int = 0
    bytes_received: int = 0
    dropped_posts: int = 0
    """Frames without an answer that were not sent, or not taken: no connection, too much to send, no handler."""
    calls: int = 0
    """Requests to other brokers."""
    failed_calls: int = 0
    """Those that got no answer: no connection, a connection that broke, or no answer in time."""
    requests: int = 0
    """Requests of other brokers."""
    failed_requests: int = 0
    """Those that were answered with an error."""


@dataclass(slots=True)
class PeerMetrics:
    """The whole server."""

    lanes: dict[Lane, LaneMetrics] = field(default_factory=lambda: {lane: LaneMetrics() for lane in Lane})
    unauthenticated: int = 0
    """Gauge: accepted connections whose other side has not proven itself yet."""
    dials: int = 0
    """Connections that this broker has tried to make."""
    failed_dials: int = 0
    """Those that were refused, took too long, or led to somebody else."""
    accepted: int = 0
    """Connections accepted, whoever made them."""
    failed_handshakes: int = 0
    """Accepted connections that ended before their other side had proven itself."""
    crowded_out: int = 0
    """Those of them that were closed to make room for newer ones."""
    broken: int = 0
    """Authenticated connections that were ended for bytes that are not a frame, or not the other broker's."""
    silent: int = 0
    """Authenticated connections that were ended because nothing was heard of the other broker."""
