"""How near the door is to each of its limits. Asked by `/metrics`; knows counters and settings."""

from collections.abc import Iterator

from logboom.base.limits import Filling
from logboom.kafka.context import Shared


def door_crossings(shared: Shared) -> dict[str, int]:
    """How often each limit was reached."""
    sessions = shared.metrics.fetch_sessions
    return {**shared.metrics.crossed, "kafka.max_fetch_sessions": sessions.declined + sessions.evictions}


def door_limits(shared: Shared) -> Iterator[Filling]:
    """Every limit that fills up; of those for each connection or address, the one that is nearest to it."""
    config, metrics = shared.config, shared.metrics
    requests = size_bytes = 0
    for connection in shared.connections:
        held_requests, held_bytes = connection.held
        requests, size_bytes = max(requests, held_requests), max(size_bytes, held_bytes)
    yield Filling("kafka.max_connections", config.max_connections, metrics.connections)
    if config.max_connections_per_address is not None:
        most = shared.admission.most_from_one_address
        yield Filling("kafka.max_connections_per_address", config.max_connections_per_address, most)
    yield Filling("kafka.max_inflight_requests", config.max_inflight_requests, requests)
    yield Filling("kafka.max_inflight_bytes", config.max_inflight_bytes, size_bytes)
    yield Filling("kafka.max_inflight_total_requests", config.max_inflight_total_requests, metrics.inflight_requests)
    in_hand = metrics.inflight_bytes + metrics.arriving_bytes + metrics.waiting_bytes
    yield Filling("kafka.max_inflight_total_bytes", config.max_inflight_total_bytes, in_hand)
    taken = metrics.unsent_bytes + shared.reply_reserved_bytes
    yield Filling("kafka.max_unsent_total_bytes", config.max_unsent_total_bytes, taken)
    yield Filling("kafka.max_waiting_fetches", config.max_waiting_fetches, metrics.waiting_fetches)
    sessions = metrics.fetch_sessions
    yield Filling("kafka.max_fetch_sessions", config.max_fetch_sessions, sessions.sessions)
    yield Filling("kafka.max_fetch_session_partitions", config.max_fetch_session_partitions, sessions.partitions)
