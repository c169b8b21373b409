"""What the door counts: plain ints that only grow (or are gauges where it says so), for `/metrics` to read.

Counters are bumped on the loop alone, so they need no lock.
"""

from collections import Counter

from kio.schema.index import api_key_map

from logboom.kafka.fetch.sessions import SessionCounts


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
        """Replies given, those of acks=0 not counted."""
        self.request_bytes = 0
        self.reply_bytes = 0
        self.time_ns = 0
        """From the request's last byte to the reply, waiting included, over all replies."""
        self.errors: Counter[str] = Counter()
        """Error codes given, by Kafka's name; a produce or fetch counts each partition."""


class KafkaMetrics:
    """The whole door."""

    def __init__(self) -> None:
        self.apis: dict[int, ApiMetrics] = {}
        self.connections = 0
        """Gauge: open now."""
        self.connections_total = 0
        self.connections_refused = 0
        """Closed at once, for there were max_connections."""
        self.malformed = 0
        """Connections closed for bytes that were no request."""
        self.too_slow = 0
        """Connections closed for a request that had begun and did not come."""
        self.unread = 0
        """Connections closed for replies that were not read."""
        self.unsupported = 0
        """Connections closed for an API or version that is not served."""
        self.failures = 0
        """Connections closed for an error of this program."""
        self.crossed: Counter[str] = Counter()
        """How often each limit was reached, by the name of its setting."""
        self.trailing = 0
        """Requests with bytes behind their last field, which are ignored as Kafka ignores them."""
        self.inflight_requests = 0
        """Gauge: being answered now."""
        self.inflight_bytes = 0
        """Gauge: request bytes being answered now, with what their elements take in memory."""
        self.arriving_bytes = 0
        """Gauge: memory of long requests on their way."""
        self.waiting_bytes = 0
        """Gauge: whole requests that wait to be begun."""
        self.unsent_bytes = 0
        """Gauge: reply bytes that slow peers have not read yet."""
        self.waiting_fetches = 0
        """Gauge: fetches that wait for records."""
        self.fetch_sessions = SessionCounts()
        self.fetched_bytes = 0
        """Record bytes in fetch replies."""
        self.produced_bytes = 0
        """Record bytes in produce requests."""

    def api(self, api_key: int) -> ApiMetrics:
        """The counters of one API."""
        found = self.apis.get(api_key)
        if found is None:
            found = self.apis[api_key] = ApiMetrics(api_name(api_key))
        return found
