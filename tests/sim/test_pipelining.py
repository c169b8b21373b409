"""Producers with several requests under way keep to the rules of real clients, and what those cannot hide is found."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from logboom.base.ids import Offset
from logboom.records import iter_batches
from logboom.sim.client import AskError, TopicPartition
from logboom.sim.cluster import run_cluster_seed
from logboom.sim.cluster_scenario import ClusterScenario
from logboom.sim.history import History
from logboom.sim.pipelined_client import PipelinedClient
from logboom.sim.pipelining import PipelinedProducer, Rules
from logboom.sim.session import ClientContext, Phase
from logboom.sim.simulation import Simulation

A, B = TopicPartition("s", 0), TopicPartition("s", 1)
RULES = pytest.mark.parametrize("rules", list(Rules), ids=[one.value for one in Rules])


@dataclass
class Broker:
    """Takes requests, and answers as it is told."""

    sent: list[tuple[TopicPartition, int, int, "asyncio.Future[Any]"]] = field(default_factory=list)
    """Partition, epoch and sequence of each batch, and its answer."""
    is_usable: bool = True

    @property
    def in_flight(self) -> int:
        return sum(not answer.done() for *_, answer in self.sent)

    def begin_produce(self, where: TopicPartition, batch: bytes) -> "asyncio.Future[Any]":
        ((_, header),) = list(iter_batches(batch))
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.sent.append((where, header.producer_epoch, header.base_sequence, answer))
        return answer

    async def leader(self, where: TopicPartition) -> tuple[str, int]:
        return "n1", where.partition

    async def new_producer(self) -> tuple[int, int]:
        return 7, 0

    def answer(self, number: int, code: ErrorCode = ErrorCode.none) -> None:
        self.sent[number][-1].set_result(SimpleNamespace(error_code=code, base_offset=10 * number))

    def places(self, since: int = 0) -> list[tuple[TopicPartition, int, int]]:
        return [(where, epoch, sequence) for where, epoch, sequence, _ in self.sent[since:]]

    def close(self) -> None:
        pass


@dataclass
class Bench:
    """A producer that has made batches of two records each, and its broker."""

    rules: Rules
    broker: Broker = field(default_factory=Broker)
    history: History = field(default_factory=History)

    def __post_init__(self) -> None:
        simulation = Simulation(1)
        context = ClientContext("p", [("n1", 1), ("n2", 1)], [A, B], self.history, Phase(), simulation.fork("p"))
        self.producer = PipelinedProducer(context, values=count(), rules=self.rules, pause_max_s=1.0)
        self.producer._session.client = self._client  # type: ignore[method-assign, assignment]

    async def _client(self) -> Broker:
        return self.broker

    async def make(self, *places: TopicPartition) -> None:
        """A batch for each of these, and whatever may be sent by now."""
        producer = self.producer
        producer._connections = dict.fromkeys((("n1", 0), ("n1", 1)), self.broker)  # type: ignore[arg-type]
        for where in places:
            producer.add(where, 2)
        await self.goes_on()

    async def goes_on(self) -> None:
        """The producer has heard all answers and sends what it may."""
        await asyncio.sleep(0.1)
        await self.producer._send_what_may()


@RULES
def test_several_are_under_way_and_are_sent_again_in_their_order(rules: Rules) -> None:
    async def life() -> None:
        bench = Bench(rules)
        await bench.make(A, A, A)
        assert bench.broker.places() == [(A, 0, 0), (A, 0, 2), (A, 0, 4)]
        for number in range(3):
            bench.broker.answer(number, ErrorCode.not_leader_or_follower)
        await bench.goes_on()
        again = [(A, 0, 0), (A, 0, 2), (A, 0, 4)]
        assert bench.broker.places(3) == (again if rules is Rules.LIBRDKAFKA else again[:1])
        bench.broker.answer(3)
        await bench.goes_on()
        assert bench.broker.places(3)[:2] == again[:2]
        assert bench.history.violations == []
        assert len(bench.history.acked) == 2

    asyncio.run(life())


@RULES
def test_no_more_than_five_of_a_partition_are_open(rules: Rules) -> None:
    async def life() -> None:
        bench = Bench(rules)
        await bench.make(*[A] * 7)
        assert len(bench.broker.sent) == 5
        bench.broker.answer(0)
        await bench.goes_on()
        assert len(bench.broker.sent) == 6

    asyncio.run(life())


def test_librdkafka_takes_an_ack_for_one_of_all_batches_before_it() -> None:
    """What was refused after it had been taken would stay open, and more come behind it than brokers remember."""

    async def life() -> None:
        bench = Bench(Rules.LIBRDKAFKA)
        await bench.make(*[A] * 6)
        bench.broker.answer(0, ErrorCode.not_leader_or_follower)
        bench.broker.answer(1)
        await bench.goes_on()
        assert list(bench.history.acked_below) == [0, 1]
        assert list(bench.history.acked) == [2, 3]
        assert bench.history.check({A: [(Offset(9), 1), (Offset(10), 2), (Offset(11), 3)]}) == [
            "lost write in s-0: 0 was acknowledged below 10, and is not there"
        ]
        assert bench.broker.places(5) == [(A, 0, 10)]

    asyncio.run(life())


def test_java_sends_what_was_refused_again_whatever_was_acknowledged_behind_it() -> None:
    async def life() -> None:
        bench = Bench(Rules.JAVA)
        await bench.make(A, A)
        bench.broker.answer(0, ErrorCode.not_leader_or_follower)
        bench.broker.answer(1)
        await bench.goes_on()
        bench.broker.answer(2)
        await bench.make(A)
        bench.broker.answer(3, ErrorCode.out_of_order_sequence_number)
        await bench.goes_on()
        assert bench.broker.places(2)[:2] == [(A, 0, 0), (A, 0, 4)]
        assert bench.history.violations == [
            "p (java) was told that the sequence of the batch that comes next is wrong, in s-0"
        ]

    asyncio.run(life())


def test_java_sends_no_more_behind_an_open_batch_than_brokers_remember() -> None:
    """Found by `logboom sim run --nodes 3 --seed 674002`, with a broker that answered at other moments: a batch that
    was taken and refused all the same was sent again, so were four more behind it, and the connection broke. Nine
    batches were sent from it on, of which the broker remembered five."""

    async def life() -> None:
        bench = Bench(Rules.JAVA)
        await bench.make(*[A] * 9)
        bench.broker.answer(0, ErrorCode.not_leader_or_follower)
        for number in range(1, 5):
            bench.broker.answer(number)
        await bench.goes_on()
        assert bench.broker.places(5) == [(A, 0, 0)]
        bench.broker.answer(5)
        await bench.goes_on()
        assert bench.broker.places(6) == [(A, 0, 10), (A, 0, 12), (A, 0, 14), (A, 0, 16)]

    asyncio.run(life())


def test_java_hides_a_wrong_sequence_of_a_batch_behind_an_open_one() -> None:
    async def life() -> None:
        bench = Bench(Rules.JAVA)
        await bench.make(A, A)
        bench.broker.answer(0, ErrorCode.not_enough_replicas)
        bench.broker.answer(1, ErrorCode.out_of_order_sequence_number)
        await bench.goes_on()
        bench.broker.answer(2)
        await bench.goes_on()
        assert bench.broker.places(2) == [(A, 0, 0), (A, 0, 2)]
        assert bench.history.violations == []

    asyncio.run(life())


def test_java_begins_an_epoch_in_a_partition_whose_next_batch_is_told_that_its_sequence_is_wrong() -> None:
    async def life() -> None:
        bench = Bench(Rules.JAVA)
        await bench.make(A, A, B)
        bench.broker.answer(0)
        bench.broker.answer(1, ErrorCode.out_of_order_sequence_number)
        await bench.goes_on()
        assert bench.broker.places(3) == [(A, 1, 0)]
        assert bench.history.violations == [
            "p (java) was told that the sequence of the batch that comes next is wrong, in s-0"
        ]

    asyncio.run(life())


def test_librdkafka_begins_an_epoch_in_all_partitions_once_nothing_is_under_way() -> None:
    async def life() -> None:
        bench = Bench(Rules.LIBRDKAFKA)
        await bench.make(A, A, B)
        bench.broker.answer(0, ErrorCode.not_enough_replicas)
        bench.broker.answer(1, ErrorCode.out_of_order_sequence_number)
        await bench.goes_on()
        assert len(bench.broker.sent) == 3
        bench.broker.sent[2][-1].set_exception(AskError("the connection broke"))
        await bench.goes_on()
        assert bench.broker.places(3) == [(A, 1, 0), (A, 1, 2), (B, 1, 0)], "what B had taken is there twice"
        assert bench.history.violations == [
            "p (librdkafka) was told that the sequence of a batch behind an open one is wrong, in s-0"
        ]

    asyncio.run(life())


def test_a_cluster_keeps_what_they_send_once_and_in_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    most: list[int] = []
    begin = PipelinedClient.begin_produce

    def counted(self: PipelinedClient, where: TopicPartition, batch: bytes) -> Any:
        answer = begin(self, where, batch)
        most.append(self.in_flight)
        return answer

    monkeypatch.setattr(PipelinedClient, "begin_produce", counted)
    faults: Sequence[str] = ("kill", "cut", "stop", "pause")
    scenario = ClusterScenario(beside=(), troubled_s=6.0, trouble_pause_max_s=2.0, in_flight_max=(5,), lease_chance=0.0)
    outcome = run_cluster_seed(2, replace(scenario, plain_producers=0, members=0).limited_to(faults))
    assert outcome.violations == ()
    assert outcome.records_acked > 1_000
    assert max(most) == 5
