"""Unclean recovery of partitions without a leader (KIP-966): where it is allowed, the longest log leads.

A partition whose ISR and eligible leader replicas are all away has no leader. The first of those replicas to come back
leads, and no record is lost; so by default the partition waits. Two things end the wait earlier, and may lose records:
an unclean election that somebody asks for, and `unclean.leader.election.enable` of the stream. Then the replica with
the longest log leads, of those that answer. For the setting this waits for some seconds first, since brokers that are
merely restarted come back within them.

Life: that of its `loop`.
"""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Final, TypeAlias

from logboom.base.ids import NO_BROKER, BrokerId, PartitionIndex, StreamId, StreamName
from logboom.broker.control.context import ControlContext, InOrder
from logboom.broker.control.controller_loop import ControllerLoop
from logboom.metadata.leadership import LogEnd, recover
from logboom.metadata.named_settings import takes_unclean_leaders

_INTERVAL_S: Final = 1.0
_WAIT_S: Final = 10.0
_PARTITIONS_AT_A_TIME: Final = 1_000
Key: TypeAlias = tuple[StreamId, PartitionIndex]
Ends: TypeAlias = Mapping[BrokerId, LogEnd]
AskEnds: TypeAlias = Callable[[Sequence[Key], Collection[BrokerId]], Awaitable[Mapping[Key, Ends]]]
"""How far the logs of some brokers go; those that do not tell are left out."""


class UncleanRecovery:
    """See the module. On the loop."""

    def __init__(self, context: ControlContext, in_order: InOrder, serving: Callable[[], bool], ask: AskEnds) -> None:
        self._context = context
        self._in_order = in_order
        self._ask = ask
        self._since: dict[Key, float] = {}
        """Since when partitions have had no leader, on the monotonic clock."""
        self.loop = ControllerLoop(
            "the recovery of partitions",
            _INTERVAL_S,
            serving,
            work=self._recover_due,
            idle=self._since.clear,
            log=context.log,
        )

    async def ends_of(self, name: str, index: int) -> Ends:
        """How far the logs of a partition's active replicas go; nothing where there is no such partition."""
        image = self._context.image
        stream = image.by_name.get(StreamName(name))
        if stream is None or not 0 <= index < len(stream.assignments):
            return {}
        key = stream.id, PartitionIndex(index)
        active = [one for one in stream.assignments[index].replicas if image.is_active(one)]
        return (await self._ask([key], active)).get(key, {})

    async def _recover_due(self) -> None:
        wanted = self._wanted()
        if wanted:
            ends = await self._ask(list(wanted), frozenset[BrokerId]().union(*wanted.values()))
            for key in wanted:
                await self._in_order(partial(self._recover, key, ends.get(key, {})))

    def _wanted(self) -> dict[Key, frozenset[BrokerId]]:
        """The partitions that are recovered now, and the brokers to ask about each."""
        image, now_s = self._context.image, self._context.clock.monotonic_s()
        since = {
            (stream.id, PartitionIndex(index)): self._since.get((stream.id, PartitionIndex(index)), now_s)
            for stream in image
            if takes_unclean_leaders(stream.overrides)
            for index, assignment in enumerate(stream.assignments)
            if assignment.leader == NO_BROKER
        }
        self._since.clear()
        self._since.update(since)
        due = [key for key, since_s in since.items() if now_s - since_s >= _WAIT_S][:_PARTITIONS_AT_A_TIME]
        return {key: active for key in due if (active := self._active(key))}

    def _active(self, key: Key) -> frozenset[BrokerId]:
        image = self._context.image
        assignment = image.assignment(*key)
        return frozenset(() if assignment is None else filter(image.is_active, assignment.replicas))

    async def _recover(self, key: Key, ends: Ends) -> None:
        context = self._context
        stream = context.image.by_id.get(key[0])
        if stream is None:
            return
        records = recover(context.image, *key, ends, context.minimum_of)
        await context.commit(records)
        if records:
            context.log.warning(
                "a partition without leader is led by the longest log: its stream takes unclean leaders",
                stream=stream.name,
                partition=key[1],
                ends=shown(ends),
            )


def shown(ends: Ends) -> dict[int, tuple[int, int]]:
    """Epoch and end by broker, for the log."""
    return {int(broker): (int(end.epoch), int(end.end_offset)) for broker, end in ends.items()}
