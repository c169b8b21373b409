"""Recovery of partitions without a leader (KIP-966): replicas are asked how far their logs go, and the longest leads.

A partition whose ISR and eligible leader replicas are all down has no leader. The first of those replicas to come back
leads, and no record is lost; so by default the partition waits. Three things lead to an election by the logs:

- All of those replicas were killed (`Assignment.in_doubt`). With honest disks each of them has everything, but one may
  be a restored older copy, which only the logs of the others can show. So those that were relied on last and are up
  again are asked, and nothing is lost if one of them is complete. The controller waits for the others as long as it
  takes a broker to restart.
- `unclean.leader.election.enable` of the stream: after the same time all replicas are asked. Records may be lost.
- An unclean election that an operator requests, at once. Records may be lost.

Life: that of its `loop`.
"""

from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from functools import partial
from itertools import islice
from typing import Final, NamedTuple, TypeAlias

from logboom.base.ids import NO_BROKER, BrokerEpoch, BrokerId, PartitionIndex, StreamId, StreamName
from logboom.broker.control.context import ControlContext, InOrder
from logboom.broker.control.controller_loop import ControllerLoop
from logboom.metadata import Image
from logboom.metadata.assignment import Assignment
from logboom.metadata.leadership import NOTHING, LogEnd, recover
from logboom.metadata.membership import CHANGES_PER_RECORD, changes_by_stream
from logboom.metadata.named_settings import takes_unclean_leaders
from logboom.metadata.records import PartitionsChanged

_INTERVAL_S: Final = 0.25
_WAIT_S: Final = 10.0
Key: TypeAlias = tuple[StreamId, PartitionIndex]
Ends: TypeAlias = Mapping[BrokerId, LogEnd]
Incarnations: TypeAlias = Mapping[BrokerId, BrokerEpoch]
AskEnds: TypeAlias = Callable[[Sequence[Key], Collection[BrokerId]], Awaitable[Mapping[Key, Ends]]]
"""How far the logs of some brokers go; those that do not tell are left out."""


class _Wanted(NamedTuple):
    """A partition that is recovered now."""

    before: Assignment
    """As it was when it was decided whom to ask."""
    asked: Incarnations
    one_of: Set[BrokerId]
    """At least one of these has to answer."""
    waited: bool
    """Whether it was waited for long enough; before that, all who are asked have to answer."""

    def may_decide(self, told: Ends) -> bool:
        """Whether these answers are enough."""
        return any(told.get(one, NOTHING) != NOTHING for one in self.one_of) and (
            self.waited or self.asked.keys() <= told.keys()
        )

    def candidates(self, told: Ends) -> Ends:
        """Of those that answered, who may be chosen. Others than those that have to have everything may only if one of
        these is whole: a damaged one has more than it can show."""
        relied_on = {one: end for one, end in told.items() if one in self.one_of}
        return told if any(end.is_whole for end in relied_on.values()) else relied_on

    def still_hold(self, ends: Ends, image: Image) -> Ends:
        """The answers of those that may still lead, and have not started anew since they were asked."""
        now = _active(image, self.asked)
        return {one: end for one, end in ends.items() if one in now and now[one] == self.asked[one]}


class UncleanRecovery:
    """See the module. On the loop."""

    def __init__(
        self,
        context: ControlContext,
        in_order: InOrder,
        serving: Callable[[], bool],
        ask: AskEnds,
        is_alive: Callable[[BrokerId], bool],
    ) -> None:
        """`is_alive`: whether a broker has sent a heartbeat a moment ago and is well, be it fenced or not."""
        self._context = context
        self._in_order = in_order
        self._ask = ask
        self._is_alive = is_alive
        self._since: dict[Key, float] = {}
        """Since when partitions have been waited for, on the monotonic clock."""
        self._calm: Image | None = None
        """An image of which no partition is to be recovered: no other look at it is needed."""
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
        wanted = self._due()
        if wanted:
            asked = frozenset[BrokerId]().union(*(one.asked for one in wanted.values()))
            ends = await self._ask(list(wanted), asked)
            await self._in_order(partial(self._recover, wanted, ends))

    def _due(self) -> dict[Key, _Wanted]:
        """The partitions that are recovered now."""
        image, now_s = self._context.image, self._context.clock.monotonic_s()
        if image is self._calm:
            return {}
        since: dict[Key, float] = {}
        due: dict[Key, _Wanted] = {}
        for key, assignment, takes_anybody in self._leaderless(image):
            active = _active(image, assignment.replicas)
            known = active.keys() & assignment.last_known if assignment.in_doubt else frozenset[BrokerId]()
            if not known and not takes_anybody:
                continue  # none of those that were relied on is there
            since[key] = self._since.get(key, now_s)
            waited = now_s - since[key] >= _WAIT_S
            if known and (waited or not self._others_may_come(assignment, active)):
                due[key] = _Wanted(assignment, active, known, waited)
            elif waited and takes_anybody and active:
                due[key] = _Wanted(assignment, active, active.keys(), waited)
        self._since = since
        self._calm = None if since else image
        return dict(islice(due.items(), CHANGES_PER_RECORD))

    @staticmethod
    def _leaderless(image: Image) -> Iterator[tuple[Key, Assignment, bool]]:
        """The partitions that may be recovered, and of each whether its stream takes anybody as a leader."""
        for stream in image:
            takes_anybody = takes_unclean_leaders(stream.overrides)
            for index, assignment in enumerate(stream.assignments):
                if assignment.leader == NO_BROKER and (takes_anybody or assignment.in_doubt):
                    yield (stream.id, PartitionIndex(index)), assignment, takes_anybody

    def _others_may_come(self, assignment: Assignment, active: Incarnations) -> bool:
        """Whether replicas that are not there yet may have more than those that are."""
        return any(
            one not in active and (one in assignment.last_known or self._is_alive(one)) for one in assignment.replicas
        )

    async def _recover(self, wanted: Mapping[Key, _Wanted], ends: Mapping[Key, Ends]) -> None:
        context = self._context
        records: list[PartitionsChanged] = []
        for key, one in wanted.items():
            # Who has most may be fenced or killed by now: then all are asked again, and not the next best elected.
            told = one.still_hold(ends.get(key, {}), context.image)
            if context.image.assignment(*key) == one.before and one.may_decide(told):
                records += recover(context.image, *key, one.candidates(told), context.minimum_of)
        await context.commit(changes_by_stream(context.image, records))
        for record in records:
            for change in record.changes:
                key = record.id, PartitionIndex(change.index)
                context.log.warning(
                    "a partition without leader is led by the longest log",
                    stream=context.image.by_id[record.id].name,
                    partition=change.index,
                    ends=shown(ends[key]),
                )


def _active(image: Image, brokers: Iterable[BrokerId]) -> Incarnations:
    """Those of some brokers that may lead."""
    return {one: image.brokers[one].epoch for one in brokers if image.is_active(one)}


def shown(ends: Ends) -> dict[int, tuple[int, int]]:
    """Epoch and end by broker, for the log."""
    return {int(broker): (int(end.epoch), int(end.end_offset)) for broker, end in ends.items()}
