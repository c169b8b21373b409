"""How much of each limit of the server is used, for `/metrics`. Knows counters and settings."""

from collections.abc import Iterator

from logboom.base.limits import LimitUsage
from logboom.kafka.connection.services import ConnectionServices


def limit_hits(services: ConnectionServices) -> dict[str, int]:
    """How often each limit was reached."""
    metrics = services.server.metrics
    sessions = metrics.fetch_sessions
    return {**metrics.limit_hits, "kafka.max_fetch_sessions": sessions.declined + sessions.evictions}


def limit_usage(services: ConnectionServices) -> Iterator[LimitUsage]:
    """Every limit that fills up; of a limit per connection or address, the highest usage."""
    config, metrics = services.server.config.now, services.server.metrics
    inflight = [connection.inflight for connection in services.registry.connections]
    requests = max((requests for requests, _ in inflight), default=0)
    size_bytes = max((size_bytes for _, size_bytes in inflight), default=0)
    yield LimitUsage("kafka.max_connections", config.max_connections, metrics.connections)
    if config.max_connections_per_address is not None:
        most = services.admission.most_from_one_address
        yield LimitUsage("kafka.max_connections_per_address", config.max_connections_per_address, most)
    yield LimitUsage("kafka.max_inflight_requests", config.max_inflight_requests, requests)
    yield LimitUsage("kafka.max_inflight_bytes", config.max_inflight_bytes, size_bytes)
    yield LimitUsage("kafka.max_inflight_total_requests", config.max_inflight_total_requests, metrics.inflight_requests)
    held_bytes = metrics.inflight_bytes + metrics.arriving_bytes + metrics.waiting_bytes
    yield LimitUsage("kafka.max_inflight_total_bytes", config.max_inflight_total_bytes, held_bytes)
    unsent_bytes = metrics.unsent_bytes + services.server.fetches.budget.reserved_bytes
    yield LimitUsage("kafka.max_unsent_total_bytes", config.max_unsent_total_bytes, unsent_bytes)
    yield LimitUsage("kafka.max_waiting_fetches", config.max_waiting_fetches, metrics.waiting_fetches)
    sessions = metrics.fetch_sessions
    yield LimitUsage("kafka.max_fetch_sessions", config.max_fetch_sessions, sessions.sessions)
    yield LimitUsage("kafka.max_fetch_session_partitions", config.max_fetch_session_partitions, sessions.partitions)
