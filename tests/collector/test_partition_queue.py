"""Batches on their way into a partition, under a network that loses answers and connections and a broker that refuses.

The broker is a model of Kafka's rules for idempotent producers. A connection that was given up may still hold requests,
which the broker takes whenever it likes.
"""

import itertools
from collections import deque
from collections.abc import Callable
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
import structlog
from confluent_kafka import KafkaError
from hypothesis import example, given, settings
from hypothesis import strategies as st

from logboom.client.codes import ErrorCode
from logboom.client.messages import ProducerId
from logboom.client.producer import Outcome
from logboom.collector import delivery
from logboom.collector.batch import Lines
from logboom.collector.delivery import Delivery
from logboom.collector.partition_queue import Batch, PartitionQueue, RecordRange
from logboom.collector.pending_send import OrderedSource, PendingSend
from logboom.records import Codec, iter_records, read_header

LOG: Any = structlog.wrap_logger(None, processors=[], wrapper_class=structlog.make_filtering_bound_logger(50))
KNOWN = 5
"""So many batches a broker remembers of a producer."""


class ModelBroker:
    """One partition. `log` holds (source, number) of each record."""

    def __init__(self, random: Random, bad: frozenset[int], max_bytes: int) -> None:
        self.random = random
        self.bad = bad
        self.max_bytes = max_bytes
        self.log: list[tuple[bytes, int]] = []
        self.producers: dict[int, deque[tuple[int, int]]] = {}
        self.trouble = 0.2
        self.forgot = False
        """Whether it ever lost what it knew of producers: a first batch sent again is then a new one to it."""

    def take(self, content: bytes) -> ErrorCode:
        """Append a batch, or not; the error code."""
        header = read_header(content)
        records = list(iter_records(content, 0, header, 1 << 26))
        if len(content) > self.max_bytes and len(records) > 1:
            return ErrorCode.message_too_large
        if self.bad & {int(record.value or b"") for record in records}:
            return ErrorCode.invalid_record
        if self.random.random() < self.trouble / 2:
            return ErrorCode.not_enough_replicas
        if self.random.random() < self.trouble / 20:
            self.producers.clear()
            self.forgot = True
        batches = self.producers.get(header.producer_id)
        place = (header.base_sequence, header.last_sequence)
        if batches and place in batches:
            return ErrorCode.none
        if header.base_sequence != (batches[-1][1] + 1 if batches else 0):
            return ErrorCode.out_of_order_sequence_number if batches else ErrorCode.unknown_producer_id
        self.producers.setdefault(header.producer_id, deque(maxlen=KNOWN)).append(place)
        self.log += [(record.key or b"", int(record.value or b"")) for record in records]
        if self.random.random() < self.trouble / 4:
            return ErrorCode.request_timed_out  # it is in all the same
        return ErrorCode.none


class ModelClient:
    """One queue and its connection to the model, which moves by a random step in each `poll`."""

    numbers = 0

    def __init__(self, broker: ModelBroker, stale: list[deque[bytes]], on_error: Callable[[KafkaError], None]) -> None:
        ModelClient.numbers += 1
        self.producer = ProducerId(ModelClient.numbers, 0)
        self.broker, self.stale, self.on_error = broker, stale, on_error
        self.queue = PartitionQueue("s", 0)
        self.pipe: deque[Batch] = deque()
        self.answers: deque[tuple[Batch, ErrorCode]] = deque()
        self.dead = False

    def produce(self, pending_send: PendingSend, count: int) -> None:
        count = min(count, pending_send.count - pending_send.acked)
        pending_send.pending = count
        self.queue.waiting.append(RecordRange(pending_send, pending_send.acked, count))

    def is_stuck(self, stream: str) -> bool:
        return False

    def poll(self, timeout_s: float) -> None:
        if self.dead:
            return
        random = self.broker.random
        for pipe in self.stale:
            if pipe and random.random() < 0.3:
                self.broker.take(pipe.popleft())
        step = random.random()
        if step < self.broker.trouble / 4:
            self.cut()
        elif step < 0.4 and self.pipe:
            batch = self.pipe.popleft()
            self.answers.append((batch, self.broker.take(bytes(batch.content.encoded))))
        elif step < 0.7 and self.answers:
            batch, code = self.answers.popleft()
            self.heed(self.queue.answered(batch, code))
        elif (next_one := self.queue.next_batch(Codec.NONE, self.producer)) is not None:
            self.pipe.append(next_one)

    def cut(self) -> None:
        """The connection is lost: answers are lost, and what is in it may still arrive."""
        self.stale.append(deque(bytes(batch.content.encoded) for batch in self.pipe))
        lost = [batch for batch, _ in self.answers] + list(self.pipe)
        self.answers.clear()
        self.pipe.clear()
        for batch in lost:
            if not self.dead:
                self.heed(self.queue.lost(batch))

    def heed(self, outcome: Outcome) -> None:
        if outcome is Outcome.DEAD:
            self.dead = True
            self.on_error(KafkaError(KafkaError._FATAL))

    def flush(self, timeout_s: float) -> None:
        pass

    def purge(self) -> None:
        self.dead = True
        self.queue.purge(KafkaError(KafkaError._PURGE_INFLIGHT))

    def close(self) -> None:
        pass


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time goes on by a hundredth of a second whenever it is asked for, so that waits are steps and no real time."""
    steps = itertools.count()
    monkeypatch.setattr(delivery, "time", SimpleNamespace(monotonic=lambda: next(steps) / 100))


def sent(out: Delivery, source: OrderedSource, first: int, count: int) -> None:
    values = [b"%d" % number for number in range(first, first + count)]
    lines = Lines(values, [10 * number for number in range(first, first + count)], 10 * (first + count))
    out.send(source, lines, 1_000, lambda: None)


@example(755838, [(0, 17), (0, 18)], frozenset({0}), 1_000)
@settings(max_examples=150, deadline=None)
@given(
    st.integers(0, 1 << 32),
    st.lists(st.tuples(st.integers(0, 1), st.integers(1, 40)), min_size=1, max_size=25),
    st.frozensets(st.integers(0, 300), max_size=2),
    st.sampled_from([1_000, 10_000, 1 << 20]),
)
def test_everything_arrives_in_order_and_once_while_the_producer_lives(
    seed: int, sends: list[tuple[int, int]], bad: frozenset[int], max_bytes: int
) -> None:
    random = Random(seed)
    broker, stale = ModelBroker(random, bad, max_bytes), list[deque[bytes]]()
    out = Delivery(lambda on_error: ModelClient(broker, stale, on_error), 1 << 20, LOG)
    sources = [OrderedSource("s", "h", "i", f"/{number}") for number in range(2)]
    expected: dict[bytes, list[int]] = {source.key: [] for source in sources}
    total = 0
    for which, count in sends:
        sent(out, sources[which], total, count)
        expected[sources[which].key] += [number for number in range(total, total + count) if number not in bad]
        total += count
        for _ in range(random.randrange(8)):
            out.poll(0)
    for turn in range(200_000):
        if turn > 2_000:
            broker.trouble = 0.0
        if out.is_empty:
            break
        out.poll(0)
    assert out.is_empty, "it never came to its end"
    for source in sources:
        got = [number for key, number in broker.log if key == source.key]
        assert list(dict.fromkeys(got)) == expected[source.key], "lost, or out of order"
        if out.counters.producers == 1 and not broker.forgot:
            assert got == expected[source.key], "twice"
    assert out.counters.refused == len([number for number in bad if number < total])
    assert (out.in_flight_bytes, out.in_flight_records) == (0, 0)


def test_batches_are_split_where_a_stream_takes_less() -> None:
    queue = PartitionQueue("s", 0)
    settled: deque[PendingSend] = deque()
    lines = Lines([bytes(1_000)] * 100, [1_001 * n for n in range(100)], 100_100)
    pending_send = PendingSend(OrderedSource("s", "h", "i", "/p"), lines, 1, lines.size_bytes, lambda: None, settled)
    pending_send.pending = 100
    queue.waiting.append(RecordRange(pending_send, 0, 100))
    refused, taken = list[int](), list[int]()
    while not queue.is_empty:
        batch = queue.next_batch(Codec.NONE, ProducerId(1, 0))
        assert batch is not None
        too_large = len(batch.content.encoded) > 20_000
        (refused if too_large else taken).append(batch.count)
        queue.answered(batch, ErrorCode.message_too_large if too_large else ErrorCode.none)
    assert refused[0] == 100
    assert len(refused) < 6
    assert sum(taken) == 100
    assert (pending_send.acked, pending_send.pending, pending_send.error) == (100, 0, None)
