"""How far the logs of replicas go: the controller asks when no replica may lead a partition any more, and brokers
answer.

The controller knows which replicas were in sync, not what is on their disks now. If it has to choose among replicas of
which none is eligible, the one whose log goes farthest has the most of what was committed (KIP-966).
"""

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Annotated, Final, TypeAlias
from uuid import UUID

import msgspec

from logboom.base.errors import InvalidRequestError, LogboomError
from logboom.base.ids import BrokerId, Epoch, Offset, PartitionIndex, StreamId
from logboom.base.ports import Bytes
from logboom.broker.partition.replica import Partition
from logboom.broker.partition.replication_port import ReplicaKey
from logboom.broker.peers import FrameKind, PeerIdentity, Peers
from logboom.metadata.leadership import LogEnd

Find: TypeAlias = Callable[[StreamId, int], Partition]
"""A partition of this broker. Raises LogboomError where it is not here, or cannot be used."""
_ANSWER_S: Final = 2.0
QUESTIONS_MAX: Final = 10_000
"""Partitions of one question: to look for this many takes a few hundredths of a second, during which nothing else is
done."""
_Many = msgspec.Meta(max_length=QUESTIONS_MAX)
_Epoch = Annotated[int, msgspec.Meta(ge=-1, le=2**31 - 1)]
_Offset = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
_QUESTIONS: Final = msgspec.msgpack.Decoder(Annotated[list[tuple[UUID, int]], _Many])
_ANSWERS: Final = msgspec.msgpack.Decoder(Annotated[list[tuple[_Epoch, _Offset] | None], _Many])


class LogEnds:
    """Asks and answers. Life: that of the broker. On the loop."""

    def __init__(self, own: BrokerId, peers: Peers, find: Find) -> None:
        self._own = own
        self._peers = peers
        self._find = find

    def serve(self) -> None:
        """Answer such requests from now on."""
        self._peers.serve(FrameKind.LOG_ENDS, self._asked)

    async def ask(
        self, keys: Sequence[ReplicaKey], brokers: Collection[BrokerId]
    ) -> Mapping[ReplicaKey, Mapping[BrokerId, LogEnd]]:
        """What each of these brokers has of each of these partitions. A broker that does not answer in time, or has
        nothing with which it could lead, is left out."""
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
        for start in range(0, len(keys), QUESTIONS_MAX):
            some = keys[start : start + QUESTIONS_MAX]
            told = [self._end(key) for key in some] if broker == self._own else await self._ask_broker(broker, some)
            if len(told) != len(some):
                return {}
            for key, end in zip(some, told, strict=True):
                if end is not None:
                    found[key] = LogEnd(Epoch(end[0]), Offset(end[1]))
        return found

    async def _ask_broker(self, broker: BrokerId, keys: Sequence[ReplicaKey]) -> list[tuple[int, int] | None]:
        """What another broker answers; nothing where it does not, or sends what is no answer."""
        body = msgspec.msgpack.encode(list(keys))
        try:
            answer = await self._peers.call(broker, FrameKind.LOG_ENDS, (body,), timeout_s=_ANSWER_S)
            told: list[tuple[int, int] | None] = _ANSWERS.decode(answer)
        except (LogboomError, msgspec.DecodeError):
            return []
        return told

    async def _asked(self, _: PeerIdentity, body: memoryview) -> Sequence[Bytes]:
        try:
            keys = _QUESTIONS.decode(body)
        except msgspec.DecodeError as error:
            raise InvalidRequestError(f"a question for the ends of logs cannot be read: {error}") from None
        return (msgspec.msgpack.encode([self._end((StreamId(one), PartitionIndex(index))) for one, index in keys]),)

    def _end(self, key: ReplicaKey) -> tuple[int, int] | None:
        """What a leader would begin with: what is not on the disk may be gone by then."""
        try:
            partition = self._find(*key)
        except LogboomError:
            return None
        if partition.role.failure is not None:
            return None
        end = partition.log.durable_end
        return partition.log.epochs.before(end), end
