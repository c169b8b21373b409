"""Limits on requests in flight over all connections, and statistics of which limit made a connection pause."""

from __future__ import annotations

from typing import TYPE_CHECKING

from logboom.kafka.connection.state import Pause

if TYPE_CHECKING:
    from logboom.base.dynamic import Current
    from logboom.broker.disk.flusher import Flusher
    from logboom.broker.rate_limited_log import RateLimitedLog
    from logboom.kafka.config import KafkaConfig
    from logboom.kafka.metrics import KafkaMetrics


class RequestBudget:
    """`kafka.max_inflight_total_requests` and `kafka.max_inflight_total_bytes` of one server."""

    def __init__(
        self, config: Current[KafkaConfig], metrics: KafkaMetrics, log: RateLimitedLog, flusher: Flusher
    ) -> None:
        self._config = config
        self._metrics = metrics
        self._log = log
        self._flusher = flusher

    @property
    def all_requests_taken(self) -> bool:
        """Whether the server has as many requests in flight as allowed."""
        return self._metrics.inflight_requests >= self._config.now.max_inflight_total_requests

    @property
    def is_exhausted(self) -> bool:
        """Whether no connection with a request in flight may read more."""
        metrics = self._metrics
        if self.all_requests_taken:
            return True
        held_bytes = metrics.inflight_bytes + metrics.arriving_bytes + metrics.waiting_bytes
        return held_bytes >= self._config.now.max_inflight_total_bytes

    def count_pause(self, pause: Pause | None, requests: int, size_bytes: int) -> None:
        """A connection with this many requests and bytes in flight is no longer read: count the limit that it has
        reached.

        Limits of one connection, and of its unread replies, are only counted; those of the server are logged too.
        """
        config, metrics = self._config.now, self._metrics
        if pause is Pause.APPEND_CAPACITY:
            why = f"{self._flusher.staged_bytes} bytes wait for the disk: produce requests wait too"
            self._log.limit_reached("broker.max_staged_bytes", why)
        elif pause is Pause.UNREAD_REPLIES:
            metrics.limit_hits["kafka.max_unsent_bytes"] += 1
        elif self.all_requests_taken:
            why = f"{metrics.inflight_requests} requests are in flight: no more are read"
            self._log.limit_reached("kafka.max_inflight_total_requests", why)
        elif self.is_exhausted:
            why = f"requests take {metrics.inflight_bytes} bytes: no more are read"
            self._log.limit_reached("kafka.max_inflight_total_bytes", why)
        elif requests >= config.max_inflight_requests:
            metrics.limit_hits["kafka.max_inflight_requests"] += 1
        elif size_bytes >= config.max_inflight_bytes:
            metrics.limit_hits["kafka.max_inflight_bytes"] += 1
