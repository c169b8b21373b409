"""Fetches that wait for records: who waits for which partitions, for how long, and how many at most.

It wakes a fetch when something moved in a partition it reads, or when its time is over; what the fetch then does is its
own affair (`logboom.kafka.fetch.fetch`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from logboom.base.dynamic import Current
    from logboom.broker.partition.replica import Partition
    from logboom.kafka.config import KafkaConfig
    from logboom.kafka.metrics import KafkaMetrics


class Sleeper(Protocol):
    """What waits."""

    def moved(self) -> None:
        """Something happened in a partition that is watched; called at most once a turn of the loop."""

    def time_is_over(self) -> None:
        """The wait has lasted as long as it may."""


class Wait:
    """One sleeper's watches and timer. Life: from `FetchPurgatory.enter` to `leave`, which it survives unharmed."""

    __slots__ = ("_handles", "_loop", "_purgatory", "_scheduled", "_timer", "sleeper")

    def __init__(self, purgatory: FetchPurgatory, sleeper: Sleeper) -> None:
        self._purgatory = purgatory
        self._loop = asyncio.get_running_loop()
        self._handles: list[tuple[Partition, int]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._scheduled = False
        self.sleeper = sleeper

    def begin(self, partitions: Iterable[Partition], wait_s: float) -> None:
        self._handles = [(partition, partition.watch(self._on_news)) for partition in partitions]
        self._timer = self._loop.call_later(wait_s, self.sleeper.time_is_over)

    def _on_news(self) -> None:
        # A flush moves many partitions in one turn: the fetch looks once, when all have moved.
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._wake)

    def _wake(self) -> None:
        self._scheduled = False
        if self in self._purgatory.waits:
            self.sleeper.moved()

    def leave(self) -> None:
        """Wait no more. Idempotent."""
        if self._timer is not None:
            self._timer.cancel()
        for partition, handle in self._handles:
            partition.unwatch(handle)
        self._handles = []
        self._purgatory.forget(self)


class FetchPurgatory:
    """Every wait of one door."""

    def __init__(
        self, config: Current[KafkaConfig], metrics: KafkaMetrics, crossed: Callable[[str, str], None]
    ) -> None:
        self._crossed = crossed
        self._config = config
        self._metrics = metrics
        self._open = True
        self.waits: dict[Wait, None] = {}

    def enter(self, sleeper: Sleeper, partitions: Iterable[Partition], wait_s: float) -> Wait | None:
        """Begin to wait; None where there are as many waits as allowed, or the door is closing."""
        most = self._config.now.max_waiting_fetches
        if not self._open:
            return None
        if len(self.waits) >= most:
            self._crossed("kafka.max_waiting_fetches", f"{most} fetches wait; others are answered with what is there")
            return None
        wait = Wait(self, sleeper)
        self.waits[wait] = None
        self._metrics.waiting_fetches = len(self.waits)
        wait.begin(partitions, wait_s)
        return wait

    def forget(self, wait: Wait) -> None:
        """A wait is over."""
        self.waits.pop(wait, None)
        self._metrics.waiting_fetches = len(self.waits)

    def close(self) -> None:
        """Nobody waits any more: everybody is told that the time is over."""
        self._open = False
        for wait in tuple(self.waits):
            wait.sleeper.time_is_over()
