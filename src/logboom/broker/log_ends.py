"""How far the logs of replicas go: asked by the controller where nobody may lead a partition any more, told by brokers.

The controller knows who was in sync, not what is on the disks now. Where it has to choose among replicas of which none
is eligible, the one whose log goes farthest has the most of what was committed (KIP-966).
"""

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final, TypeAlias
from uuid import UUID

import msgspec

from logboom.base.errors import InvalidRequestError, LogboomError
from logboom.base.ids import BrokerId, Epoch, Offset, PartitionIndex, StreamId
from logboom.base.ports import Bytes
from logboom.broker.partition.replica import Partition
from logboom.broker.partition.replication_port import ReplicaKey
from logboom.broker.peers import FrameKind, PeerIdentity, Peers
from logboom.metadata.leadership import LogEnd

Find: TypeAlias = Callable[[ReplicaKey], Partition]
"""A partition of this broker. Raises LogboomError where it is not here, or cannot be used."""
_ANSWER_S: Final = 2.0
_QUESTIONS: Final = msgspec.msgpack.Decoder(list[tuple[UUID, int]])
_ANSWERS: Final = msgspec.msgpack.Decoder(list[tuple[int, int] | None])


class LogEnds:
    """Asks and tells. Life: that of the broker. On the loop."""

    def __init__(self, own: BrokerId, peers: Peers, find: Find) -> None:
        self._own = own
        self._peers = peers
        self._find = find

    def serve(self) -> None:
        """Tell who asks, from now on."""
        self._peers.serve(FrameKind.LOG_ENDS, self._asked)

    async def ask(
        self, keys: Sequence[ReplicaKey], brokers: Collection[BrokerId]
    ) -> Mapping[ReplicaKey, Mapping[BrokerId, LogEnd]]:
        """What each of these brokers has of each of these partitions; who does not answer in time, or has nothing that
        it could lead with, is left out."""
        asked = sorted(brokers)
        answers = await asyncio.gather(*(self._ends_of(broker, keys) for broker in asked))
        return {
            key: {
                broker: end for broker, ends in zip(asked, answers, strict=True) if (end := ends.get(key)) is not None
            }
            for key in keys
        }

    async def _ends_of(self, broker: BrokerId, keys: Sequence[ReplicaKey]) -> Mapping[ReplicaKey, LogEnd]:
        if broker == self._own:
            told = [self._end(key) for key in keys]
        else:
            body = msgspec.msgpack.encode(list(keys))
            try:
                answer = await self._peers.call(broker, FrameKind.LOG_ENDS, (body,), timeout_s=_ANSWER_S)
                told = _ANSWERS.decode(answer)
            except (LogboomError, msgspec.DecodeError):
                return {}
        return {
            key: LogEnd(Epoch(end[0]), Offset(end[1])) for key, end in zip(keys, told, strict=False) if end is not None
        }

    async def _asked(self, _: PeerIdentity, body: memoryview) -> Sequence[Bytes]:
        try:
            keys = _QUESTIONS.decode(body)
        except msgspec.DecodeError as error:
            raise InvalidRequestError(f"a question for the ends of logs cannot be read: {error}") from None
        return (msgspec.msgpack.encode([self._end((StreamId(one), PartitionIndex(index))) for one, index in keys]),)

    def _end(self, key: ReplicaKey) -> tuple[int, int] | None:
        """What a leader would begin with: what is not on the disk may be gone by then."""
        try:
            partition = self._find(key)
        except LogboomError:
            return None
        if partition.role.failure is not None:
            return None
        end = partition.log.durable_end
        return partition.log.epochs.before(end), end
