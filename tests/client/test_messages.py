"""Requests are what kio reads, answers are what kio writes, and whatever else comes is an AnswerError."""

import random
import struct
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_reader
from tests.kafka.door import written
from tests.kafka.entities import broken, random_entity

from logboom.base.ports import Bytes
from logboom.base.settings import join_address
from logboom.client.codes import ErrorCode, error_of
from logboom.client.messages import (
    INIT_PRODUCER_ID,
    METADATA,
    PRODUCE,
    AnswerError,
    Api,
    PartitionMetadata,
    ProducerId,
    StreamMetadata,
    TopicPartition,
    metadata_answer,
    metadata_request,
    produce_answer,
    produce_request,
    producer_id_answer,
    producer_id_request,
)

ANSWERS: dict[Api, Callable[[Bytes], object]] = {
    PRODUCE: produce_answer,
    METADATA: metadata_answer,
    INIT_PRODUCER_ID: producer_id_answer,
}
NAMES = st.text(max_size=20).filter(lambda name: name.encode("utf-8", "replace").decode() == name)


def read(api: Api, body: list[Bytes]) -> Any:
    """A request as kio has it, and nothing behind it."""
    sent = b"".join(body)
    request, size = entity_reader(load_request_schema(*api))(sent, 0)
    assert size == len(sent)
    return request


@given(
    st.dictionaries(
        st.builds(TopicPartition, NAMES, st.integers(0, 2**31 - 1)), st.lists(st.binary(max_size=9), max_size=3)
    )
)
def test_produce_of_many_partitions_in_parts(batches: dict[TopicPartition, list[bytes]]) -> None:
    request = read(PRODUCE, produce_request(batches, 1_234))
    assert (request.transactional_id, request.acks, request.timeout.total_seconds()) == (None, -1, 1.234)
    names = [topic.name for topic in request.topic_data]
    assert len(names) == len(set(names))
    assert {
        TopicPartition(topic.name, one.index): one.records
        for topic in request.topic_data
        for one in topic.partition_data
    } == {tp: b"".join(parts) for tp, parts in batches.items()}


def test_what_is_sent_is_not_copied() -> None:
    batch = bytearray(b"batch")
    assert any(part is batch for part in produce_request({TopicPartition("s", 0): (batch,)}))


@given(st.lists(NAMES, max_size=4))
def test_metadata_of_streams_that_may_be_made(streams: list[str]) -> None:
    request = read(METADATA, metadata_request(streams))
    assert [topic.name for topic in request.topics] == streams
    assert request.allow_auto_topic_creation


def test_a_producer_id_without_transactions() -> None:
    assert read(INIT_PRODUCER_ID, producer_id_request()).transactional_id is None


@pytest.mark.parametrize("seed", range(20))
def test_answers_are_read_as_kio_writes_them(seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(10):
        check_answers(chance)


def check_answers(chance: random.Random) -> None:
    produced = random_entity(load_response_schema(*PRODUCE), chance)
    assert produce_answer(written(produced)) == {
        TopicPartition(topic.name, one.index): one.error_code
        for topic in produced.responses
        for one in topic.partition_responses
    }
    places = random_entity(load_response_schema(*METADATA), chance)
    told = metadata_answer(written(places))
    assert told.brokers == {one.node_id: join_address(one.host, one.port) for one in places.brokers}
    assert told.streams == {
        topic.name: StreamMetadata(
            topic.error_code,
            {one.partition_index: PartitionMetadata(one.error_code, one.leader_id) for one in topic.partitions},
        )
        for topic in places.topics
    }
    producer = random_entity(load_response_schema(*INIT_PRODUCER_ID), chance)
    told_id = ProducerId(producer.producer_id, producer.producer_epoch)
    assert producer_id_answer(written(producer)) == (producer.error_code, told_id)


@pytest.mark.parametrize("api", ANSWERS, ids=str)
@settings(max_examples=300, deadline=None)
@given(body=st.binary(max_size=200))
@example(b"")
@example(b"\x7f\xff\xff\xff")
@example(b"\0\0\0\1\0")
@example(b"\xff\xff\xff\xfe" * 20)
@example(b"\0\0\0\1\xff\xfe" * 20)
def test_random_bytes_give_an_answer_or_an_answer_error(api: Api, body: bytes) -> None:
    """No other exception than AnswerError comes out of a reader, whatever the bytes are."""
    with suppress(AnswerError):
        ANSWERS[api](body)


@pytest.mark.parametrize("api", ANSWERS, ids=str)
@pytest.mark.parametrize("seed", range(10))
def test_an_answer_cut_short_is_an_error_and_a_broken_one_nothing_worse(api: Api, seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(10):
        whole = written(random_entity(load_response_schema(*api), chance))
        for end in range(len(whole)):
            with pytest.raises(AnswerError):
                ANSWERS[api](whole[:end])
        for _ in range(50):
            with suppress(AnswerError):
                ANSWERS[api](broken(whole, chance))


@pytest.mark.parametrize("count", [2**31 - 1, -2, 3])
def test_entries_that_an_answer_has_no_room_for_are_not_waited_for(count: int) -> None:
    claimed = struct.pack(">i", count) + b"\0" * 12
    for body in (claimed, struct.pack(">ih", 1, 0) + claimed):
        with pytest.raises(AnswerError, match=f"claims {count} entries"):
            produce_answer(body)


def test_unknown_error_codes_are_unknown_server_errors() -> None:
    assert error_of(-1) is error_of(32_767) is ErrorCode.unknown_server_error
    assert all(error_of(code.value) is code for code in ErrorCode)
