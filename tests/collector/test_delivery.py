"""The way out, against a client that fails as told and against librdkafka's own mock of a cluster."""

import itertools
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import structlog
from confluent_kafka import KafkaError, KafkaException
from tests.support.waiting import WAIT_S

from logboom.collector import delivery, record_client
from logboom.collector.batch import Lines
from logboom.collector.delivery import Delivery
from logboom.collector.pending_send import OrderedSource
from logboom.collector.record_client import OutputConfigError, RecordClient, producer_options

LOG: Any = structlog.wrap_logger(None, processors=[], wrapper_class=structlog.make_filtering_bound_logger(50))


Refusal = Callable[[list[tuple[str, bytes]]], int | None]


class World:
    """What the fake clients share: the log they write to, and what it refuses."""

    def __init__(self) -> None:
        self.producers = 0
        self.log: list[tuple[str, bytes, list[tuple[str, bytes]]]] = []
        self.refuses: Refusal = lambda batch: None
        self.batch = 4

    def values_of(self, stream: str) -> list[int]:
        return [int(value) for name, value, _ in self.log if name == stream]


class FakeProducer:
    """Writes in batches; a batch that the world refuses fails, and all behind it."""

    def __init__(self, world: World, options: dict[str, Any]) -> None:
        self.world = world
        self.queue: list[tuple[str, bytes, Any, list[tuple[str, bytes]]]] = []
        self.dead = False
        self.on_error = options["error_cb"]
        world.producers += 1

    def produce(
        self, stream: str, value: bytes, key: bytes, _p: int, report: Any, _t: Any, _ms: int, headers: Any
    ) -> None:
        if self.dead:
            raise KafkaException(KafkaError(KafkaError._FATAL))
        self.queue.append((stream, value, report, headers))

    def poll(self, _timeout_s: float) -> None:
        batch, self.queue = self.queue[: self.world.batch], self.queue[self.world.batch :]
        if not batch:
            return
        code = self.world.refuses([(stream, value) for stream, value, _, _ in batch])
        if code is None:
            self.world.log += [(stream, value, headers) for stream, value, _, headers in batch]
            for _, _, report, _ in batch:
                report(None, None)
            return
        self.dead = True
        for _, _, report, _ in batch:
            report(KafkaError(code), None)
        self.on_error(KafkaError(KafkaError._FATAL))

    def purge(self, **_options: Any) -> None:
        for _, _, report, _ in self.queue:
            report(KafkaError(KafkaError._PURGE_QUEUE), None)
        self.queue.clear()

    def flush(self, _timeout_s: float) -> None:
        pass


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    world = World()
    monkeypatch.setattr(record_client, "Producer", lambda options: FakeProducer(world, options))
    monkeypatch.setattr(delivery, "_FIRST_RETRY_S", 0.001)
    return world


@pytest.fixture
def out(world: World) -> Delivery:
    return Delivery(partial(RecordClient, {}), 1 << 20, LOG)


def send(out: Delivery, source: OrderedSource, numbers: range, done: list[int]) -> None:
    values = [b"%d" % number for number in numbers]
    lines = Lines(values, [10 * number for number in numbers], 10 * numbers.stop, frozenset())
    out.send(source, lines, 1234, lambda: done.append(numbers.stop))


def run(out: Delivery) -> None:
    for _ in range(10_000):
        out.poll(0)
        if out.is_empty:
            return
        time.sleep(0.0002)
    raise AssertionError("the delivery never came to its end")


def test_lines_are_sent_in_order_with_their_headers_and_acknowledged_once(world: World, out: Delivery) -> None:
    source, done = OrderedSource("logs", "web-1", "app", "/var/log/é.log"), list[int]()
    send(out, source, range(10), done)
    send(out, source, range(10, 12), done)
    assert not out.is_empty
    assert out.in_flight_records == 12
    run(out)
    assert world.values_of("logs") == list(range(12))
    assert done == [10, 12]
    assert world.log[3][2] == [
        ("host.name", b"web-1"),
        ("log.input", b"app"),
        ("log.file.path", "/var/log/é.log".encode()),
        ("log.observed_time_ms", b"1234"),
        ("log.file.position", b"30"),
    ]
    assert (out.in_flight_records, out.in_flight_bytes) == (0, 0)


def test_after_a_fatal_error_everything_unacknowledged_goes_again_in_order(world: World, out: Delivery) -> None:
    fails = iter([None, KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER, None, KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER])
    world.refuses = lambda batch: next(fails, None)
    sources = [OrderedSource("logs", "h", "i", f"/{n}") for n in range(3)]
    done: list[int] = []
    for start in range(0, 30, 10):
        send(out, sources[start // 10], range(start, start + 10), done)
    run(out)
    assert sorted(world.values_of("logs")) == list(range(30))
    assert sorted(done) == [10, 20, 30]
    assert world.producers == 3
    for start in range(0, 30, 10):
        ours = [value for value in world.values_of("logs") if start <= value < start + 10]
        assert ours == list(range(start, start + 10))


@pytest.mark.parametrize("refused", [{7}, {0}, {39}, {5, 6}, {3, 25}])
def test_only_the_record_that_is_refused_is_skipped(world: World, out: Delivery, refused: set[int]) -> None:
    def refuses(batch: list[tuple[str, bytes]]) -> int | None:
        return KafkaError.MSG_SIZE_TOO_LARGE if refused & {int(value) for _, value in batch} else None

    world.refuses = refuses
    done: list[int] = []
    sources = [OrderedSource("logs", "h", "i", f"/{n}") for n in range(2)]
    for start in (0, 20, 10, 30):
        send(out, sources[start // 20], range(start, start + 10), done)
    run(out)
    assert Counter(world.values_of("logs")) == Counter(set(range(40)) - refused)
    assert out.counters.refused == len(refused)
    assert sorted(done) == [10, 20, 30, 40]
    for start in (0, 20):
        ours = [value for value in world.values_of("logs") if start <= value < start + 20]
        assert ours == sorted(ours)


def test_a_failing_stream_blocks_itself_alone(world: World, out: Delivery) -> None:
    broken = [True]

    def refuses(batch: list[tuple[str, bytes]]) -> int | None:
        dead = broken[0] and any(stream == "dead" for stream, _ in batch)
        return KafkaError.TOPIC_AUTHORIZATION_FAILED if dead else None

    world.refuses = refuses
    world.batch = 1
    dead, alive, done = OrderedSource("dead", "h", "i", "/d"), OrderedSource("alive", "h", "i", "/a"), list[int]()
    send(out, dead, range(3), done)
    out.poll(0)
    out.poll(0)
    assert out.is_blocked("dead")
    for start in itertools.islice(itertools.count(100, 3), 20):
        send(out, alive, range(start, start + 3), done)
        for _ in range(200):
            out.poll(0)
    assert set(done) >= set(range(103, 160, 3))
    assert 3 not in done
    broken[0] = False
    run(out)
    assert 3 in done
    assert out.waiting is False


def test_room_is_bounded_by_bytes(world: World, out: Delivery) -> None:
    source = OrderedSource("logs", "h", "i", "/p")
    out.send(source, Lines([b"x" * (1 << 20)], [0], 1 << 20), 1, lambda: None)
    assert not out.has_room
    run(out)
    assert out.has_room


def test_unknown_options_are_named() -> None:
    with pytest.raises(OutputConfigError, match="compresion"):
        RecordClient(producer_options("localhost:1", {"compresion.type": "zstd"}), lambda error: None)


def test_through_librdkafka_itself() -> None:
    options = producer_options("mock", {"test.mock.num.brokers": 1})
    out = Delivery(partial(RecordClient, options), 1 << 20, LOG)
    source, done = OrderedSource("logs", "h", "i", "/p"), list[int]()
    send(out, source, range(1000), done)
    out.send(source, Lines([b"", b"\xff\x00"], [1, 2], 3, frozenset({0})), 5, lambda: done.append(-1))
    deadline = time.monotonic() + WAIT_S
    while not out.is_empty and time.monotonic() < deadline:
        out.poll(0.05)
    assert done == [1000, -1]
    out.close(drop=False)
