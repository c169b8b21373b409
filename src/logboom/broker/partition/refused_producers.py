"""Idempotent producers with a batch that was refused temporarily: what they sent behind it gets the same answer until
they have sent it again.

Clients have up to five batches in flight. If the first was refused, because the partition had no leader here or too few
replicas in sync at that moment, or was taken back because the disk was full, the second may arrive when that is over.
Its sequence does not follow, and an answer that says so is final: after OUT_OF_ORDER_SEQUENCE_NUMBER librdkafka
continues in a new epoch, and duplicates what it has sent to other partitions without getting an answer. And if the log
does not know the producer yet, or no longer, any sequence is accepted: the second batch would then also count as an ack
of the first one, which would never be stored.

The first may also have been refused by the previous leader, or by this broker before it had the partition, while the
second comes here: librdkafka 2.16 may send it while it waits for the answer about the first. So for a moment after a
leadership began, each producer counts as one with such a batch.

Producer ids are chosen by clients, so only a limited number is remembered, for each partition (`PRODUCERS_MAX`) and for
all partitions of the broker (`RefusedMemory`). If there are too many, every producer of the partition that forgets some
counts as one with such a batch, for the time that it would be remembered.

On the loop only.
"""

from collections.abc import Iterable
from heapq import heapify, heapreplace
from itertools import islice, takewhile
from typing import Final, NamedTuple
from weakref import WeakKeyDictionary

from logboom.base.errors import LogboomError, NotEnoughReplicasError
from logboom.base.ids import ProducerId
from logboom.base.ports import Clock
from logboom.records import BatchHeader
from logboom.storage import FirstSequence, ProducerTable

GAP_MAX_S: Final = 120.0
"""How long a producer may take to send again what was not taken, while it sends what follows."""
PRODUCERS_MAX: Final = 1_000
"""Of one partition."""
BROKER_PRODUCERS_MAX: Final = 50_000
"""Of all partitions together, some 250 bytes each."""
_FREED_PART: Final = 8
BEGUN_S: Final = 10.0
"""For how long a leadership has begun just now: clients have looked for the next leader several times by then."""


class _Refused(NamedTuple):
    error: LogboomError
    until_s: float
    epoch: int
    sequence: int
    """Of the first batch that was not taken."""


class RefusedMemory:
    """Bounds the refused producers of all partitions of a broker. Life: the broker's.

    Beyond BROKER_PRODUCERS_MAX those are dropped whose time is over, then the oldest half of the partition that has
    most, and so on, until an eighth of the room is free: so partitions are looked at once in so many refusals.
    """

    def __init__(self) -> None:
        self._partitions: WeakKeyDictionary[RefusedProducers, None] = WeakKeyDictionary()
        """Those that have some, or had."""
        self._left = BROKER_PRODUCERS_MAX
        """So many more there may be before they are counted again."""

    def grown(self, partition: "RefusedProducers") -> None:
        """A partition has one more."""
        self._partitions[partition] = None
        self._left -= 1
        if self._left < 0:
            self._make_room()

    def _make_room(self) -> None:
        partitions = list(self._partitions)
        for one in partitions:
            one.expire()
        held = sum(map(len, partitions))
        biggest = [(-len(one), place) for place, one in enumerate(partitions)]
        heapify(biggest)
        while held > BROKER_PRODUCERS_MAX - BROKER_PRODUCERS_MAX // _FREED_PART:
            size, place = biggest[0]
            held -= partitions[place].forget_oldest((1 - size) // 2)
            heapreplace(biggest, (-len(partitions[place]), place))
        self._partitions = WeakKeyDictionary((one, None) for one in partitions if len(one))
        self._left = BROKER_PRODUCERS_MAX - held


class RefusedProducers:
    """See the module. Life: that of the partition."""

    __slots__ = ("__weakref__", "_clock", "_forgotten", "_memory", "_refused")

    def __init__(self, clock: Clock, memory: RefusedMemory) -> None:
        self._clock = clock
        self._memory = memory
        self._refused: dict[int, _Refused] = {}
        """The one that was refused longest ago first."""
        self._forgotten: _Refused | None = None
        """What counts for all others: the latest of those for which there was no room, or a leader before this one."""

    def __len__(self) -> int:
        return len(self._refused)

    def begin(self) -> None:
        """A leadership begins: for BEGUN_S any gap may be one that the previous leader has caused."""
        error = NotEnoughReplicasError(
            "the partition has a new leader, which does not know whether what the producer sent before this batch was "
            "refused: send it again"
        )
        self._forgotten = _Refused(error, self._clock.monotonic_s() + BEGUN_S, -1, -1)

    def note(self, firsts: Iterable[FirstSequence], error: LogboomError) -> None:
        """Batches from these on were answered with `error`."""
        now_s = self._clock.monotonic_s()
        self.expire()
        for producer, epoch, sequence in firsts:
            before = self._refused.pop(producer, None)
            first = before.sequence if before is not None and before.epoch == epoch else sequence
            self._refused[producer] = _Refused(error, now_s + GAP_MAX_S, epoch, first)
            if len(self._refused) > PRODUCERS_MAX:
                self.forget_oldest(1)
            elif before is None:
                self._memory.grown(self)

    def caught_up(self, producer: int) -> None:
        """A batch of this one was taken."""
        if self._refused:
            self._refused.pop(producer, None)
            self.expire()

    def forget_oldest(self, count: int) -> int:
        """There is no room for those that were refused longest ago; how many were dropped."""
        oldest = list(islice(self._refused, count))
        for producer in oldest:
            self._forgotten = self._refused.pop(producer)
        return len(oldest)

    def expire(self) -> None:
        """Drop those whose time is over."""
        now_s = self._clock.monotonic_s()
        over = takewhile(lambda one: one[1].until_s <= now_s, self._refused.items())
        for producer in [producer for producer, _ in over]:
            del self._refused[producer]

    def answer(self, producer: int) -> LogboomError | None:
        """The answer to a batch with a gap before it; None where the gap is the producer's own."""
        refused = self._refused.get(producer, self._forgotten)
        return refused.error if refused is not None and self._clock.monotonic_s() < refused.until_s else None

    def before(self, header: BatchHeader, known: ProducerTable) -> LogboomError | None:
        """The answer to a batch before which one of the same producer was refused, if the log does not detect that
        because it accepts any first batch of a producer that it does not know. None if none was refused."""
        if header.producer_id < 0:
            return None
        state = known.get(ProducerId(header.producer_id))
        if state is not None and state.batches:
            return None
        refused = self._refused.get(header.producer_id)
        if refused is None:
            begins = header.base_sequence == 0
        else:
            begins = header.base_sequence in (0, refused.sequence) or header.producer_epoch != refused.epoch
        return None if begins else self.answer(header.producer_id)

    def clear(self) -> None:
        """Another leader may take what comes next."""
        self._refused.clear()
        self._forgotten = None
