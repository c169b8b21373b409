"""Produce, Fetch and ListOffsets at every version advertised, against a broker, by kio's own reader and writer."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from kio.index import load_request_schema
from kio.schema.errors import ErrorCode
from tests.kafka.door import Client, Running, batch, running
from tests.support.simulated import run

from logboom.base.ports import Bytes
from logboom.broker.partition.refused_producers import BEGUN_S
from logboom.kafka.apis import fetch, list_offsets, produce
from logboom.kafka.wire.messages import make, milliseconds, nested
from logboom.records import iter_batches

NONE = ErrorCode.none


def versions(handler: Any) -> range:
    return range(handler.min_version, handler.max_version + 1)


def produce_request(
    version: int, stream: Any, parts: Mapping[int, Bytes | None], *, acks: int = -1, **fields: Any
) -> Any:
    """Produce to one stream."""
    cls = load_request_schema(0, version)
    topic, part = nested(cls, "topic_data"), nested(cls, "topic_data", "partition_data")
    data = tuple(make(part, index=index, records=records) for index, records in parts.items())
    name = {"topic_id": stream.id, "name": stream.name}
    return make(
        cls,
        **{
            "transactional_id": None,
            "acks": acks,
            "timeout": milliseconds(10_000),
            "topic_data": (make(topic, **name, partition_data=data),),
            **fields,
        },
    )


async def produced(client: Client, version: int, stream: Any, index: int, records: bytes | None, **fields: Any) -> Any:
    """Produce one batch; the partition's part of the reply."""
    client.send(0, version, produce_request(version, stream, {index: records}, **fields))
    reply = await client.reply()
    return reply.responses[0].partition_responses[0]


def fetch_request(version: int, stream: Any, offsets: dict[int, int], **fields: Any) -> Any:
    """Fetch from one stream."""
    cls = load_request_schema(1, version)
    topic, part = nested(cls, "topics"), nested(cls, "topics", "partitions")
    part_fields = {
        "partition_max_bytes": fields.pop("partition_max_bytes", 1 << 20),
        "current_leader_epoch": fields.pop("current_leader_epoch", -1),
        "last_fetched_epoch": -1,
        "log_start_offset": -1,
    }
    parts = tuple(make(part, partition=index, fetch_offset=offset, **part_fields) for index, offset in offsets.items())
    return make(
        cls,
        **{
            "replica_id": -1,
            "max_wait": milliseconds(0),
            "min_bytes": 1,
            "max_bytes": 1 << 20,
            "isolation_level": 0,
            "session_id": 0,
            "session_epoch": -1,
            "topics": (make(topic, topic=stream.name, topic_id=stream.id, partitions=parts),),
            "forgotten_topics_data": (),
            "rack_id": "",
            **fields,
        },
    )


async def fetched(client: Client, version: int, stream: Any, offsets: dict[int, int], **fields: Any) -> list[Any]:
    """Fetch; the partitions' parts of the reply."""
    client.send(1, version, fetch_request(version, stream, offsets, **fields))
    reply = await client.reply()
    return list(reply.responses[0].partitions)


def first_offsets(records: bytes) -> list[int]:
    return [header.base_offset for _, header in iter_batches(records)]


@pytest.mark.parametrize("version", versions(produce.HANDLER))
def test_produce(tmp_path: Path, version: int) -> None:
    async def body() -> None:
        async with running(tmp_path) as node, node.client() as client:
            stream = await node.broker.catalog.create_stream("s", partitions=2)
            for base in (0, 3):
                part = await produced(client, version, stream, 1, batch(b"a", b"b", b"c"))
                assert (part.index, part.error_code, part.base_offset) == (1, NONE, base)
                assert part.log_append_time is None
                if version >= 5:
                    assert part.log_start_offset == 0
                if version >= 8:
                    assert part.record_errors == ()
                    assert part.error_message is None
            assert (await produced(client, version, stream, 1, batch(b"a"), acks=1)).base_offset == 6
            missing = await produced(client, version, stream, 9, batch(b"a"))
            assert missing.error_code is ErrorCode.unknown_topic_or_partition
            if version >= 8:
                assert "partition 9" in missing.error_message

    run(body)


@pytest.mark.parametrize("version", versions(fetch.HANDLER))
def test_fetch(tmp_path: Path, version: int) -> None:
    async def body() -> None:
        async with running(tmp_path) as node, node.client() as client:
            stream = await node.broker.catalog.create_stream("s", partitions=3)
            sent = batch(b"a", b"b", b"c"), batch(b"d" * 200)
            for one in sent:
                await produced(client, 3, stream, 1, one)
            empty, full, missing = await fetched(client, version, stream, {0: 0, 1: 0, 7: 0})
            assert (empty.error_code, empty.high_watermark, empty.records) == (NONE, 0, b"")
            assert (full.error_code, full.high_watermark, full.last_stable_offset) == (NONE, 4, 4)
            assert first_offsets(full.records) == [0, 3]
            # All but the base offset and leader epoch is as it was sent.
            assert full.records[12 + 4 : len(sent[0])] == sent[0][12 + 4 :]
            assert full.records[len(sent[0]) + 16 :] == sent[1][16:]
            assert full.aborted_transactions is None
            if version >= 5:
                assert full.log_start_offset == 0
            if version >= 11:
                assert full.preferred_read_replica == -1
            assert missing.error_code is ErrorCode.unknown_topic_or_partition
            assert missing.records == b""
            (committed,) = await fetched(client, version, stream, {1: 1}, isolation_level=1)
            assert committed.aborted_transactions == ()
            assert first_offsets(committed.records) == [0, 3], "an offset inside a batch returns the whole batch"
            (beyond,) = await fetched(client, version, stream, {1: 5})
            assert beyond.error_code is ErrorCode.offset_out_of_range
            assert beyond.high_watermark == -1

    run(body)


@pytest.mark.parametrize("version", versions(fetch.HANDLER))
def test_fetch_refuses_followers_and_epochs_not_heard_of(tmp_path: Path, version: int) -> None:
    async def body() -> None:
        async with running(tmp_path) as node, node.client() as client:
            stream = await node.broker.catalog.create_stream("s")
            fields: dict[str, Any] = {"replica_id": 3}
            if version >= 15:
                state = nested(load_request_schema(1, version), "replica_state")
                fields["replica_state"] = make(state, replica_id=3, replica_epoch=1)
            client.send(1, version, fetch_request(version, stream, {0: 0}, **fields))
            reply = await client.reply()
            (part,) = reply.responses[0].partitions
            assert (part.error_code, len(part.records)) == (ErrorCode.cluster_authorization_failed, 0)
            if version >= 9:
                (old,) = await fetched(client, version, stream, {0: 0}, current_leader_epoch=0)
                assert old.error_code is NONE
                (new,) = await fetched(client, version, stream, {0: 0}, current_leader_epoch=9)
                assert new.error_code is ErrorCode.unknown_leader_epoch

    run(body)


async def looked_up(client: Client, version: int, name: str, timestamp: int, epoch: int = -1, index: int = 0) -> Any:
    cls = load_request_schema(2, version)
    part = make(
        nested(cls, "topics", "partitions"), partition_index=index, timestamp=timestamp, current_leader_epoch=epoch
    )
    reply = await client.ask(
        2,
        version,
        replica_id=-1,
        isolation_level=0,
        timeout=milliseconds(1000),
        topics=(make(nested(cls, "topics"), name=name, partitions=(part,)),),
    )
    return reply.topics[0].partitions[0]


@pytest.mark.parametrize("version", versions(list_offsets.HANDLER))
def test_list_offsets(tmp_path: Path, version: int) -> None:
    async def body() -> None:
        async with running(tmp_path) as node, node.client() as client:
            stream = await node.broker.catalog.create_stream("s")
            for time_ms in (1000, 3000, 2000):
                await produced(client, 3, stream, 0, batch(b"a", b"b", timestamp_ms=time_ms))

            async def found(timestamp: int) -> tuple[Any, int, int]:
                part = await looked_up(client, version, "s", timestamp)
                return part.error_code, part.offset, part.timestamp

            assert await found(-2) == (NONE, 0, -1)
            assert await found(-1) == (NONE, 6, -1)
            assert await found(1001) == (NONE, 2, 3000)
            assert await found(0) == (NONE, 0, 1000)
            assert await found(3001) == (NONE, -1, -1)
            special = {
                -3: (7, (NONE, 2, 3000)),
                -4: (8, (NONE, 0, -1)),
                -5: (9, (NONE, -1, -1)),
                -6: (11, (NONE, -1, -1)),
            }
            for timestamp, (since, answer) in special.items():
                unsupported = (ErrorCode.unsupported_version, -1, -1)
                assert await found(timestamp) == (answer if version >= since else unsupported)
            assert await found(-99) == (ErrorCode.unsupported_version, -1, -1)
            assert (await looked_up(client, version, "no", -1)).error_code is ErrorCode.unknown_topic_or_partition
            if version >= 4:
                assert (await looked_up(client, version, "s", -1)).leader_epoch == 0
                new = await looked_up(client, version, "s", -1, epoch=5)
                assert new.error_code is ErrorCode.unknown_leader_epoch

    run(body)


def test_append_time_is_told(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path) as node, node.client() as client:
            stream = await node.broker.catalog.create_stream("s", config={"message.timestamp.type": "LogAppendTime"})
            for version in (3, 9):
                part = await produced(client, version, stream, 0, batch(b"a"))
                assert part.log_append_time.timestamp() > 1_600_000_000
            (part,) = await fetched(client, 4, stream, {0: 0})
            stamped = [header for _, header in iter_batches(part.records)]
            assert all(header.uses_append_time and header.max_timestamp > 1_600_000_000_000 for header in stamped)

    run(body)


async def refused(node: Running, client: Client, records: bytes | None, **fields: Any) -> ErrorCode:
    stream = node.broker.catalog.stream("s")
    part = await produced(client, 8, stream, 0, records, **fields)
    assert part.base_offset == -1
    assert part.error_message
    code: ErrorCode = part.error_code
    return code


def test_bad_records_are_refused_by_name(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path) as node, node.client() as client:
            await node.broker.catalog.create_stream("s", config={"max.message.bytes": "2000"})
            good = batch(b"a", b"b")
            old = bytearray(good)
            old[16] = 1
            torn = bytearray(good)
            torn[-1] ^= 1
            counted = bytearray(good)
            assert await refused(node, client, bytes(old)) is ErrorCode.invalid_record
            assert await refused(node, client, bytes(torn)) is ErrorCode.corrupt_message
            assert await refused(node, client, bytes(counted[:-1])) is ErrorCode.invalid_record
            assert await refused(node, client, batch(b"x" * 3000)) is ErrorCode.message_too_large
            assert await refused(node, client, None) is ErrorCode.invalid_record
            assert await refused(node, client, b"") is ErrorCode.invalid_record
            assert await refused(node, client, good, acks=2) is ErrorCode.invalid_required_acks
            transactional = await refused(node, client, good, transactional_id="t")
            assert transactional is ErrorCode.transactional_id_authorization_failed
            internal = node.broker.catalog.stream("__consumer_offsets")
            assert (await produced(client, 8, internal, 0, good)).error_code is ErrorCode.invalid_topic_exception
            assert (await produced(client, 8, node.broker.catalog.stream("s"), 0, good)).base_offset == 0

    run(body)


def test_producers_are_idempotent(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path) as node, node.client() as client:
            stream = await node.broker.catalog.create_stream("s")
            ids = [
                await client.ask(22, version, transactional_id=None, transaction_timeout=milliseconds(0), **extra)
                for version in range(6)
                for extra in [{"producer_id": -1, "producer_epoch": -1} if version >= 3 else {}]
            ]
            assert len({reply.producer_id for reply in ids}) == 6
            assert {(reply.error_code, reply.producer_epoch) for reply in ids} == {(NONE, 0)}
            producer = {"producer_id": ids[0].producer_id, "producer_epoch": 0}
            first = batch(b"a", b"b", base_sequence=0, **producer)
            second = batch(b"c", base_sequence=2, **producer)
            gap = batch(b"e", base_sequence=9, **producer)
            for records, base in ((first, 0), (second, 2), (first, 0), (second, 2)):
                part = await produced(client, 9, stream, 0, records)
                assert (part.error_code, part.base_offset) == (NONE, base)
            assert (await produced(client, 9, stream, 0, gap)).error_code is ErrorCode.not_enough_replicas
            await asyncio.sleep(BEGUN_S)
            assert (await produced(client, 9, stream, 0, gap)).error_code is ErrorCode.out_of_order_sequence_number
            reply = await client.ask(22, 1, transactional_id="t", transaction_timeout=milliseconds(1000))
            assert reply.error_code is ErrorCode.transactional_id_authorization_failed
            assert reply.producer_id == -1

    run(body)


def test_first_batch_is_returned_whatever_the_limits(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path) as node, node.client() as client:
            stream = await node.broker.catalog.create_stream("s", partitions=3)
            size = len(batch(b"x" * 1000))
            for index in range(3):
                for _ in range(4):
                    await produced(client, 3, stream, index, batch(b"x" * 1000))
            everywhere = {0: 0, 1: 0, 2: 0}

            async def sizes(**limits: int) -> list[int]:
                return [len(part.records) // size for part in await fetched(client, 12, stream, everywhere, **limits)]

            assert await sizes(max_bytes=1) == [1, 0, 0]
            assert await sizes(max_bytes=0) == [1, 0, 0]
            assert await sizes(max_bytes=-5, partition_max_bytes=-5) == [1, 0, 0]
            assert await sizes(partition_max_bytes=1) == [1, 0, 0]
            assert await sizes(partition_max_bytes=2 * size) == [2, 2, 2]
            assert await sizes(max_bytes=5 * size) == [4, 1, 0]
            assert await sizes(max_bytes=1 << 20) == [4, 4, 4]
            (first,) = await fetched(client, 12, stream, {0: 3}, max_bytes=10)
            assert first_offsets(first.records) == [3]

    run(body)


def test_the_doors_own_limit_holds(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path, {"max_fetch_bytes": 3000}) as node, node.client() as client:
            stream = await node.broker.catalog.create_stream("s")
            for _ in range(4):
                await produced(client, 3, stream, 0, batch(b"x" * 1000))
            (part,) = await fetched(client, 12, stream, {0: 0}, max_bytes=1 << 30)
            assert first_offsets(part.records) == [0, 1]

    run(body)
