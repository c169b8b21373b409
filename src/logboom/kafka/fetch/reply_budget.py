"""Memory for fetch responses: what slow peers have not read, and what is being read from the disk for others."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from logboom.base.dynamic import Current
    from logboom.broker.rate_limited_log import RateLimitedLog
    from logboom.kafka.config import KafkaConfig
    from logboom.kafka.metrics import KafkaMetrics


class ReplyBudget:
    """The budget of one server, `kafka.max_unsent_total_bytes`."""

    def __init__(self, config: Current[KafkaConfig], metrics: KafkaMetrics, log: RateLimitedLog) -> None:
        self._config = config
        self._metrics = metrics
        self._log = log
        self.reserved_bytes = 0
        """For responses that are being read from the disk."""

    @property
    def left_bytes(self) -> int:
        """What responses may still take before slow peers have read theirs."""
        taken_bytes = self._metrics.unsent_bytes + self.reserved_bytes
        return max(0, self._config.now.max_unsent_total_bytes - taken_bytes)

    def grant(self, wanted_bytes: int) -> int:
        """How many of the wanted bytes a response may hold. Nothing is reserved: it must be encoded at once."""
        left_bytes = self.left_bytes
        if left_bytes < wanted_bytes:
            why = f"{self._metrics.unsent_bytes} bytes wait for peers to read them: fetches get less than they ask for"
            self._log.limit_reached("kafka.max_unsent_total_bytes", why)
        return min(wanted_bytes, left_bytes)

    def reserve(self, wanted_bytes: int) -> int:
        """As `grant`, and reserved until `release`: reads that run at the same time must not share one budget."""
        granted_bytes = self.grant(wanted_bytes)
        self.reserved_bytes += granted_bytes
        return granted_bytes

    def release(self, reserved_bytes: int) -> None:
        """Give back what `reserve` returned, once the response is read."""
        self.reserved_bytes -= reserved_bytes
