"""Memory of requests that have not begun: a long request that is arriving, and requests in the backlog.

Knows sizes alone. They count towards the server's total, `kafka.max_inflight_total_bytes`; without that, four thousand
half-received requests could take any amount of memory.
"""

from collections.abc import Iterable, Sized
from typing import Final

from logboom.kafka.metrics import KafkaMetrics

SHARE_EXCEEDED: Final = "arriving requests use half of kafka.max_inflight_total_bytes: no room for another long one"


class ReceiveBudget:
    """One connection's part."""

    __slots__ = ("_metrics", "arriving_bytes", "waiting_bytes")

    def __init__(self, metrics: KafkaMetrics) -> None:
        self._metrics = metrics
        self.arriving_bytes = 0
        """The buffer of a long request that is arriving."""
        self.waiting_bytes = 0
        """Requests in the backlog."""

    def set_arriving(self, buffer_bytes: int) -> None:
        """The size of the buffer of a long request that is arriving; 0 for none."""
        self._metrics.arriving_bytes += buffer_bytes - self.arriving_bytes
        self.arriving_bytes = buffer_bytes

    def set_waiting(self, backlog: Iterable[Sized]) -> None:
        """The requests in the backlog."""
        waiting_bytes = sum(len(request) for request in backlog)
        self._metrics.waiting_bytes += waiting_bytes - self.waiting_bytes
        self.waiting_bytes = waiting_bytes

    @property
    def pausing_frees_nothing(self) -> bool:
        """Whether the arriving request is all that the server has in memory, so that nothing could end a pause."""
        metrics = self._metrics
        return metrics.inflight_bytes + metrics.waiting_bytes + metrics.arriving_bytes == self.arriving_bytes

    def release(self) -> None:
        """Give everything back."""
        self.set_arriving(0)
        self.set_waiting(())

    def exceeds_share(self, limit_bytes: int) -> bool:
        """Whether arriving requests, this one among several, take more than half of the server's total.

        The other half is for requests that have arrived whole: they can be answered, so that memory is freed.
        """
        total = self._metrics.arriving_bytes
        return bool(self.arriving_bytes) and total > limit_bytes // 2 and total > self.arriving_bytes
