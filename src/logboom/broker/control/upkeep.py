"""The controller's upkeep of partitions: what nobody requests and everybody expects.

    internal streams   get the replicas that are configured as soon as there are brokers for them: the first broker has
                       created them with one; and the minimum of in-sync replicas that goes with these
    observers          are as many as streams ask for, on brokers that are not drained: checked when the image changed
    eligible replicas  are forgotten where `min.insync.replicas` was lowered for all streams: leaders then commit
                       without them
    leaderships        go back to preferred leaders that are in sync again, every `leader_rebalance_interval_ms`: else
                       brokers that restart one after the other would leave all of them to a few

Life: that of its `loop`.
"""

from collections.abc import Callable
from typing import Final

from logboom.broker.control.context import ControlContext, InOrder
from logboom.broker.control.controller_loop import ControllerLoop
from logboom.metadata.leadership import forget_eligible, rebalance
from logboom.metadata.observers import observe_all
from logboom.metadata.reassignment import add_replicas, fit_minimum
from logboom.metadata.stream_config import MINIMUM

_INTERVAL_S: Final = 2.0
_LEADERS_PER_COMMIT: Final = 100
"""Leaderships that move together: each asks its clients to look for the next leader."""


class Upkeep:
    """See the module. On the loop."""

    def __init__(self, context: ControlContext, in_order: InOrder, serving: Callable[[], bool]) -> None:
        self._context = context
        self._in_order = in_order
        self._balanced_s = context.clock.monotonic_s()
        self._observed_version = -1
        """Of the image in which observers were as they should be."""
        self.loop = ControllerLoop(
            "upkeep of partitions", _INTERVAL_S, serving, work=self._work, idle=self._postpone, log=context.log
        )

    def _postpone(self) -> None:
        """A new controller lets brokers register before it moves leaderships."""
        self._balanced_s = self._context.clock.monotonic_s()

    async def _work(self) -> None:
        if any(stream.internal for stream in self._context.image):
            await self._in_order(self._add_replicas)
            await self._in_order(self._fit_minima)
        if self._context.image.version != self._observed_version:
            await self._in_order(self._observe)
        await self._in_order(self._forget_eligible)
        now_s = self._context.clock.monotonic_s()
        is_due = now_s - self._balanced_s >= self._context.config.now.leader_rebalance_interval_ms / 1_000
        if is_due and await self._in_order(self._rebalance) < _LEADERS_PER_COMMIT:
            self._balanced_s = now_s

    async def _add_replicas(self) -> int:
        """How many streams get more replicas."""
        context, wanted = self._context, self._context.config.now.groups.offsets_replication_factor
        widened = 0
        for name in [stream.name for stream in context.image if stream.internal and stream.assignments]:
            records = add_replicas(context.image, name, wanted, context.minimum_of)
            if records:
                await context.commit(records)
                context.log.info("replicas added", stream=name, partitions=sum(len(one.changes) for one in records))
                widened += 1
        return widened

    async def _fit_minima(self) -> int:
        """Of how many internal streams `min.insync.replicas` changes."""
        context, wanted = self._context, self._context.config.now.groups.offsets_min_insync_replicas
        records = [
            record
            for stream in context.image
            if stream.internal and stream.assignments
            for record in fit_minimum(context.image, stream.name, wanted)
        ]
        await context.commit(records)
        for record in records:
            name, minimum = context.image.by_id[record.id].name, record.config[MINIMUM]
            context.log.info("minimum of in-sync replicas changed", stream=name, min_insync_replicas=int(minimum))
        return len(records)

    async def _observe(self) -> int:
        """How many partitions get other observers."""
        context, version = self._context, self._context.image.version
        records = observe_all(context.image, context.observers_of, context.minimum_of)
        await context.commit(records)
        changed = sum(len(one.changes) for one in records)
        if changed:
            context.log.info("observers changed", partitions=changed)
        else:
            self._observed_version = version
        return changed

    async def _forget_eligible(self) -> int:
        """In how many partitions."""
        records = forget_eligible(self._context.image, self._context.image, self._context.minimum_of)
        await self._context.commit(records)
        return sum(len(one.changes) for one in records)

    async def _rebalance(self) -> int:
        """How many leaderships moved."""
        context = self._context
        records = rebalance(context.image, context.minimum_of, most=_LEADERS_PER_COMMIT)
        await context.commit(records)
        moved = sum(len(one.changes) for one in records)
        if moved:
            context.log.info("preferred leaders lead again", partitions=moved)
        return moved
