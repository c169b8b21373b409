"""The collector's own client over real sockets: several brokers, codecs, and servers that are no Kafka."""

import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import structlog
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from tests.collector.live import consume
from tests.support.server import BrokerProcess
from tests.support.waiting import WAIT_S

from logboom.collector.batch import Lines
from logboom.collector.batch_client import BatchClient
from logboom.collector.clients import client_of
from logboom.collector.config import OutputConfig
from logboom.collector.delivery import Delivery
from logboom.collector.pending_send import OrderedSource
from logboom.collector.record_client import RecordClient, producer_options

LOG: Any = structlog.wrap_logger(None, processors=[], wrapper_class=structlog.make_filtering_bound_logger(50))


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("broker") / "data") as broker:
        yield broker


def delivery(bootstrap: str, **options: Any) -> Delivery:
    return Delivery(partial(BatchClient, producer_options(bootstrap, options)), 1 << 25, LOG)


def until(out: Delivery, condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline, "it took too long"
        out.poll(0.05)


def lines(first: int, count: int, line_bytes: int = 0) -> Lines:
    values = [b"%d" % number + b" " * line_bytes for number in range(first, first + count)]
    return Lines(values, list(range(first, first + count)), first + count)


def send_all(
    out: Delivery, stream: str, sources: int = 3, rounds: int = 20, count: int = 100
) -> dict[bytes, list[int]]:
    """Interleaved pending sends of several sources; what each source sent."""
    made = [OrderedSource(stream, "web-1", "app", f"/logs/{number}") for number in range(sources)]
    done = 0

    def safe() -> None:
        nonlocal done
        done += 1

    for turn in range(rounds):
        for source in made:
            out.send(source, lines(turn * count, count), 1_000 + turn, safe)
        out.poll(0)
    until(out, lambda: out.is_empty)
    assert done == rounds * sources
    return {source.key: list(range(rounds * count)) for source in made}


def got(bootstrap: str, stream: str) -> dict[bytes, list[int]]:
    found: dict[bytes, list[int]] = {}
    for record in consume(bootstrap, stream):
        found.setdefault(record.key, []).append(int(record.value))
    return found


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_codec(broker: BrokerProcess, codec: str) -> None:
    out = delivery(broker.kafka, **{"compression.type": codec})
    expected = send_all(out, f"codec-{codec}")
    out.close(drop=False)
    assert got(broker.kafka, f"codec-{codec}") == expected
    assert (out.counters.producers, out.counters.retries) == (1, 0)


def test_large_lines_and_streams_that_take_little(broker: BrokerProcess) -> None:
    small = NewTopic("small", num_partitions=2, replication_factor=1, config={"max.message.bytes": "20000"})
    admin = AdminClient({"bootstrap.servers": broker.kafka})
    admin.create_topics([small])["small"].result(WAIT_S)
    out = delivery(broker.kafka, **{"compression.type": "none"})
    source = OrderedSource("small", "h", "i", "/p")
    for turn in range(5):
        out.send(source, lines(100 * turn, 100, 1_000), 1, lambda: None)
    refused = Lines([b"x" * 30_000], [500], 30_501)
    out.send(source, refused, 1, lambda: None)
    out.send(source, lines(500, 10), 1, lambda: None)
    until(out, lambda: out.is_empty)
    out.close(drop=False)
    assert got(broker.kafka, "small")[source.key] == list(range(510))
    assert (out.counters.refused, out.counters.producers) == (1, 1)


def test_a_stream_that_is_not_there_blocks_itself_alone(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", "--set", "broker.auto_create_streams=false") as broker:
        admin = AdminClient({"bootstrap.servers": broker.kafka})
        admin.create_topics([NewTopic("there", 1, 1)])["there"].result(WAIT_S)
        out = delivery(broker.kafka)
        late = OrderedSource("late", "h", "i", "/p")
        out.send(late, lines(0, 10), 1, lambda: None)
        assert send_all_but(out, "there", late) == list(range(100))
        assert out.is_blocked("late")
        admin.create_topics([NewTopic("late", 1, 1)])["late"].result(WAIT_S)
        until(out, lambda: out.is_empty)
        assert got(broker.kafka, "late") == {late.key: list(range(10))}
        out.close(drop=False)


def send_all_but(out: Delivery, stream: str, waiting: OrderedSource) -> list[int]:
    """Send to a stream while another source waits; what is safe in the end."""
    safe: list[int] = []
    source = OrderedSource(stream, "h", "i", "/q")
    for first in range(0, 100, 10):
        out.send(source, lines(first, 10), 1, partial(safe.extend, range(first, first + 10)))
    until(out, lambda: len(safe) == 100)
    assert waiting.outstanding
    return safe


def test_several_brokers_lead_the_partitions_of_one_stream() -> None:
    cluster = Producer({"test.mock.num.brokers": 3, "log_level": 0, "bootstrap.servers": "mock"})
    brokers = cluster.list_topics("many", timeout=WAIT_S).brokers.values()
    assert len(brokers) == 3
    bootstrap = ",".join(f"{one.host}:{one.port}" for one in brokers)
    out = delivery(bootstrap)
    expected = send_all(out, "many", sources=8)
    out.close(drop=False)
    assert got(bootstrap, "many") == expected
    assert out.counters.producers == 1


@contextmanager
def server(behave: Callable[[socket.socket], None]) -> Iterator[str]:
    """Something that listens and treats everybody alike."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    client, _ = listener.accept()
                except OSError:
                    return
                with client:
                    behave(client)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield "{}:{}".format(*listener.getsockname())
        listener.shutdown(socket.SHUT_RDWR)
        thread.join(WAIT_S)


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"\x7f\xff\xff\xff",
        b"\x00\x00\x00\x08\x00\x00\x00\x63\x00\x00\x00\x00",
        b"\x00\x00\x00\x05\x00\x00\x00\x01\x00" + b"\x00\x00\x00\x05\x00\x00\x00\x02\xff",
        b"\x00\x00\x00\x14\x00\x00\x00\x01" + b"\x7f" * 16 + b"\x00\x00\x00\x0c\x00\x00\x00\x02" + b"\x7f" * 8,
    ],
)
def test_a_peer_that_is_no_kafka_server_only_delays(answer: bytes) -> None:
    asked = threading.Semaphore(0)

    def behave(client: socket.socket) -> None:
        client.settimeout(WAIT_S)
        client.recv(1_000)
        client.sendall(answer)
        asked.release()

    with server(behave) as address:
        out = delivery(address)
        out.send(OrderedSource("s", "h", "i", "/p"), lines(0, 10), 1, lambda: None)
        for _ in range(3):
            until(out, lambda: asked.acquire(blocking=False))
        until(out, lambda: out.waiting)
        assert not out.is_empty
        out.close(drop=True)


def test_partitions_that_a_broker_leaves_out_are_asked_for_again() -> None:
    """A source's partition is reckoned from their number: two out of eight are none."""
    asked = threading.Semaphore(0)

    def behave(client: socket.socket) -> None:
        with client.makefile("rb") as requests:
            while head := requests.read(4):
                api, _, correlation = struct.unpack_from(">hhi", requests.read(*struct.unpack(">i", head)))
                answer = struct.pack(">ihqh", 0, 0, 1, 0)
                if api == 3:
                    partitions = [struct.pack(">hiiii", 0, partition, 1, 0, 0) for partition in (0, 7)]
                    answer = struct.pack(">iihiihh1s?i", 0, 0, -1, 1, 1, 0, 1, b"s", False, 2) + b"".join(partitions)
                client.sendall(struct.pack(">ii", 4 + len(answer), correlation) + answer)
                asked.release()

    with server(behave) as address:
        out = delivery(address)
        for number in range(8):
            out.send(OrderedSource("s", "h", "i", f"/{number}"), lines(0, 10), 1, lambda: None)
        for _ in range(5):
            until(out, lambda: asked.acquire(blocking=False))
        assert out.waiting
        assert not out.is_empty
        out.close(drop=True)


def test_options_that_only_librdkafka_knows_choose_it() -> None:
    def chosen(options: dict[str, Any], client: str = "auto") -> type:
        output = OutputConfig.model_validate({"client": client, "librdkafka": options})
        made = client_of(output)(lambda error: None)
        made.close()
        return type(made)

    assert chosen({}) is BatchClient
    assert chosen({"compression.type": "lz4", "linger.ms": 5}) is BatchClient
    assert chosen({}, "librdkafka") is RecordClient
    assert chosen({"security.protocol": "ssl"}) is RecordClient
    assert chosen({"message.copy.max.bytes": 2_000}) is RecordClient
