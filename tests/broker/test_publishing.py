"""Messages that doors publish: batches made of them, duplicates recognised by their ids, terms decided in order."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.broker.messages import Message, outcomes, publish, publish_soon, records_of, values_of
from tests.broker.node import FaultyDisk, append, append_soon, running
from tests.broker.node import run as run_real
from tests.support.simulated import run

from logboom.base.errors import (
    DiskFullError,
    InvalidRecordError,
    InvalidStreamNameError,
    LogboomError,
    MessageTooLargeError,
    NotLeaderError,
    OverloadedError,
    WrongLastMessageIdError,
    WrongLastOffsetError,
)
from logboom.base.ids import Offset
from logboom.broker.broker import Broker
from logboom.broker.partition.replica import Partition
from logboom.metadata import PRODUCER_BYTE_RATE
from logboom.records import Codec, Record, build_batch, iter_batches


async def stream(broker: Broker, **config: str) -> Partition:
    settings: dict[str, str | None] = {name.replace("_", "."): value for name, value in config.items()}
    await broker.catalog.create_stream("s", config=settings)
    return broker.replicas.find("s", 0)


async def batches_of(partition: Partition) -> list[int]:
    """How many records each batch has."""
    data = await partition.reads.read(Offset(0), 1 << 24)
    return [header.records_count for _, header in iter_batches(data)]


def test_messages_that_come_together_are_one_batch_with_the_time_of_their_receipt(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path) as broker:
            partition = await stream(broker)
            await asyncio.sleep(5)
            received_ms = broker.clock.wall_ms()
            soon = publish_soon(broker, partition, Message(b"a"), Message(b"b", key=b"k"), Message(b"c"))
            assert outcomes(await soon) == [0, 1, 2]
            assert await batches_of(partition) == [3]
            records = await records_of(partition)
            assert [(one.key, one.value, one.timestamp_ms) for one in records] == [
                (None, b"a", received_ms),
                (b"k", b"b", received_ms),
                (None, b"c", received_ms),
            ]
            assert broker.counters.appended_records == 3

    run(body)


@pytest.mark.parametrize("acks", [-1, 0, 1])
def test_messages_and_batches_keep_the_order_in_which_they_came(tmp_path: Path, acks: int) -> None:
    async def body() -> None:
        async with running(tmp_path) as broker:
            partition = await stream(broker)
            first = publish_soon(broker, partition, Message(b"a"), acks=acks)
            second = append_soon(partition, build_batch([Record(Offset(0), 1, None, b"b")]), acks)
            third = publish_soon(broker, partition, Message(b"c"), Message(b"d"), acks=acks)
            assert outcomes(await first) == [0]
            assert (await second).base_offset == 1
            assert outcomes(await third) == [2, 3]
            await append(partition, b"e")
            assert await values_of(partition) == [b"a", b"b", b"c", b"d", b"e"]

    run(body)


def test_what_is_too_much_for_one_batch_is_cut_and_what_is_too_large_is_refused_alone(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path, max_batch_records=5) as broker:
            partition = await stream(broker, max_message_bytes="1000")
            large = [Message(bytes([n]) * 400) for n in range(5)]
            sent = publish_soon(broker, partition, *large, Message(b"x" * 1000), Message(b"y" * 920))
            assert outcomes(await sent) == [0, 1, 2, 3, 4, MessageTooLargeError, 5]
            assert await batches_of(partition) == [2, 2, 1, 1]
            assert "above the limit of 1000" in str((await sent).outcomes[5])
            assert await publish(broker, partition, *(Message(b"z") for _ in range(12))) == list(range(6, 18))
            assert await batches_of(partition) == [2, 2, 1, 1, 5, 5, 2]

    run(body)


def test_a_segment_that_is_full_ends_before_the_batch(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path) as broker:
            partition = await stream(broker, segment_bytes="16384")
            for turn in range(4):
                offsets = await publish(broker, partition, *(Message(b"x" * 1000) for _ in range(10)))
                assert offsets == list(range(turn * 10, turn * 10 + 10))
            assert len(partition.log.segments) > 1
            assert await publish(broker, partition, Message(b"x" * 20_000)) == [MessageTooLargeError]

    run(body)


def test_a_compacted_stream_refuses_a_message_without_a_key_and_takes_its_neighbours(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path) as broker:
            partition = await stream(broker, cleanup_policy="compact")
            messages = Message(b"a", key=b"k"), Message(b"b"), Message(b"c", key=b"")
            assert await publish(broker, partition, *messages) == [0, InvalidRecordError, 1]

    run(body)


@pytest.mark.parametrize(("codec", "stored"), [("producer", Codec.NONE), ("zstd", Codec.ZSTD)])
def test_batches_are_stored_as_the_stream_says(tmp_path: Path, codec: str, stored: Codec) -> None:
    async def body() -> None:
        async with running(tmp_path) as broker:
            partition = await stream(broker, compression_type=codec, message_timestamp_type="LogAppendTime")
            await publish(broker, partition, *(Message(b"same" * 50) for _ in range(20)))
            data = await partition.reads.read(Offset(0), 1 << 20)
            ((_, header),) = iter_batches(data)
            assert header.codec is stored
            assert header.uses_append_time
            assert await values_of(partition) == [b"same" * 50] * 20
            # What grows by the codec stays as it is.
            assert await publish(broker, partition, Message(b"")) == [20]

    run(body)


def test_internal_streams_quotas_and_back_pressure_refuse_at_once(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path) as broker:
            partition = await stream(broker)
            await broker.catalog.ensure_internal_stream("__own", partitions=1, config={})
            internal = broker.replicas.find("__own", 0)
            refused = publish_soon(broker, internal, Message(b"a"), Message(b"b"))
            assert refused.done()
            assert outcomes(await refused) == [InvalidStreamNameError, InvalidStreamNameError]
            await broker.catalog.change_quotas([((("client-id", "door"),), {PRODUCER_BYTE_RATE: 10.0})])
            sent = [publish_soon(broker, partition, Message(b"x" * 90), client_id="door") for _ in range(3)]
            results = [outcomes(await one) for one in sent]
            assert results == [[0], [OverloadedError], [OverloadedError]]
            assert outcomes(await publish_soon(broker, partition, Message(b"y"), client_id="other")) == [1]
            broker.flusher.limit_staged(1)
            first = publish_soon(broker, partition, Message(b"z" * 100))
            async with asyncio.timeout(10):
                while not broker.publishing.is_backpressured:
                    await asyncio.sleep(0)
            assert not first.done()
            assert outcomes(await publish_soon(broker, partition, Message(b"late"))) == [OverloadedError]
            assert outcomes(await first) == [2]
            assert not broker.publishing.is_backpressured

    run(body)


def test_the_same_id_again_is_a_duplicate_of_the_first_until_the_window_is_over(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path) as broker:
            partition = await stream(broker, logboom_nats_duplicate_window_ms="10000")
            first = Message(b"1", id=b"one")
            assert await publish(broker, partition, first, Message(b"-"), Message(b"2", id=b"two")) == [0, 1, 2]
            again = publish_soon(
                broker, partition, first, Message(b"3", id=b"three"), first, Message(b"3", id=b"three")
            )
            assert outcomes(await again) == [-1, 3, -1, -4]
            assert broker.counters.duplicate_messages == 3
            await asyncio.sleep(9)
            assert await publish(broker, partition, first) == [-1]
            await asyncio.sleep(12)
            assert await publish(broker, partition, first) == [4]
            assert await values_of(partition) == [b"1", b"-", b"2", b"3", b"1"]

    run(body)


def test_a_window_of_0_ignores_ids(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path) as broker:
            partition = await stream(broker, logboom_nats_duplicate_window_ms="0")
            one = Message(b"1", id=b"one")
            assert await publish(broker, partition, one, one) == [0, 1]
            assert await publish(broker, partition, one) == [2]
            follows = Message(b"2", id=b"two", last_id=b"one")
            assert await publish(broker, partition, follows, follows) == [3, WrongLastMessageIdError]

    run(body)


def test_the_window_has_so_many_records(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path) as broker:
            partition = await stream(broker, logboom_nats_duplicate_window_records="8")
            ids = [Message(b"m", id=b"%d" % n) for n in range(20)]
            assert await publish(broker, partition, *ids[:10]) == list(range(10))
            assert await publish(broker, partition, ids[2]) == [-3]
            assert await publish(broker, partition, ids[1]) == [10]
            assert await publish(broker, partition, Message(b"-"), Message(b"-")) == [11, 12]
            assert await publish(broker, partition, ids[5], ids[4]) == [-6, 13]

    run(body)


def test_messages_come_only_where_they_are_expected(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path) as broker:
            partition = await stream(broker)
            sent = publish_soon(
                broker,
                partition,
                Message(b"a", end=0, id=b"a"),
                Message(b"-", end=0),
                Message(b"b", end=1, last_id=b"a"),
                Message(b"-", last_id=b"a"),
                Message(b"a", end=0, id=b"a"),
                Message(b"c", end=2),
                Message(b"-", end=4),
            )
            wrong, misplaced = WrongLastOffsetError, WrongLastMessageIdError
            assert outcomes(await sent) == [0, wrong, 1, misplaced, -1, 2, wrong]
            assert str((await sent).outcomes[1]) == "The partition ends at offset 1, and the publisher expects 0."
            assert str((await sent).outcomes[3]) == "The last message has no id, and the publisher expects b'a'."
            racing = [publish_soon(broker, partition, Message(b"d", end=3)) for _ in range(2)]
            assert [outcomes(await one) for one in racing] == [[3], [wrong]]
            append_of_kafka = append_soon(partition, build_batch([Record(Offset(0), 1, None, b"e")]))
            behind = publish_soon(broker, partition, Message(b"f", end=4), Message(b"f", end=5))
            assert (await append_of_kafka).base_offset == 4
            assert outcomes(await behind) == [wrong, 5]
            assert await values_of(partition) == [b"a", b"b", b"c", b"d", b"e", b"f"]

    run(body)


def test_a_restart_and_batches_of_kafka_clients_lose_no_id(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path) as broker:
            partition = await stream(broker)
            assert await publish(broker, partition, Message(b"1", id=b"one"), Message(b"2", id=b"two")) == [0, 1]
            now_ms = broker.clock.wall_ms()
            headers = (("Nats-Msg-Id", b"three"),)
            for codec in (Codec.NONE, Codec.GZIP):
                records = [Record(Offset(0), now_ms, None, b"-"), Record(Offset(0), now_ms, None, b"3", headers)]
                await append_soon(partition, build_batch(records, codec=codec))
            assert await publish(broker, partition, Message(b"3", id=b"three")) == [-6]
        async with running(tmp_path) as broker:
            partition = broker.replicas.find("s", 0)
            soon = publish_soon(
                broker, partition, Message(b"2", id=b"two"), Message(b"4", id=b"four", last_id=b"three")
            )
            behind = publish_soon(broker, partition, Message(b"5"))
            assert outcomes(await soon) == [-2, 6]
            assert outcomes(await behind) == [7], "what comes while the log is read waits, and keeps its place"
            assert broker.counters.message_ids_read_bytes > 0
            assert await publish(broker, partition, Message(b"-", last_id=b"four")) == [WrongLastMessageIdError]

    run(body)


def test_the_last_message_is_known_however_old_it_is(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path) as broker:
            await publish(broker, await stream(broker), Message(b"-"), Message(b"1", id=b"one"))
        async with running(tmp_path) as broker:
            await asyncio.sleep(500)
            partition = broker.replicas.find("s", 0)
            follows = Message(b"2", id=b"two", last_id=b"one")
            assert await publish(broker, partition, Message(b"1", last_id=b"two"), follows) == [
                WrongLastMessageIdError,
                2,
            ]

    run(body)


def test_what_was_taken_back_for_want_of_room_is_no_first_copy(tmp_path: Path) -> None:
    async def body() -> None:
        disk = FaultyDisk(str(tmp_path))
        async with running(tmp_path, open_disk=lambda _: disk) as broker:
            partition = await stream(broker)
            assert await publish(broker, partition, Message(b"1", id=b"one")) == [0]
            disk.where, disk.write_errno = ".log", 28
            lost = publish_soon(broker, partition, Message(b"2", id=b"two"))
            again = publish_soon(broker, partition, Message(b"2", id=b"two"))
            assert outcomes(await lost) == [DiskFullError]
            assert outcomes(await again) == [DiskFullError], "its first copy is not in the log"
            disk.write_errno = None
            assert (await append(partition, b"-")).base_offset == 1, "at the offset that the lost one had"
            assert await publish(broker, partition, Message(b"2", id=b"two"), Message(b"1", id=b"one")) == [2, -1]
            assert await values_of(partition) == [b"1", b"-", b"2"]

    run_real(body)


def test_a_broker_that_stops_answers_what_waits(tmp_path: Path) -> None:
    async def body() -> None:
        waiting: Any = None
        async with running(tmp_path) as broker:
            partition = await stream(broker)
            await publish(broker, partition, Message(b"1", id=b"one"))
        async with running(tmp_path) as broker:
            partition = broker.replicas.find("s", 0)
            waiting = publish_soon(broker, partition, Message(b"2", id=b"two"))
        outcome = (await waiting).outcomes[0]
        assert outcome == 1 or isinstance(outcome, LogboomError)
        late = publish_soon(broker, partition, Message(b"3"))
        assert outcomes(await late) == [NotLeaderError]

    run(body)
