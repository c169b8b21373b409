"""How far the logs of replicas go: the controller asks when no replica may lead a partition any more, and brokers
answer.

The controller knows which replicas were in sync, not what is on their disks now. If it has to choose among replicas of
which none is eligible, the one whose log goes farthest has the most of what was committed (KIP-966). A copy that is
known to be damaged goes as far as its last batch that is there, and one that is lost answers that it has nothing, so
that nobody waits for it.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Annotated, Final, TypeAlias
from uuid import UUID

import msgspec

from logboom.base.errors import InvalidRequestError, LogboomError
from logboom.base.ids import BrokerId, Epoch, Offset, PartitionIndex, StreamId
from logboom.base.ports import Bytes
from logboom.broker.disk.log_manager import MissingReplicaError
from logboom.broker.partition.replica import Partition
from logboom.broker.partition.replication_port import ReplicaKey
from logboom.broker.peers import FrameKind, PeerIdentity, Peers
from logboom.metadata.leadership import NOTHING, LogEnd

Find: TypeAlias = Callable[[StreamId, int], Partition]
"""A partition of this broker. Raises LogboomError where it is not here, or cannot be used."""
_ANSWER_S: Final = 2.0
QUESTIONS_MAX: Final = 10_000
"""Partitions of one question: to look for this many takes a few hundredths of a second, during which nothing else is
done."""
_TAKES_DAMAGE: Final[ReplicaKey] = (StreamId(UUID(int=0)), PartitionIndex(0))
"""The last question of one who takes answers about damaged and lost copies. It is about no partition, so that builds
which do not know it answer None to it. To those, no other answers may be given: they would drop all of them."""
_Many = msgspec.Meta(max_length=QUESTIONS_MAX)
_Epoch = Annotated[int, msgspec.Meta(ge=-1, le=2**31 - 1)]
_Offset = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
_QUESTIONS: Final = msgspec.msgpack.Decoder(Annotated[list[tuple[UUID, int]], _Many])


class _Told(msgspec.Struct, array_like=True):
    """A `LogEnd` on its way. The third value is left out where it is True, as it was when there were two."""

    epoch: _Epoch
    end_offset: _Offset
    is_whole: bool = True


_ANSWERS: Final = msgspec.msgpack.Decoder(Annotated[list[_Told | None], _Many])


class LogEnds:
    """Asks and answers. Life: that of the broker. On the loop."""

    def __init__(self, own: BrokerId, peers: Peers, find: Find, is_damaged: Callable[[ReplicaKey], bool]) -> None:
        """`is_damaged`: whether something in the log of a partition is known to be damaged or lost."""
        self._own = own
        self._peers = peers
        self._find = find
        self._is_damaged = is_damaged

    def serve(self) -> None:
        """Answer such requests from now on."""
        self._peers.serve(FrameKind.LOG_ENDS, self._asked)

    async def ask(
        self, keys: Sequence[ReplicaKey], brokers: Collection[BrokerId]
    ) -> Mapping[ReplicaKey, Mapping[BrokerId, LogEnd]]:
        """What each of these brokers has of each of these partitions. A broker that does not answer in time, or cannot
        lead although it may have records, is left out."""
        asked = sorted(brokers)
        answers = await asyncio.gather(*(self._ends_of(broker, keys) for broker in asked))
        return {
            key: {
                broker: end for broker, ends in zip(asked, answers, strict=True) if (end := ends.get(key)) is not None
            }
            for key in keys
        }

    async def _ends_of(self, broker: BrokerId, keys: Sequence[ReplicaKey]) -> Mapping[ReplicaKey, LogEnd]:
        found: dict[ReplicaKey, LogEnd] = {}
        for start in range(0, len(keys), QUESTIONS_MAX - 1):
            some = keys[start : start + QUESTIONS_MAX - 1]
            told = await (self._own_ends(some) if broker == self._own else self._ask_broker(broker, some))
            if len(told) != len(some):
                return {}
            found.update({key: end for key, end in zip(some, told, strict=True) if end is not None})
        return found

    async def _ask_broker(self, broker: BrokerId, keys: Sequence[ReplicaKey]) -> Sequence[LogEnd | None]:
        """What another broker answers; nothing where it does not, or sends what is no answer."""
        body = msgspec.msgpack.encode([*keys, _TAKES_DAMAGE])
        try:
            answer = await self._peers.call(broker, FrameKind.LOG_ENDS, (body,), timeout_s=_ANSWER_S)
            *told, _ = _ANSWERS.decode(answer)
        except (LogboomError, msgspec.DecodeError, ValueError):
            return []
        return [one and LogEnd(Epoch(one.epoch), Offset(one.end_offset), one.is_whole) for one in told]

    async def _asked(self, _: PeerIdentity, body: memoryview) -> Sequence[Bytes]:
        try:
            keys = _QUESTIONS.decode(body)
        except msgspec.DecodeError as error:
            raise InvalidRequestError(f"a question for the ends of logs cannot be read: {error}") from None
        asked = [(StreamId(one), PartitionIndex(index)) for one, index in keys]
        ends = await self._own_ends(asked)
        pack = _packed if asked and asked[-1] == _TAKES_DAMAGE else _packed_for_earlier_builds
        return (msgspec.msgpack.encode([one and pack(one) for one in ends]),)

    async def _own_ends(self, keys: Sequence[ReplicaKey]) -> Sequence[LogEnd | None]:
        ends = [self._end(key) for key in keys]
        for number, (key, end) in enumerate(zip(keys, ends, strict=True)):
            if end is not None and not end.is_whole and end != NOTHING:
                ends[number] = await self._end_of_damaged(key)
        return ends

    def _end(self, key: ReplicaKey) -> LogEnd | None:
        """What a leader would begin with: what is not on the disk may be gone by then."""
        try:
            partition = self._find(*key)
        except MissingReplicaError:
            return NOTHING
        except LogboomError:
            return None
        if partition.role.failure is not None:
            return None
        end = partition.log.durable_end
        return LogEnd(partition.log.epochs.before(end), end, not self._is_damaged(key))

    async def _end_of_damaged(self, key: ReplicaKey) -> LogEnd | None:
        """Up to its last batch that is there."""
        try:
            partition = self._find(*key)
            last = await partition.reads.in_thread(partition.log.reader.last_batch)
        except LogboomError:
            return None
        return NOTHING if last is None else LogEnd(Epoch(last.leader_epoch), last.next_offset, is_whole=False)


def _packed(end: LogEnd) -> tuple[int | bool, ...]:
    whole = (int(end.epoch), int(end.end_offset))
    return whole if end.is_whole else (*whole, False)


def _packed_for_earlier_builds(end: LogEnd) -> tuple[int, ...] | None:
    """What they would have answered: a lost copy cannot lead, and a damaged one counts up to its last batch."""
    return None if end == NOTHING else (int(end.epoch), int(end.end_offset))
