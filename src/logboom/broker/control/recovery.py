"""The controller's care for partitions that nobody may lead, where there is something to choose from (KIP-966).

Members of the ISR and the eligible leaders lead as soon as they are back: that needs no choice, and the last of them is
remembered whatever happened to it. Until then a partition waits, unless somebody asks for an unclean election, or its
stream would lose records rather than wait (`unclean.leader.election.enable`): then the replica with the longest log
leads, of all that can be asked. A stream is given a while first, in which brokers that merely restart come back.

Life: that of the broker, from `start` to `stop`; it acts while this broker is the controller.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Final, TypeAlias

from logboom.base.errors import LogboomError
from logboom.base.ids import NO_BROKER, BrokerId, PartitionIndex, StreamId, StreamName
from logboom.broker.control.context import ControlContext
from logboom.metadata.leadership import LogEnd, recover
from logboom.metadata.stream_config import takes_unclean_leaders

_LOOK_S: Final = 1.0
_PATIENCE_S: Final = 10.0
_PARTITIONS_A_LOOK: Final = 1_000
Key: TypeAlias = tuple[StreamId, PartitionIndex]
Ends: TypeAlias = Mapping[BrokerId, LogEnd]
AskEnds: TypeAlias = Callable[[Sequence[Key], Collection[BrokerId]], Awaitable[Mapping[Key, Ends]]]
"""How far the logs of some brokers go; those that do not tell are left out."""
InOrder = Callable[[Callable[[], Awaitable[None]]], Awaitable[None]]
"""Runs one change of the metadata after the other."""


class Recovery:
    """See the module. On the loop."""

    def __init__(self, context: ControlContext, in_order: InOrder, serving: Callable[[], bool], ask: AskEnds) -> None:
        self._context = context
        self._in_order = in_order
        self._serving = serving
        self._ask = ask
        self._since: dict[Key, float] = {}
        """Since when partitions have had no leader, on the monotonic clock."""
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to look."""
        self._task = asyncio.ensure_future(self._run())

    async def stop(self) -> None:
        """Look no more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def ends_of(self, name: str, index: int) -> Ends:
        """How far the logs of a partition's active replicas go; nothing where there is no such partition."""
        image = self._context.image
        stream = image.by_name.get(StreamName(name))
        if stream is None or not 0 <= index < len(stream.assignments):
            return {}
        key = stream.id, PartitionIndex(index)
        active = [one for one in stream.assignments[index].replicas if image.is_active(one)]
        return (await self._ask([key], active)).get(key, {})

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_S)
            if not self._serving():
                self._since.clear()
                continue
            try:
                await self._look()
            except LogboomError as error:
                self._context.log.warning("the recovery of partitions is late", reason=str(error))

    async def _look(self) -> None:
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
        self._since = since
        due = [key for key, since_s in since.items() if now_s - since_s >= _PATIENCE_S][:_PARTITIONS_A_LOOK]
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
