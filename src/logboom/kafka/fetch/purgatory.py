"""Delayed fetches: which of them wait for which partitions, how long, and how many at most.

The purgatory wakes a fetch when a partition it reads has changed or its time is over; it does not know what the fetch
does then (`fetch.fetch`). The word is Kafka's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from logboom.base.dynamic import Current
    from logboom.broker.partition.replica import Partition
    from logboom.broker.rate_limited_log import RateLimitedLog
    from logboom.kafka.config import KafkaConfig
    from logboom.kafka.metrics import KafkaMetrics


class DelayedOperation(Protocol):
    """An operation that waits in the purgatory."""

    def try_complete(self) -> None:
        """A watched partition has changed; called at most once per turn of the loop."""

    def on_expiration(self) -> None:
        """The time is over."""


class Watch:
    """The partition watches and the timer of one operation, from `FetchPurgatory.watch` to `cancel`."""

    __slots__ = ("_handles", "_loop", "_purgatory", "_scheduled", "_timer", "operation")

    def __init__(self, purgatory: FetchPurgatory, operation: DelayedOperation) -> None:
        self._purgatory = purgatory
        self._loop = asyncio.get_running_loop()
        self._handles: list[tuple[Partition, int]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._scheduled = False
        self.operation = operation

    def start(self, partitions: Iterable[Partition], wait_s: float) -> None:
        """Watch the partitions for this many seconds."""
        self._handles = [(partition, partition.watch(self._partition_changed)) for partition in partitions]
        self._timer = self._loop.call_later(wait_s, self.operation.on_expiration)

    def _partition_changed(self) -> None:
        # One flush changes many partitions in one turn of the loop: the fetch looks once, after all of them.
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._wake)

    def _wake(self) -> None:
        self._scheduled = False
        if self in self._purgatory.watches:
            self.operation.try_complete()

    def cancel(self) -> None:
        """Stop watching. Idempotent."""
        if self._timer is not None:
            self._timer.cancel()
        for partition, handle in self._handles:
            partition.unwatch(handle)
        self._handles = []
        self._purgatory.remove(self)


class FetchPurgatory:
    """Every delayed fetch of one server."""

    def __init__(self, config: Current[KafkaConfig], metrics: KafkaMetrics, log: RateLimitedLog) -> None:
        self._log = log
        self._config = config
        self._metrics = metrics
        self._open = True
        self.watches: dict[Watch, None] = {}
        """In the order in which they came."""

    def watch(self, operation: DelayedOperation, partitions: Iterable[Partition], wait_s: float) -> Watch | None:
        """Let an operation wait; None where `kafka.max_waiting_fetches` wait already, or the server stops."""
        most = self._config.now.max_waiting_fetches
        if not self._open:
            return None
        if len(self.watches) >= most:
            self._log.limit_reached(
                "kafka.max_waiting_fetches", f"{most} fetches wait; others are answered with what is there"
            )
            return None
        watch = Watch(self, operation)
        self.watches[watch] = None
        self._metrics.waiting_fetches = len(self.watches)
        watch.start(partitions, wait_s)
        return watch

    def remove(self, watch: Watch) -> None:
        """Forget a watch that was cancelled."""
        self.watches.pop(watch, None)
        self._metrics.waiting_fetches = len(self.watches)

    def close(self) -> None:
        """Let every operation end now, as if its time were over, and accept no more."""
        self._open = False
        for watch in tuple(self.watches):
            watch.operation.on_expiration()
