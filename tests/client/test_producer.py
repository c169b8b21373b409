"""The core of an idempotent producer against a model of Kafka's rules, under lost answers and refusals."""

from collections import deque
from random import Random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from logboom.client.codes import ErrorCode
from logboom.client.producer import MAX_IN_FLIGHT, Outcome, PartitionProducer, SequencedBatch, Step
from logboom.records import add_to_sequence

Sent = tuple[int, int, int, int]
"""Producer id, first sequence, records, and what they are."""


class ModelBroker:
    """One partition: it takes batches in order and remembers the last five of each producer."""

    def __init__(self, random: Random, refused: frozenset[int]) -> None:
        self._random = random
        self._refused = refused
        self._known: dict[int, deque[tuple[int, int]]] = {}
        self.log: list[int] = []
        self.trouble = 0.3

    def take(self, sent: Sent) -> ErrorCode:
        producer, sequence, count, content = sent
        if content in self._refused:
            return ErrorCode.invalid_record
        if self._random.random() < self.trouble / 4:
            return ErrorCode.not_enough_replicas
        known = self._known.setdefault(producer, deque(maxlen=MAX_IN_FLIGHT))
        if (sequence, count) in known:
            return ErrorCode.duplicate_sequence_number
        if sequence != (add_to_sequence(*known[-1]) if known else 0):
            return ErrorCode.out_of_order_sequence_number if known else ErrorCode.unknown_producer_id
        known.append((sequence, count))
        self.log.append(content)
        return ErrorCode.request_timed_out if self._random.random() < self.trouble / 4 else ErrorCode.none


class Client:
    """Sends the batches of one partition over a connection that breaks; what it holds may arrive later all the same."""

    def __init__(self, random: Random, broker: ModelBroker, contents: list[int]) -> None:
        self._random, self._broker = random, broker
        self._partition = PartitionProducer[int](max_in_flight=random.choice((1, 3, MAX_IN_FLIGHT)))
        self._todo = deque(contents)
        self._producer = 1
        self._pipe: deque[tuple[SequencedBatch[int], Sent]] = deque()
        self._stale: list[deque[Sent]] = []
        self.acknowledged: list[int] = []
        self.refused: list[int] = []
        self.restarts = 0

    @property
    def is_done(self) -> bool:
        return not self._todo and not self._partition.batches

    def step(self) -> None:
        for pipe in self._stale:
            if pipe and self._random.random() < 0.3:
                self._broker.take(pipe.popleft())
        if self._pipe and self._random.random() < self._broker.trouble / 3:
            lost = [batch for batch, _ in self._pipe]
            self._stale.append(deque(sent for _, sent in self._pipe))
            self._pipe.clear()
            for batch in lost:
                self._take(self._partition.lost(batch))
        elif self._pipe and self._random.random() < 0.5:
            batch, sent = self._pipe.popleft()
            self._take(self._partition.answered(batch, self._broker.take(sent)))
        else:
            self._send()

    def _send(self) -> None:
        batch = self._partition.next_to_send()
        if batch is None and self._todo and not self._partition.is_full:
            batch = self._partition.append(self._todo.popleft(), self._random.randint(1, 9))
        if batch is not None:
            self._partition.sent(batch)
            self._pipe.append((batch, (self._producer, batch.sequence, batch.count, batch.content)))

    def _take(self, step: Step[int]) -> None:
        self.acknowledged += [batch.content for batch in step.acknowledged]
        match step.outcome:
            case Outcome.REFUSED:
                first, *others = self._partition.withdraw()
                self.refused.append(first.content)
                self._todo.extendleft(batch.content for batch in reversed(others))
            case Outcome.DEAD:
                self._pipe.clear()
                self._producer, self.restarts = self._producer + 1, self.restarts + 1
                self._partition.restart()


@example(33, 30, frozenset({3, 25}))
@settings(max_examples=300, deadline=None)
@given(st.integers(0, 1 << 32), st.integers(1, 40), st.frozensets(st.integers(0, 40), max_size=4))
def test_every_batch_is_in_the_log_in_order_and_once_while_the_producer_lives(
    seed: int, count: int, refused: frozenset[int]
) -> None:
    random = Random(seed)
    broker = ModelBroker(random, refused)
    client = Client(random, broker, list(range(count)))
    for turn in range(50_000):
        if client.is_done:
            break
        broker.trouble = 0.3 if turn < 500 else 0.0
        client.step()
    assert client.is_done, "it never came to its end"
    kept = [number for number in range(count) if number not in refused]
    assert client.acknowledged == kept
    assert client.refused == [number for number in range(count) if number in refused]
    assert list(dict.fromkeys(broker.log)) == kept
    if not client.restarts:
        assert broker.log == kept, "twice"


def _producer(count: int) -> tuple[PartitionProducer[str], list[SequencedBatch[str]]]:
    partition = PartitionProducer[str]()
    batches = [partition.append(f"{number}", 10) for number in range(count)]
    for batch in batches:
        partition.sent(batch)
    return partition, batches


def test_nothing_is_sent_before_all_answers_are_there_once_something_failed() -> None:
    partition, (first, second, third) = _producer(3)
    assert partition.answered(first, ErrorCode.not_leader_or_follower).outcome is Outcome.GOING_ON
    assert partition.next_to_send() is None
    assert partition.answered(second, ErrorCode.out_of_order_sequence_number).outcome is Outcome.GOING_ON
    assert partition.answered(third, ErrorCode.out_of_order_sequence_number).outcome is Outcome.AGAIN
    assert partition.next_to_send() is first


def test_a_new_producers_first_batch_that_is_refused_does_not_end_it() -> None:
    """Brokers say UNKNOWN_PRODUCER_ID of what follows it, since they know nothing of the producer yet."""
    partition, (first, second) = _producer(2)
    partition.answered(first, ErrorCode.invalid_record)
    assert partition.answered(second, ErrorCode.unknown_producer_id).outcome is Outcome.REFUSED
    assert partition.withdraw() == [first, second]


def test_a_refusal_frees_the_sequences_from_the_refused_batch_on() -> None:
    partition, (first, second, third) = _producer(3)
    assert partition.answered(first, ErrorCode.none).acknowledged == (first,)
    partition.answered(second, ErrorCode.message_too_large)
    assert partition.answered(third, ErrorCode.out_of_order_sequence_number).outcome is Outcome.REFUSED
    assert second.refusal is ErrorCode.message_too_large
    assert partition.withdraw() == [second, third]
    assert partition.append("smaller", 5).sequence == 10


def test_a_refusal_while_a_successors_fate_is_unknown_ends_the_producer() -> None:
    partition, (first, second) = _producer(2)
    partition.answered(first, ErrorCode.invalid_record)
    assert partition.lost(second).outcome is Outcome.DEAD


def test_a_refusal_after_a_copy_was_lost_ends_the_producer_and_not_its_successor() -> None:
    """The copy in the old connection may still arrive; other records under its sequence would pass for repeats."""
    partition, (first, second) = _producer(2)
    partition.lost(first)
    assert partition.lost(second).outcome is Outcome.AGAIN
    for batch in (first, second):
        partition.sent(batch)
    partition.answered(first, ErrorCode.invalid_record)
    assert partition.answered(second, ErrorCode.out_of_order_sequence_number).outcome is Outcome.DEAD
    partition.restart()
    for batch in (first, second):
        partition.sent(batch)
    partition.answered(first, ErrorCode.invalid_record)
    assert partition.answered(second, ErrorCode.unknown_producer_id).outcome is Outcome.REFUSED


@pytest.mark.parametrize(
    "code", [ErrorCode.unknown_producer_id, ErrorCode.producer_fenced, ErrorCode.out_of_order_sequence_number]
)
def test_a_broker_that_lost_the_producer_ends_it_and_a_new_one_counts_from_0(code: ErrorCode) -> None:
    partition, (first, second) = _producer(2)
    assert partition.answered(first, code).outcome is Outcome.DEAD
    partition.restart()
    assert [batch.sequence for batch in (first, second)] == [0, 10]
    assert partition.next_to_send() is first
    assert partition.append("next", 1).sequence == 20


def test_sequences_wrap_as_kafka_has_it() -> None:
    partition = PartitionProducer[str](next_sequence=2**31 - 3)
    assert [partition.append("", 5).sequence, partition.append("", 5).sequence] == [2**31 - 3, 2]
