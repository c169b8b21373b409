"""Produce requests that match a template: the fast path gives the same answer as the general way, or steps aside."""

import asyncio
import random
import struct
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.index import load_request_schema
from kio.schema.errors import ErrorCode
from tests.kafka.door import Client, batch, frame, running, written
from tests.kafka.entities import broken, random_entity
from tests.kafka.test_hot_apis import produce_request
from tests.support.simulated import run

from logboom.base.ids import Offset
from logboom.broker.partition.refused_producers import BEGUN_S
from logboom.broker.partition.replica import AppendResult, Partition, RunResult
from logboom.kafka.apis.produce import HANDLER
from logboom.kafka.produce.appending import is_zstd
from logboom.kafka.produce.fast_path import ProduceTemplate, template_of
from logboom.kafka.produce.response import PartitionProduce, encode_response
from logboom.kafka.wire.messages import field_names, make, milliseconds, nested
from logboom.kafka.wire.reading import MalformedError, reader_for
from logboom.records import Codec

VERSIONS = range(HANDLER.min_version, HANDLER.max_version + 1)
BUDGET = 10_000
STREAM = SimpleNamespace(name="orders", id=UUID(int=7))


def bare(version: int, entity: Any, client_id: bytes | None = b"test") -> bytearray:
    """A request without its length, as the frame reader gives it."""
    return bytearray(frame(0, version, 5, written(entity), client_id)[4:])


def body_at(version: int, client_id: bytes | None = b"test") -> int:
    return 10 + len(client_id or b"") + (version >= 9)


def learned(version: int, frame_: bytearray, position: int) -> ProduceTemplate | None:
    request, end, _ = reader_for(0, version)(memoryview(frame_), position, BUDGET)
    context: Any = SimpleNamespace(api_version=version)
    return template_of(context, frame_, position, request) if end == len(frame_) else None


def said(version: int, frame_: bytearray, position: int) -> tuple[Any, ...] | None:
    """What the general reader finds in a request, where it is one batch for one partition."""
    try:
        request, end, _ = reader_for(0, version)(memoryview(frame_), position, BUDGET)
    except MalformedError:
        return None
    if end != len(frame_) or len(request.topic_data) != 1 or len(request.topic_data[0].partition_data) != 1:
        return None
    (topic,) = request.topic_data
    (data,) = topic.partition_data
    name = topic.topic_id if version >= 13 else topic.name
    records = None if data.records is None else bytes(data.records)
    if version < 7 and records and is_zstd(memoryview(records)):
        return None  # the general way refuses it
    return request.transactional_id, request.acks, request.timeout, name, data.index, records


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("client_id", [None, b"", b"test"])
@pytest.mark.parametrize("size", [1, 58, 59, 60, 122, 123, 124, 125, 126, 127, 128, 16_378, 16_383, 70_000])
def test_matching_requests_are_read_without_a_reader(version: int, client_id: bytes | None, size: int) -> None:
    first = bare(version, produce_request(version, STREAM, {3: b"first"}, acks=1), client_id)
    template = learned(version, first, body_at(version, client_id))
    assert template is not None
    records = bytes(n % 251 for n in range(size))
    payload = template.payload_of(bare(version, produce_request(version, STREAM, {3: records}, acks=1), client_id))
    assert payload is not None
    assert bytes(payload) == records
    assert not payload.readonly, "the broker patches it in place"


@pytest.mark.parametrize("version", VERSIONS)
def test_what_is_not_quite_alike_is_left_to_the_reader(version: int) -> None:
    template = learned(version, bare(version, produce_request(version, STREAM, {3: b"first"})), body_at(version))
    assert template is not None
    cls = load_request_schema(0, version)
    others = [
        produce_request(version, STREAM, {3: None}),
        produce_request(version, STREAM, {3: b""}),
        produce_request(version, STREAM, {4: b"first"}),
        produce_request(version, STREAM, {3: b"first"}, acks=1),
        produce_request(version, STREAM, {3: b"first"}, timeout=milliseconds(9)),
        produce_request(version, STREAM, {3: b"first", 4: b"first"}),
        produce_request(version, STREAM, {3: b"first"}, transactional_id="t"),
        *([produce_request(version, STREAM, {3: batch(b"x" * 90, codec=Codec.ZSTD)})] if version < 7 else []),
        make(cls, transactional_id=None, acks=-1, timeout=milliseconds(10_000), topic_data=()),
        produce_request(version, SimpleNamespace(name="others", id=UUID(int=8)), {3: b"first"}),
    ]
    for other in others:
        assert template.payload_of(bare(version, other)) is None
    alike = produce_request(version, STREAM, {3: b"first"})
    assert template.payload_of(bare(version, alike, b"tesd")) is None
    assert template.payload_of(bare(version, alike, None)) is None
    assert template.payload_of(bare(version, alike) + b"trailing") is None
    for end in range(len(bare(version, alike))):
        assert template.payload_of(bare(version, alike)[:end]) is None


@pytest.mark.parametrize("version", VERSIONS)
def test_random_requests_become_templates_only_where_they_qualify(version: int) -> None:
    chance = random.Random(version)
    cls = load_request_schema(0, version)
    for _ in range(300):
        frame_ = bare(version, random_entity(cls, chance))
        template = learned(version, frame_, body_at(version))
        found = said(version, frame_, body_at(version))
        if template is not None:
            assert found is not None
            assert template.payload_of(frame_) == found[-1]
        else:
            assert found is None or found[0] is not None or not found[-1] or found[1] not in (-1, 0, 1)


@settings(max_examples=300, deadline=None)
@given(data=st.data(), version=st.sampled_from(VERSIONS), seed=st.integers(0, 2**32))
def test_the_fast_way_gives_the_same_answer_or_steps_aside(data: st.DataObject, version: int, seed: int) -> None:
    chance = random.Random(seed)
    records = data.draw(st.binary(min_size=1, max_size=300))
    frame_ = bare(version, produce_request(version, STREAM, {3: records}))
    position = body_at(version)
    template = learned(version, frame_, position)
    expected = said(version, frame_, position)
    assert (template is None) == (expected is None)
    if template is None or expected is None:
        return  # it looks like zstd, in a version that has none
    for _ in range(40):
        # Changed, cut, stretched, blown up: behind the beginning mostly, for that is where it would go unnoticed.
        place = template.prefix_end if chance.random() < 0.7 else 0
        changed = frame_[:place] + broken(bytes(frame_[place:]), chance)
        payload = template.payload_of(changed)
        if payload is not None:
            assert said(version, changed, position) == (*expected[:-1], bytes(payload))


@pytest.mark.parametrize("version", VERSIONS)
def test_replies_are_those_of_the_general_way(version: int) -> None:
    template = learned(version, bare(version, produce_request(version, STREAM, {3: b"first"})), body_at(version))
    assert template is not None
    name: Any = STREAM.id if version >= 13 else STREAM.name
    result = RunResult((Offset(5), Offset(2**40)), 1_700_000_000_000, Offset(3))
    expected = b""
    for number, offset in zip((8, -9), result.outcomes, strict=True):
        assert not isinstance(offset, Exception)
        part = PartitionProduce(3, AppendResult(Offset(offset), 1_700_000_000_000, Offset(3)))
        payload = struct.pack(">i", number) + (b"\0" if version >= 9 else b"")
        payload += bytes(encode_response(version, [(name, [part])]).pieces[0])
        expected += struct.pack(">i", len(payload)) + payload
    assert template.response.encode((8, -9), result) == expected


@pytest.mark.uncompiled
def test_pipelined_requests_are_runs_and_each_has_its_own_answer(tmp_path: Path, monkeypatch: Any) -> None:
    runs: list[int] = []
    append_run = Partition.append_run

    def counted(self: Partition, batches: Any, **how: Any) -> None:
        runs.append(len(batches))
        append_run(self, batches, **how)

    monkeypatch.setattr(Partition, "append_run", counted)

    async def body() -> None:
        async with running(tmp_path) as node, node.client() as client:
            stream = await node.broker.catalog.create_stream("s", partitions=2)
            good, bad = batch(b"a", b"b"), bytearray(batch(b"c"))
            bad[-1] ^= 1
            expected: list[tuple[ErrorCode, int]] = []
            ends = [0, 0]
            for number in range(400):
                index = number // 7 % 2
                if number % 50 == 49:
                    client.send(0, 9, produce_request(9, stream, {index: bytes(bad)}))
                    expected.append((ErrorCode.corrupt_message, -1))
                else:
                    client.send(0, 9, produce_request(9, stream, {index: good}))
                    expected.append((ErrorCode.none, ends[index]))
                    ends[index] += 2
            for code, offset in expected:
                part = (await client.reply()).responses[0].partition_responses[0]
                assert (part.error_code, part.base_offset) == (code, offset)
            assert [node.broker.replicas.find("s", index).high_watermark for index in (0, 1)] == ends
            produce = node.metrics.api(0)
            assert (produce.requests, produce.replies, produce.errors["corrupt_message"]) == (400, 400, 8)
            assert (node.metrics.inflight_requests, node.metrics.inflight_bytes) == (0, 0)
            assert max(runs) == 7
            assert sum(runs) == 400
            assert node.broker.counters.refused_appends == 8
            assert node.broker.counters.appended_records == sum(ends)

    run(body)


def test_matching_requests_of_idempotent_producers(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path) as node, node.client() as client:
            stream = await node.broker.catalog.create_stream("s")
            await asyncio.sleep(BEGUN_S)
            sequences = [0, 1, 2, 1, 3, 9, 4]
            for sequence in sequences:
                records = batch(b"x", producer_id=5, producer_epoch=0, base_sequence=sequence)
                client.send(0, 7, produce_request(7, stream, {0: records}))
            parts = [(await client.reply()).responses[0].partition_responses[0] for _ in sequences]
            none, late = ErrorCode.none, ErrorCode.out_of_order_sequence_number
            assert [part.error_code for part in parts] == [none, none, none, none, none, late, none]
            assert [part.base_offset for part in parts] == [0, 1, 2, 1, 3, -1, 4]
            assert node.broker.counters.duplicate_batches == 1

    run(body)


def test_a_run_without_acks_tells_of_an_error_by_closing(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path) as node, node.client() as client:
            stream = await node.broker.catalog.create_stream("s")
            good = frame(0, 7, 1, written(produce_request(7, stream, {0: batch(b"x")}, acks=0)))
            client.writer.write(good * 20 + frame(18, 0, 2, b""))
            assert (await client.frame())[:4] == b"\0\0\0\x02"
            assert node.broker.replicas.find("s", 0).log_end_offset == 20
            bad = bytearray(good)
            bad[-1] ^= 1
            client.writer.write(good * 3 + bytes(bad) + good)
            assert await client.closed() == b""
            assert node.metrics.api(0).replies == 0

    run(body)


def test_a_stream_may_go_and_come_back_between_matching_requests(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path) as node, node.client() as client:
            for round_ in range(2):
                stream = await node.broker.catalog.create_stream("s")
                for number in range(3):
                    assert await one(client, stream) == (ErrorCode.none, number), round_
                await node.broker.catalog.delete_stream("s")
                assert await one(client, stream) == (ErrorCode.unknown_topic_or_partition, -1)

    async def one(client: Client, stream: Any) -> tuple[ErrorCode, int]:
        client.send(0, 9, produce_request(9, stream, {0: batch(b"x")}))
        part = (await client.reply()).responses[0].partition_responses[0]
        return part.error_code, part.base_offset

    run(body)


@pytest.mark.uncompiled
def test_runs_are_answered_in_the_clients_time(tmp_path: Path, monkeypatch: Any) -> None:
    async def body() -> None:
        async with running(tmp_path) as node, node.client() as client:
            stream = await node.broker.catalog.create_stream("s")
            held: list[Any] = []
            monkeypatch.setattr(Partition, "append_run", lambda self, run, *, acks, done: held.append((run, done)))
            for _ in range(3):
                client.send(0, 9, produce_request(9, stream, {0: batch(b"x")}, timeout=milliseconds(10)))
            for _ in range(3):
                part = (await client.reply()).responses[0].partition_responses[0]
                assert part.error_code is ErrorCode.request_timed_out
                assert part.error_message == "the records were not committed in time; they may still be"
            for batches, done in held:
                done(RunResult([Offset(0)] * len(batches), -1, Offset(0)))  # too late: nobody listens
            assert (await client.ask(18, 0)).error_code == 0
            assert node.metrics.api(0).errors["request_timed_out"] == 3

    run(body)


def test_many_kinds_on_one_connection(tmp_path: Path) -> None:
    """More partitions, names and client ids than are remembered: each request is answered as it deserves."""

    async def body() -> None:
        async with running(tmp_path) as node, node.client() as client:
            streams = [await node.broker.catalog.create_stream("s" * (n + 1), partitions=2) for n in range(8)]
            for round_ in range(4):
                for stream in streams:
                    for index in (0, 1):
                        client_id = b"c" * (round_ % 2) or None
                        request = written(produce_request(8, stream, {index: batch(b"x")}))
                        client.writer.write(frame(0, 8, round_, request, client_id))
            for round_ in range(4):
                for stream in streams:
                    for index in (0, 1):
                        name = stream.name.encode()
                        head = struct.pack(">iih", round_, 1, len(name)) + name
                        expected = head + struct.pack(">iihq", 1, index, 0, round_)
                        assert (await client.frame()).startswith(expected)

    run(body)


def test_a_kind_that_another_connection_has_learned(tmp_path: Path) -> None:
    """Requests of versions 3 to 8 differ in the version alone: what one client sent, another may send first thing."""

    async def body() -> None:
        async with running(tmp_path) as node, node.client() as first, node.client() as second:
            stream = await node.broker.catalog.create_stream("orders")
            for client, version in ((second, 7), (first, 8), (second, 8), (first, 7), (second, 7)):
                request = written(produce_request(version, stream, {0: batch(b"x")}))
                client.writer.write(frame(0, version, 9, request, b"same"))
                reply = await client.frame()
                assert reply.startswith(struct.pack(">iih", 9, 1, 6) + b"orders" + struct.pack(">iih", 1, 0, 0))

    run(body)


def test_failed_replies_are_those_of_the_general_way(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path) as node, node.client() as client:
            stream = await node.broker.catalog.create_stream("s", partitions=2)
            bad = bytearray(batch(b"x"))
            bad[-1] ^= 1
            for version in VERSIONS:
                body_ = bytes(written(produce_request(version, stream, {0: bytes(bad)})))
                client.writer.write(frame(0, version, 1, body_) * 2)
                # The first was read the general way, the second by comparison.
                assert await client.frame() == await client.frame()

    run(body)


def test_the_template_knows_the_whole_schema() -> None:
    """A field that a later version adds would be missing here."""
    for version in VERSIONS:
        cls = load_request_schema(0, version)
        assert field_names(cls) == {"transactional_id", "acks", "timeout", "topic_data"}
        topic = field_names(nested(cls, "topic_data"))
        assert topic == {"topic_id" if version >= 13 else "name", "partition_data"}
        assert field_names(nested(cls, "topic_data", "partition_data")) == {"index", "records"}


@pytest.mark.uncompiled
def test_waiting_runs_leave_with_their_connection(tmp_path: Path, monkeypatch: Any) -> None:
    async def body() -> None:
        async with running(tmp_path) as node:
            stream = await node.broker.catalog.create_stream("s")
            async with node.client() as client:
                client.send(0, 9, produce_request(9, stream, {0: batch(b"x")}))
                await client.reply()
                monkeypatch.setattr(Partition, "append_run", lambda self, run, *, acks, done: None)
                for _ in range(5):
                    client.send(0, 9, produce_request(9, stream, {0: batch(b"x")}))
                while node.metrics.inflight_requests < 5:
                    await asyncio.sleep(0.002)
            while node.metrics.connections:
                await asyncio.sleep(0.002)
            assert (node.metrics.inflight_requests, node.metrics.inflight_bytes) == (0, 0)

    run(body)
