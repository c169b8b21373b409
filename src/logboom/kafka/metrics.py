"""What the server counts, for `/metrics` to read: plain ints that only grow, or gauges where it says so.

They change on the event loop alone, so they need no lock.
"""

from collections import Counter
from dataclasses import dataclass

from kio.schema.index import api_key_map


def api_name(api_key: int) -> str:
    """Kafka's name of an API: `ListOffsets`."""
    name = api_key_map.get(api_key)
    return f"Api{api_key}" if name is None else "".join(part.capitalize() for part in name.split("_"))


class ApiMetrics:
    """One API."""

    __slots__ = ("errors", "name", "replies", "reply_bytes", "request_bytes", "requests", "time_ns")

    def __init__(self, name: str) -> None:
        self.name = name
        self.requests = 0
        """Requests read."""
        self.replies = 0
        """Replies sent; requests with acks=0 have none."""
        self.request_bytes = 0
        self.reply_bytes = 0
        self.time_ns = 0
        """Sum over all replies of the time from the request's last byte to the encoded reply, waiting included."""
        self.errors: Counter[str] = Counter()
        """Error codes sent, by Kafka's name, one for each partition or resource of a response."""


@dataclass(slots=True)
class FetchSessionMetrics:
    """Incremental fetch sessions (KIP-227)."""

    sessions: int = 0
    """Gauge: sessions in the cache."""
    partitions: int = 0
    """Gauge: partitions in those sessions."""
    evictions: int = 0
    """Sessions that were removed to make room for others."""
    declined: int = 0
    """Full fetches that got no session for lack of room."""
    incremental: int = 0
    """Incremental fetches that were answered."""


class KafkaMetrics:
    """The whole server."""

    def __init__(self) -> None:
        self.apis: dict[int, ApiMetrics] = {}
        self.connections = 0
        """Gauge: open."""
        self.connections_total = 0
        self.connections_refused = 0
        """Closed because max_connections or a limit of their address was reached, or the server was stopping."""
        self.malformed = 0
        """Connections closed for bytes that are not a valid request."""
        self.too_slow = 0
        """Connections closed because the rest of a request did not arrive in time."""
        self.unread = 0
        """Connections closed because the peer did not read its replies."""
        self.unsupported = 0
        """Connections closed for a request of an API or version that is not served."""
        self.failures = 0
        """Connections closed for a programming error in the server."""
        self.limit_hits: Counter[str] = Counter()
        """How often each limit was reached, by the name of its setting."""
        self.trailing = 0
        """Requests with bytes after their last field, which are ignored, as Kafka does."""
        self.inflight_requests = 0
        """Gauge: requests in flight."""
        self.inflight_bytes = 0
        """Gauge: memory of the requests in flight, their decoded elements included."""
        self.arriving_bytes = 0
        """Gauge: buffers of long requests that have not arrived whole."""
        self.waiting_bytes = 0
        """Gauge: bytes of requests that arrived whole and have not begun."""
        self.unsent_bytes = 0
        """Gauge: reply bytes that peers have not read yet."""
        self.waiting_fetches = 0
        """Gauge: fetches waiting for records."""
        self.fetch_sessions = FetchSessionMetrics()
        self.fetched_bytes = 0
        """Record bytes in fetch replies."""
        self.sent_to_observers = 0
        """Partitions of fetches whose consumers were sent to an observer."""
        self.sent_to_replicas = 0
        """Those whose consumers were sent to a replica in their rack."""
        self.produced_bytes = 0
        """Record bytes in produce requests."""

    def api(self, api_key: int) -> ApiMetrics:
        """The counters of one API."""
        found = self.apis.get(api_key)
        if found is None:
            found = self.apis[api_key] = ApiMetrics(api_name(api_key))
        return found
