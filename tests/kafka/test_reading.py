"""Readers compiled from kio's schema read what kio's writers wrote, and nothing that strangers made up."""

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.index import load_request_schema
from kio.schema.fetch.v12.request import FetchPartition, FetchRequest, FetchTopic
from kio.schema.metadata.v9.request import MetadataRequest
from kio.schema.produce.v7.request import PartitionProduceData, ProduceRequest, TopicProduceData
from kio.static.primitive import Records
from tests.kafka.door import written
from tests.kafka.entities import broken, random_entity

from logboom.kafka.apis import load_handlers
from logboom.kafka.handlers.handler import Handler
from logboom.kafka.wire.messages import make, milliseconds
from logboom.kafka.wire.reading import MalformedError, compile_reader, read_uvarint, reader_for, skip_tags

HANDLERS = list(load_handlers().values())
SERVED = [(api.api_key, version) for api in HANDLERS for version in range(api.min_version, api.max_version + 1)]
BUDGET = 10_000

st.register_type_strategy(Records, st.binary(max_size=100))


def check_read_back(entity: Any) -> None:
    body = written(entity)
    frame = memoryview(bytearray(b"head" + body + b"tail"))
    read = reader_for(entity.__api_key__, entity.__version__)
    found, end, left = read(frame, 4, BUDGET)
    assert (found, end) == (entity, 4 + len(body))
    assert 0 <= left <= BUDGET


@pytest.mark.parametrize(("api_key", "version"), SERVED)
def test_reads_what_kio_writes(api_key: int, version: int) -> None:
    chance = random.Random(version)
    for _ in range(40):
        check_read_back(random_entity(load_request_schema(api_key, version), chance))


@pytest.mark.in_turn(3)
@pytest.mark.parametrize("handler", HANDLERS, ids=lambda handler: str(handler.api_key))
def test_reads_whatever_kio_writes(handler: Handler) -> None:
    @settings(max_examples=10, deadline=None, database=None)
    @given(entity=st.from_type(load_request_schema(handler.api_key, handler.max_version)))
    def check(entity: Any) -> None:
        check_read_back(entity)

    check()


@pytest.mark.parametrize(("api_key", "version"), SERVED)
def test_broken_bodies_give_an_entity_or_a_malformed_error(api_key: int, version: int) -> None:
    cls = load_request_schema(api_key, version)
    read = reader_for(api_key, version)
    chance = random.Random(version)
    for _ in range(100):
        body = broken(written(random_entity(cls, chance)), chance)
        try:
            found, _, _ = read(memoryview(bytearray(body)), 0, BUDGET)
        except MalformedError:
            continue
        assert type(found) is cls


def test_records_are_a_writable_view_of_the_frame() -> None:
    request = make(
        ProduceRequest,
        transactional_id=None,
        acks=-1,
        timeout=milliseconds(5),
        topic_data=(
            make(
                TopicProduceData,
                name="t",
                partition_data=(make(PartitionProduceData, index=0, records=b"abc"),),
            ),
        ),
    )
    frame = bytearray(written(request))
    found, _, _ = reader_for(0, 7)(memoryview(frame), 0, BUDGET)
    view = found.topic_data[0].partition_data[0].records
    assert isinstance(view, memoryview)
    view[0] = ord("z")
    assert b"zbc" in frame


def test_counts_are_held_against_the_bytes_left_and_the_budget() -> None:
    read = compile_reader(MetadataRequest)
    with pytest.raises(MalformedError, match="count"):
        read(memoryview(bytearray(b"\xff\xff\xff\xff\x07")), 0, BUDGET)
    topics = bytes([0xE9, 7]) + b"\x01\x00" * 1000 + b"\0\0\0\0"
    assert read(memoryview(bytearray(topics)), 0, 1000)[2] == 0
    with pytest.raises(MalformedError, match="too many elements"):
        read(memoryview(bytearray(topics)), 0, 999)


def test_strings_must_be_utf8() -> None:
    body = bytes([2, 3, 0xC3, 0x28, 0, 0, 0, 0, 0])
    with pytest.raises(MalformedError, match="UTF-8"):
        compile_reader(MetadataRequest)(memoryview(bytearray(body)), 0, BUDGET)


def test_unknown_tagged_fields_are_passed_over_and_count() -> None:
    body = bytes([0, 0, 0, 0, 2, 7, 1, 0xAA, 9, 0])
    entity, position, left = compile_reader(MetadataRequest)(memoryview(bytearray(body)), 0, BUDGET)
    assert left == BUDGET - 2
    assert entity.topics is None
    assert position == len(body)
    with pytest.raises(MalformedError, match="tagged"):
        compile_reader(MetadataRequest)(memoryview(bytearray(body)), 0, 1)
    with pytest.raises(MalformedError, match="longer"):
        skip_tags(memoryview(bytearray([1, 0, 200, 1])), 0, 4, BUDGET)


def test_known_tags_come_once_and_fill_their_length() -> None:
    part = make(FetchPartition, partition=0, fetch_offset=0, partition_max_bytes=1)
    request = make(
        FetchRequest,
        cluster_id="c",
        max_wait=milliseconds(1),
        min_bytes=1,
        topics=(make(FetchTopic, topic="t", partitions=(part,)),),
        forgotten_topics_data=(),
    )
    body = written(request)
    read = compile_reader(FetchRequest)
    assert body.endswith(bytes([1, 0, 2, 2]) + b"c")
    head = body[:-5]
    for tags in (
        bytes([1, 0, 3, 2]) + b"cc",  # longer than its string
        bytes([1, 0, 1, 2]) + b"c",  # shorter than its string
        bytes([2, 0, 2, 2]) + b"c" + bytes([0, 2, 2]) + b"c",  # twice
    ):
        with pytest.raises(MalformedError):
            read(memoryview(bytearray(head + tags)), 0, BUDGET)


def test_varints_have_at_most_32_bits() -> None:
    assert read_uvarint(memoryview(b"\xff\xff\xff\xff\x0f"), 0) == (2**32 - 1, 5)
    for raw in (b"\xff\xff\xff\xff\x1f", b"\xff\xff\xff\xff\xff\x01"):
        with pytest.raises(MalformedError):
            read_uvarint(memoryview(raw), 0)


def test_null_and_negative_lengths() -> None:
    produce = reader_for(0, 3)
    with pytest.raises(MalformedError, match="negative"):
        produce(memoryview(bytearray(b"\xff\xfe" + bytes(20))), 0, BUDGET)
    with pytest.raises(MalformedError, match="null"):
        produce(memoryview(bytearray(b"\xff\xff" + bytes(6) + b"\xff" * 4)), 0, BUDGET)
