"""Idempotent producers with several requests under way, by the rules of the clients that people use.

Batches of a partition are numbered in the order in which they were made, and sent again in that order until each is
acknowledged. What two clients make of answers that come out of turn differs:

- Java's (KafkaProducer with max.in.flight.requests.per.connection=5): what is sent again goes alone, the first of its
  partition first. OUT_OF_ORDER_SEQUENCE_NUMBER for a batch behind one that is open means nothing: it is sent again. For
  the one that comes next the producer's epoch is raised, and the open batches of that partition are numbered anew.
- librdkafka: what is sent again goes as what is sent first, several at a time, in their order. To a new leader nothing
  is sent until all that was under way to the one before is answered. OUT_OF_ORDER_SEQUENCE_NUMBER, for whatever batch
  behind an open one, has the whole producer wait until nothing is under way; then its epoch is raised and everything
  that is open, in all partitions, numbered anew. What had been taken without an answer is there twice then: a broker
  must not give that answer without need. For the batch that comes next it is the end of the producer.

So a broker that has refused or lost a batch for a moment must not tell the ones behind it that their sequence is wrong,
but what it told that one, which both clients hide.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from itertools import count, takewhile
from typing import Any, Final

from kio.schema.errors import ErrorCode

from logboom.base.ids import ProducerEpoch, ProducerId
from logboom.records import Record, build_batch
from logboom.sim.client import AskError, RefusedError, TopicPartition
from logboom.sim.history import Value
from logboom.sim.pipelined_client import PipelinedClient
from logboom.sim.routing import Address
from logboom.sim.session import ClientContext
from logboom.sim.workload import records_of

_IN_FLIGHT_MAX: Final = 5
"""Of one connection; and of one partition so many may have been sent from the first open one on, since no broker
remembers more of a producer's batches. Java's client may have sent more: five at each of two leaders, where a partition
changes its leader; or four behind one that was taken, refused all the same and sent again, and four more once those are
acknowledged. If it then gets no answer, the broker has forgotten that it took the first. So it is with Kafka's brokers
too."""
_OPEN_MAX: Final = 30
_BURST_MAX: Final = 6
_BACKOFF_S: Final = 0.05
_LOOK_S: Final = 0.05
_LOOK_MAX_S: Final = 1.0

Producer = tuple[int, int]
"""Id and epoch."""


class Rules(Enum):
    """Whose rules a producer keeps to."""

    JAVA = "java"
    LIBRDKAFKA = "librdkafka"


@dataclass(eq=False)
class _Batch:
    """One batch until it is acknowledged."""

    number: int
    values: Sequence[Value]
    records: Sequence[Record]
    sequence: int | None = None
    """Of its first record, in the epoch of its partition; None where it was not sent in that."""
    place: int = 0
    """How many batches were sent before it in that epoch, once it was sent."""
    in_flight: bool = False
    not_before_s: float = 0.0


@dataclass(eq=False)
class _Partition:
    """What is open in one partition."""

    where: TopicPartition
    batches: deque[_Batch] = field(default_factory=deque)
    """Those that are not acknowledged, in their order."""
    producer: Producer | None = None
    """Of which its sequences are."""
    next_sequence: int = 0
    next_place: int = 0
    next_ack: int = 0
    """The sequence behind the last batch that was acknowledged."""
    leader: Address | None = None
    """To whom was sent what is under way."""

    @property
    def in_flight(self) -> bool:
        """Whether anything is under way."""
        return any(batch.in_flight for batch in self.batches)

    @property
    def may_send_another(self) -> bool:
        """Whether one more may be sent for the first time."""
        first = self.batches[0]
        return first.sequence is None or self.next_place - first.place < _IN_FLIGHT_MAX

    def number_anew(self, producer: Producer) -> None:
        """Begin at 0 with the first open batch."""
        self.producer, self.next_sequence, self.next_place, self.next_ack = producer, 0, 0, 0
        for batch in self.batches:
            batch.sequence = None


class PipelinedProducer:
    """One producer with acks=all; its values are numbers that rise. Life: a phase of the run."""

    def __init__(self, context: ClientContext, *, values: "count[Value]", rules: Rules, pause_max_s: float) -> None:
        self.name = context.name
        self.rules = rules
        self._context = context
        self._session = context.session()
        self._history = context.history
        self._chance = context.chance
        self._values = values
        self._pause_max_s = pause_max_s
        self._look_s = min(_LOOK_S * context.stretch, _LOOK_MAX_S)
        self._partitions = {where: _Partition(where) for where in context.partitions}
        self._made = 0
        self._next_burst_s = 0.0
        self._producer: Producer | None = None
        self._drains = False
        """Whether nothing is sent until nothing is under way, and the epoch is raised then."""
        self._connections: dict[Address, PipelinedClient] = {}
        self._is_lost = False
        """Whether the way to the leaders is to be asked for anew."""
        self._news = asyncio.Event()

    async def run(self) -> None:
        """Produce until the phase ends and everything is acknowledged."""
        while self._context.phase.producing or self._open:
            self._make()
            try:
                await self._send_what_may()
            except AskError:
                await self._session.failed()
            except RefusedError as error:
                await self._session.refused(error)
            await self._wait()
        self._session.close()
        for connection in self._connections.values():
            connection.close()

    @property
    def _open(self) -> int:
        return sum(len(one.batches) for one in self._partitions.values())

    def _make(self) -> None:
        """Now and then, a few batches for one partition."""
        now_s = asyncio.get_running_loop().time()
        if not self._context.phase.producing or now_s < self._next_burst_s or self._open >= _OPEN_MAX:
            return
        self._next_burst_s = now_s + self._chance.uniform(0, self._pause_max_s)
        where = self._chance.choice(self._context.partitions)
        for _ in range(self._chance.randint(1, _BURST_MAX)):
            self.add(where, self._chance.randint(1, 20))

    def add(self, where: TopicPartition, records: int) -> None:
        """A batch of so many records is to be sent."""
        values = [next(self._values) for _ in range(records)]
        self._history.send(self.name, where, values)
        self._made += 1
        self._history.waits[self.name, self._made] = where
        batch = _Batch(self._made, values, records_of(values, self._chance))
        self._partitions[where].batches.append(batch)

    async def _wait(self) -> None:
        """Until an answer has come, or a moment has passed."""
        self._news.clear()
        try:
            async with asyncio.timeout(self._look_s):
                await self._news.wait()
        except TimeoutError:
            pass

    # --- what is sent ---------------------------------------------------------------------------------------------

    async def _send_what_may(self) -> None:
        if self._is_lost:
            self._session.close()
            self._is_lost = False
        client = await self._session.client()
        if self._producer is None:
            self._producer = await client.new_producer()
        if self._drains:
            self._raise_epoch_once_drained()
        for line in self._partitions.values():
            while (batch := self._next(line)) is not None:
                leader = await client.leader(line.where)
                connection = await self._connection(leader)
                waits = self.rules is Rules.LIBRDKAFKA and line.leader not in (None, leader) and line.in_flight
                # What was asked for in between may have answered something else.
                if waits or connection.in_flight >= _IN_FLIGHT_MAX or self._next(line) is not batch:
                    break
                line.leader = leader
                self._send(connection, line, batch)

    def _next(self, line: _Partition) -> _Batch | None:
        """The batch to send next, if one may be sent."""
        batch = next((one for one in line.batches if not one.in_flight), None)
        if batch is None or self._drains or batch.not_before_s > asyncio.get_running_loop().time():
            return None
        if line.producer != self._producer:
            assert self._producer is not None
            if line.in_flight or (line.producer is not None and line.batches[0].sequence is not None):
                # Java's: batches of the epoch before go on with it; newer ones wait for them.
                return batch if batch.sequence is not None and batch is line.batches[0] else None
            line.number_anew(self._producer)
        if batch.sequence is None:
            return batch if line.may_send_another else None
        return None if self.rules is Rules.JAVA and batch is not line.batches[0] else batch

    async def _connection(self, leader: Address) -> PipelinedClient:
        found = self._connections.get(leader)
        if found is None or not found.is_usable:
            found = self._connections[leader] = await PipelinedClient.connect(leader, self.name)
        return found

    def _send(self, connection: PipelinedClient, line: _Partition, batch: _Batch) -> None:
        assert line.producer is not None
        if batch.sequence is None:
            batch.sequence, batch.place = line.next_sequence, line.next_place
            line.next_sequence += len(batch.records)
            line.next_place += 1
        number, epoch = line.producer
        data = build_batch(
            batch.records,
            producer_id=ProducerId(number),
            producer_epoch=ProducerEpoch(epoch),
            base_sequence=batch.sequence,
        )
        batch.in_flight = True
        answer = connection.begin_produce(line.where, bytes(data))
        answer.add_done_callback(partial(self._answered, line, batch, line.producer, batch.sequence))

    # --- what is answered -----------------------------------------------------------------------------------------

    def _answered(
        self, line: _Partition, batch: _Batch, producer: Producer, sequence: int, answer: "asyncio.Future[Any]"
    ) -> None:
        self._news.set()
        batch.in_flight = False
        batch.not_before_s = asyncio.get_running_loop().time() + _BACKOFF_S
        if answer.exception() is not None:
            self._is_lost = True
            return
        part = answer.result()
        if part.error_code is ErrorCode.none:
            if producer == line.producer:
                line.next_ack = max(line.next_ack, sequence + len(batch.records))
                if self.rules is Rules.LIBRDKAFKA:
                    self._acknowledge_before(line, batch, int(part.base_offset))
            self._done(line, batch)
            self._history.acknowledge(line.where, int(part.base_offset), batch.values)
            return
        self._is_lost = True
        if part.error_code is ErrorCode.out_of_order_sequence_number:
            if producer == line.producer:  # else it was numbered anew meanwhile
                self._out_of_order(line, sequence)
        else:
            self._session.check_passes(RefusedError(part.error_code))

    def _acknowledge_before(self, line: _Partition, acked: _Batch, base_offset: int) -> None:
        """Batches that were sent before this one and wait to be sent again are acknowledged with it."""
        for batch in list(takewhile(lambda one: one is not acked, line.batches)):
            if not batch.in_flight:
                self._done(line, batch)
                self._history.acknowledge_below(line.where, base_offset, batch.values)

    def _done(self, line: _Partition, batch: _Batch) -> None:
        line.batches.remove(batch)
        del self._history.waits[self.name, batch.number]

    def _out_of_order(self, line: _Partition, sequence: int) -> None:
        assert self._producer is not None
        is_next = sequence == line.next_ack
        if is_next or self.rules is Rules.LIBRDKAFKA:
            which = "the batch that comes next" if is_next else "a batch behind an open one"
            told = f"{self.name} ({self.rules.value}) was told that the sequence of {which} is wrong"
            self._history.violated(f"{told}, in {line.where.stream}-{line.where.partition}")
        if self.rules is Rules.LIBRDKAFKA:
            self._drains = True
        elif is_next:
            self._producer = self._raised()
            line.number_anew(self._producer)

    def _raise_epoch_once_drained(self) -> None:
        if not any(line.in_flight for line in self._partitions.values()):
            self._producer, self._drains = self._raised(), False
            for line in self._partitions.values():
                line.number_anew(self._producer)

    def _raised(self) -> Producer:
        assert self._producer is not None
        number, epoch = self._producer
        return number, epoch + 1
