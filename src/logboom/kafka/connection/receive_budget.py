"""Request bytes of one connection that are in memory and not begun: a long request on its way, and those that wait.

Knows sizes alone. They count in the door's sums, so that four thousand half-read requests cannot add up unseen.
"""

from collections.abc import Iterable, Sized
from typing import Final

from logboom.kafka.metrics import KafkaMetrics

CROWDED: Final = "requests on their way take half of kafka.max_inflight_total_bytes: no room for a long one more"


class Unbegun:
    """Life: that of the connection."""

    __slots__ = ("_metrics", "arriving", "waiting")

    def __init__(self, metrics: KafkaMetrics) -> None:
        self._metrics = metrics
        self.arriving = 0
        """Room of a long request on its way."""
        self.waiting = 0
        """Bytes of whole requests that wait to be begun."""

    def note_arriving(self, room_bytes: int) -> None:
        """So much room is taken by a long request on its way."""
        self._metrics.arriving_bytes += room_bytes - self.arriving
        self.arriving = room_bytes

    def note_waiting(self, requests: Iterable[Sized]) -> None:
        """These are whole, and wait."""
        waiting = sum(len(request) for request in requests)
        self._metrics.waiting_bytes += waiting - self.waiting
        self.waiting = waiting

    @property
    def alone(self) -> bool:
        """Whether the request on its way is all that the door has in hand: for whom should it wait?"""
        metrics = self._metrics
        return metrics.inflight_bytes + metrics.waiting_bytes + metrics.arriving_bytes == self.arriving

    def release(self) -> None:
        """Give everything back."""
        self.note_arriving(0)
        self.note_waiting(())

    def crowds_out(self, limit_bytes: int) -> bool:
        """Whether requests on their way, this one among several, take more than half of what there is.

        The other half is for requests that are whole: they can be answered, so that room comes back.
        """
        total = self._metrics.arriving_bytes
        return bool(self.arriving) and total > limit_bytes // 2 and total > self.arriving
