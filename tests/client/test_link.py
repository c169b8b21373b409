"""Connections to servers that answer, are silent for good, or are no Kafka."""

import selectors
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from tests.support.server import BrokerProcess
from tests.support.waiting import WAIT_S

from logboom.base.ids import Offset
from logboom.base.ports import Bytes
from logboom.client.codes import ErrorCode
from logboom.client.link import ANSWER_S, BrokerConnection, Dialogue, LinkError, addresses_of
from logboom.client.messages import (
    INIT_PRODUCER_ID,
    METADATA,
    PRODUCE,
    TopicPartition,
    metadata_answer,
    metadata_request,
    produce_answer,
    produce_request,
    producer_id_answer,
    producer_id_request,
)
from logboom.records import Codec, Record, build_batch

API = (3, 4)


def request_of(client: socket.socket) -> bytes | None:
    """The next request's correlation id and what follows the head, None where there is none."""
    head = client.recv(4, socket.MSG_WAITALL)
    if len(head) < 4:
        return None
    size: int = struct.unpack(">i", head)[0]
    request = client.recv(size, socket.MSG_WAITALL)
    _, _, correlation, length = struct.unpack_from(">hhih", request)
    return struct.pack(">i", correlation) + request[10 + length :]


def answered(client: socket.socket, answer: bytes) -> None:
    """Send an answer: a correlation id and a body."""
    client.sendall(struct.pack(">i", len(answer)) + answer)


@contextmanager
def server(*behaviours: Callable[[socket.socket], None]) -> Iterator[str]:
    """Something that treats each connection in turn as it is told."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            for behave in behaviours:
                client, _ = listener.accept()
                with client:
                    behave(client)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield "{}:{}".format(*listener.getsockname())
        thread.join(WAIT_S)
        assert not thread.is_alive()


@contextmanager
def linked(behave: Callable[[socket.socket], None]) -> Iterator[tuple[BrokerConnection, selectors.BaseSelector]]:
    """A link to such a thing."""
    with (
        server(behave) as address,
        selectors.DefaultSelector() as selector,
        closing(BrokerConnection(address, "test", selector)) as link,
    ):
        yield link, selector


def echo(client: socket.socket) -> None:
    while (request := request_of(client)) is not None:
        answered(client, request)


def serve_until(selector: selectors.BaseSelector, condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline
        for key, events in selector.select(0.1):
            key.data.serve(events)


def test_answers_come_to_who_asked_however_much_is_under_way() -> None:
    got: list[bytes] = []
    sent = [bytes([number]) * 300_000 for number in range(100)]
    with linked(echo) as (link, selector):
        for body in sent:
            parts: list[Bytes] = [body[:1], b"", memoryview(body)[1:]]
            link.request(API, parts, 0.0, lambda answer: got.append(bytes(answer or b"")))
        serve_until(selector, lambda: len(got) == len(sent))
        assert not link.is_overdue(2 * ANSWER_S)
    assert got == sent


def read_two(client: socket.socket) -> None:
    request_of(client)
    request_of(client)


def test_who_still_waits_is_told_once_when_it_is_over() -> None:
    got: list[memoryview | None] = []
    with linked(read_two) as (link, selector):
        link.request(API, [], 0.0, got.append)
        link.request(API, [], 5.0, got.append)
        assert not link.is_overdue(ANSWER_S)
        assert link.is_overdue(ANSWER_S + 1)
        with pytest.raises(LinkError, match=f"{link.address}: "):
            serve_until(selector, lambda: False)
        link.close()
        assert (got, link.closed) == ([None, None], True)
        assert not selector.get_map()
    assert len(got) == 2


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (b"", "closed the connection"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "an answer of 1213486160 bytes; is it a Kafka server"),
        (b"\0\0\0\3", "an answer of 3 bytes"),
        (b"\0\0\0\4\0\0\0\x63", "an answer to nothing that was asked"),
        (b"\0\0\0\4\0\0\0\1\0\0\0\4\0\0\0\2", "an answer to nothing that was asked"),
    ],
)
def test_a_dialogue_with_what_is_no_kafka_server_ends_and_begins_anew(answer: bytes, why: str) -> None:
    def talk_back(client: socket.socket) -> None:
        request_of(client)
        client.sendall(answer)

    with server(talk_back, echo) as address, closing(Dialogue(address, "test")) as dialogue:
        with pytest.raises(LinkError, match=why):
            dialogue.ask(API, [b"question"])
        assert bytes(dialogue.ask(API, [b"another ", b"question"])) == b"another question"
        assert bytes(dialogue.ask(API, [b"one more"])) == b"one more"


def test_a_dialogue_that_was_hung_up_connects_again() -> None:
    with server(echo, echo) as address, closing(Dialogue(address, "test")) as dialogue:
        assert bytes(dialogue.ask(API, [b"1"])) == b"1"
        dialogue.hang_up()
        dialogue.hang_up()
        assert bytes(dialogue.ask(API, [b"2"])) == b"2"


@pytest.mark.parametrize(
    "address", ["127.0.0.1:1", "localhost", "a:b", "::1", f"{'long' * 30}:1", "host:99999999999", "no\0such:1"]
)
def test_a_broker_that_cannot_be_reached_is_named(address: str) -> None:
    with closing(Dialogue(address, "test")) as dialogue, pytest.raises(LinkError) as told:
        dialogue.ask(API, [])
    assert address in str(told.value).encode().decode("unicode_escape")


def test_brokers_in_a_list() -> None:
    assert addresses_of(" a:1,b , [::1]:2,[fe80::1]") == ["a:1", "b:9092", "[::1]:2", "[fe80::1]:9092"]


def test_a_real_broker_serves_all_three(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker, closing(Dialogue(broker.kafka, "test")) as dialogue:
        error, producer = producer_id_answer(dialogue.ask(INIT_PRODUCER_ID, producer_id_request()))
        assert error == ErrorCode.none
        places = metadata_answer(dialogue.ask(METADATA, metadata_request(["a", "b"])))
        assert list(places.brokers.values()) == [broker.kafka]
        assert {name: place.error for name, place in places.streams.items()} == dict.fromkeys("ab", ErrorCode.none)
        record, (number, epoch) = Record(Offset(0), 1, None, b"value", ()), producer
        batch = build_batch([record], codec=Codec.ZSTD, producer_id=number, producer_epoch=epoch, base_sequence=0)
        request = produce_request({TopicPartition(*tp): (batch,) for tp in (("a", 0), ("b", 0), ("a", 99))})
        assert produce_answer(dialogue.ask(PRODUCE, request)) == {
            TopicPartition("a", 0): ErrorCode.none,
            TopicPartition("b", 0): ErrorCode.none,
            TopicPartition("a", 99): ErrorCode.unknown_topic_or_partition,
        }
