"""Record batches that break a rule: each gets Kafka's own error, nothing of them is stored, and the log says why.

What Kafka answers was asked of a Kafka 4.1 with the same bytes: docs/bad-input.md.
"""

import gc
import sys
from pathlib import Path
from types import CoroutineType, FrameType
from typing import Any

import pytest
from kio.index import load_request_schema
from kio.schema.errors import ErrorCode
from tests.kafka.attack import (
    NOW_MS,
    Make,
    Raw,
    answered,
    bomb,
    deltas,
    good,
    legacy,
    peak_bytes,
    record,
    unharmed,
    values_in,
    with_body,
    with_head,
)
from tests.kafka.door import Client, Running, frame, running, written
from tests.kafka.test_hot_apis import fetched, produce_request
from tests.support.server import BrokerProcess
from tests.support.simulated import run

from logboom.base.errors import LogboomError
from logboom.base.units import MIB
from logboom.kafka.wire.messages import make, nested
from logboom.metadata import Stream
from logboom.records import Codec

HOUR_MS = 3_600_000
COMPRESSED = [codec for codec in Codec if codec is not Codec.NONE]


def changed(at: int) -> Make:
    """A good batch with one bit turned on the way."""

    def make() -> bytearray:
        data = good()
        data[at] ^= 1
        return data

    return make


CASES: dict[str, tuple[Make, ErrorCode, str]] = {
    "a bit of the body changed": (changed(-1), ErrorCode.corrupt_message, "CRC"),
    "a bit of the head changed": (changed(40), ErrorCode.corrupt_message, "CRC"),
    "the crc itself": (changed(18), ErrorCode.corrupt_message, "CRC"),
    "magic 0": (lambda: legacy(0), ErrorCode.invalid_record, "magic 2, not 0"),
    "magic 1": (lambda: legacy(1), ErrorCode.invalid_record, "magic 2, not 1"),
    "magic 3": (with_head(magic=3), ErrorCode.corrupt_message, "magic 2, not 3"),
    "no bytes": (lambda: b"", ErrorCode.invalid_record, "no records"),
    "null": (lambda: None, ErrorCode.invalid_record, "no records"),
    "less than a head": (lambda: b"abcdef", ErrorCode.invalid_record, "header of 61 bytes"),
    "cut": (lambda: good()[:-3], ErrorCode.invalid_record, "is cut after"),
    "two batches": (lambda: good() + good(), ErrorCode.invalid_record, "only one record batch"),
    "bytes behind": (lambda: good() + b"abc", ErrorCode.corrupt_message, "3 bytes follow"),
    "an impossible length": (with_head(batch_length=1), ErrorCode.corrupt_message, "1 bytes long"),
    "a negative length": (with_head(batch_length=-7), ErrorCode.corrupt_message, "-7 bytes long"),
    "a huge length": (with_head(batch_length=2**31 - 1), ErrorCode.message_too_large, "above the limit"),
    "too many records claimed": (with_head(records_count=3, last_offset_delta=2), ErrorCode.invalid_record, "3 rec"),
    "too few records claimed": (with_head(records_count=1, last_offset_delta=0), ErrorCode.invalid_record, "follow"),
    "count and last delta differ": (with_head(last_offset_delta=5), ErrorCode.invalid_record, "last offset delta 5"),
    "no records claimed": (with_head(records_count=0, last_offset_delta=-1), ErrorCode.invalid_record, "0 records"),
    "negative count": (with_head(records_count=-1), ErrorCode.invalid_record, "-1 records"),
    "two billion records": (
        with_head(records_count=2**31 - 1, last_offset_delta=2**31 - 2),
        ErrorCode.message_too_large,
        "above the limit of 1000000",
    ),
    "places 1, 0": (deltas(1, 0), ErrorCode.invalid_record, "offset delta 1"),
    "places 0, 0": (deltas(0, 0), ErrorCode.invalid_record, "offset delta 0"),
    "places 0, 2": (deltas(0, 2), ErrorCode.invalid_record, "offset delta 2"),
    "places 0, -1": (deltas(0, -1), ErrorCode.invalid_record, "offset delta -1"),
    "places 1, 0 under gzip": (deltas(1, 0, codec=Codec.GZIP), ErrorCode.invalid_record, "offset delta 1"),
    "a record cut": (lambda: with_body(record(0, b"long")[:-2], 1), ErrorCode.invalid_record, "past the end"),
    "a record's length is negative": (lambda: with_body(b"\x01" * 9, 1), ErrorCode.invalid_record, "negative length"),
    "a control batch": (lambda: good(control=True), ErrorCode.invalid_record, "control"),
    "a transactional batch": (
        lambda: good(transactional=True, producer_id=1, producer_epoch=0, base_sequence=0),
        ErrorCode.transactional_id_authorization_failed,
        "Transactions are not served",
    ),
    "marked with append time": (with_head(attributes=8), ErrorCode.invalid_timestamp, "append time"),
    "codec 5": (with_head(attributes=5), ErrorCode.unsupported_compression_type, "number 5"),
    "codec 7": (with_head(attributes=7), ErrorCode.unsupported_compression_type, "number 7"),
    **{
        f"no {codec.name.lower()} stream": (
            lambda codec=codec: with_body(b"", 1, codec, packed=b"\x17" * 30),  # type: ignore[misc]
            ErrorCode.invalid_record,
            f"no {codec.name.lower()} stream",
        )
        for codec in COMPRESSED
    },
    "a negative sequence": (
        lambda: good(producer_id=5, producer_epoch=0, base_sequence=-1),
        ErrorCode.invalid_record,
        "sequence -1",
    ),
    "an hour and a minute ahead": (
        lambda: good(timestamp_ms=NOW_MS + 3 * HOUR_MS),
        ErrorCode.invalid_timestamp,
        "too far ahead",
    ),
    "the end of time": (lambda: good(timestamp_ms=2**63 - 1), ErrorCode.invalid_timestamp, "too far ahead"),
    "a head that lies about its latest time": (
        with_head(max_timestamp=2**62),
        ErrorCode.invalid_timestamp,
        "too far ahead",
    ),
    "too large": (lambda: good(bytes(1_100_000)), ErrorCode.message_too_large, "limit of 1048588"),
}


def test_a_bad_batch_is_refused_by_name_and_nothing_of_it_is_stored(
    tmp_path: Path, warnings_logged: list[dict[str, Any]]
) -> None:
    """`refuse` asserts the error code, the message and that the log end has not moved, for each case."""

    async def body() -> None:
        async with unharmed(tmp_path, warnings_logged, max_partitions=200) as node, node.client() as client:
            for number, case in enumerate(CASES):
                stream = await node.broker.catalog.create_stream(f"s{number}", partitions=2)
                node.forget_warnings()
                try:
                    await refuse(node, client, stream, case, warnings_logged)
                except AssertionError as error:
                    raise AssertionError(f"{case}: {error}") from error

    run(body)


async def refuse(
    node: Running, client: Client, stream: Stream, case: str, warnings_logged: list[dict[str, Any]]
) -> None:
    make, code, why = CASES[case]
    warnings_logged.clear()
    refused_before = node.metrics.api(0).errors[code.name]
    part = await answered(client, stream, make())
    assert (part.error_code, part.base_offset) == (code, -1)
    assert why in part.error_message
    assert node.broker.replicas.find(stream.name, 0).log_end_offset == 0
    (line,) = [line for line in warnings_logged if line["event"] == "records refused"]
    assert (line["error"], line["stream"], line["partition"]) == (code.name, stream.name, 0)
    assert why in line["why"]
    # The connection goes on, and a good batch beside a bad one is taken.
    client.send(0, 9, produce_request(9, stream, {0: make(), 1: good()}))
    bad, right = (await client.reply()).responses[0].partition_responses
    assert (bad.error_code, right.error_code) == (code, ErrorCode.none)
    assert node.metrics.api(0).errors[code.name] == refused_before + 2
    assert len(warnings_logged) == 1, "one line of a kind, however often"


def test_base_offsets_of_clients_are_ignored(tmp_path: Path, warnings_logged: list[dict[str, Any]]) -> None:
    """Batches whose offsets overlap those in the log, or are none, lie where the log ends."""

    async def body() -> None:
        async with unharmed(tmp_path, warnings_logged) as node, node.client() as client:
            stream = await node.broker.catalog.create_stream("s")
            for number, offset in enumerate((0, 1, 0, -5, 2**63 - 1, -(2**63), 7)):
                part = await answered(client, stream, with_head(base_offset=offset, leader_epoch=77)())
                assert (part.error_code, part.base_offset) == (ErrorCode.none, 2 * number)
            (part,) = await fetched(client, 12, stream, {0: 0})
            assert values_in(part.records) == [b"x", b"y"] * 7

    run(body)


@pytest.mark.parametrize("stamp", ["59 minutes ahead", 1, 0, -1, -5, -(2**63)])
def test_a_time_long_ago_is_taken(tmp_path: Path, warnings_logged: list[dict[str, Any]], stamp: int | str) -> None:
    async def body() -> None:
        async with unharmed(tmp_path, warnings_logged) as node, node.client() as client:
            stream = await node.broker.catalog.create_stream("s")
            time_ms = stamp if isinstance(stamp, int) else NOW_MS + 59 * 60_000
            part = await answered(client, stream, good(timestamp_ms=time_ms))
            assert part.error_code is ErrorCode.none
            for wanted in (-3, 0, NOW_MS, 2**63 - 1):
                assert (await offset_of(client, wanted)).error_code is ErrorCode.none

    run(body)


async def offset_of(client: Client, timestamp: int) -> Any:
    cls = load_request_schema(2, 7)
    part = make(nested(cls, "topics", "partitions"), partition_index=0, current_leader_epoch=-1, timestamp=timestamp)
    topics = (make(nested(cls, "topics"), name="s", partitions=(part,)),)
    reply = await client.ask(2, 7, replica_id=-1, isolation_level=0, topics=topics)
    return reply.topics[0].partitions[0]


@pytest.mark.parametrize("setting", ["0", "60000"])
def test_a_stream_may_be_narrower_in_time(tmp_path: Path, warnings_logged: list[dict[str, Any]], setting: str) -> None:
    async def body() -> None:
        async with unharmed(tmp_path, warnings_logged) as node, node.client() as client:
            stream = await node.broker.catalog.create_stream("s", config={"message.timestamp.before.max.ms": setting})
            part = await answered(client, stream, good(timestamp_ms=NOW_MS - 10 * HOUR_MS))
            assert part.error_code is ErrorCode.invalid_timestamp
            assert "too long ago" in part.error_message
            assert node.broker.replicas.find("s", 0).log_end_offset == 0

    run(body)


@pytest.mark.parametrize("version", [3, 6])
def test_zstd_is_not_taken_from_clients_that_cannot_know_it(
    tmp_path: Path, warnings_logged: list[dict[str, Any]], version: int
) -> None:
    async def body() -> None:
        async with unharmed(tmp_path, warnings_logged) as node, node.client() as client:
            stream = await node.broker.catalog.create_stream("s")
            part = await answered(client, stream, good(codec=Codec.ZSTD), version)
            assert part.error_code is ErrorCode.unsupported_compression_type
            assert (await answered(client, stream, good(codec=Codec.ZSTD), 7)).error_code is ErrorCode.none

    run(body)


def test_the_batch_header_decides_the_latest_time(tmp_path: Path, warnings_logged: list[dict[str, Any]]) -> None:
    """A head that dates its records earlier than they are is believed, also by those who look for a time."""

    async def body() -> None:
        async with unharmed(tmp_path, warnings_logged) as node, node.client() as client:
            stream = await node.broker.catalog.create_stream("s")
            assert (await answered(client, stream, with_head(max_timestamp=5)())).error_code is ErrorCode.none
            partition = node.broker.replicas.find("s", 0)
            assert await partition.reads.offset_for_time(6) is None
            (part,) = await fetched(client, 12, stream, {0: 0})
            assert values_in(part.records) == [b"x", b"y"]

    run(body)


@pytest.mark.parametrize("transactional", [True, False])
def test_a_transaction_is_refused_whole(
    tmp_path: Path, warnings_logged: list[dict[str, Any]], *, transactional: bool
) -> None:
    async def body() -> None:
        async with unharmed(tmp_path, warnings_logged) as node, node.client() as client:
            stream = await node.broker.catalog.create_stream("s")
            data = good(transactional=transactional, producer_id=1, producer_epoch=0, base_sequence=0)
            part = await answered(client, stream, data, transactional_id="t")
            assert part.error_code is ErrorCode.transactional_id_authorization_failed
            assert node.broker.replicas.find("s", 0).log_end_offset == 0

    run(body)


@pytest.mark.parametrize("acks", [2, -2, 2**15 - 1])
def test_other_acks_are_refused(tmp_path: Path, warnings_logged: list[dict[str, Any]], acks: int) -> None:
    async def body() -> None:
        async with unharmed(tmp_path, warnings_logged) as node, node.client() as client:
            stream = await node.broker.catalog.create_stream("s")
            part = await answered(client, stream, good(), acks=acks)
            assert part.error_code is ErrorCode.invalid_required_acks
            assert node.broker.replicas.find("s", 0).log_end_offset == 0

    run(body)


@pytest.mark.parametrize("codec", COMPRESSED)
def test_a_decompression_bomb_costs_its_limit_and_no_more(tmp_path: Path, codec: Codec) -> None:
    """120 MiB of zeros in 4 KiB (zstd) to 6 MiB (snappy); what unpacks to the limit is taken.

    A process of its own, whose memory is measured.
    """
    data, right = bomb(codec, 120 * MIB), bomb(codec, 4 * MIB - 100)
    settings = ("--set", "broker.max_decompressed_bytes=4MiB")
    with BrokerProcess(tmp_path / "data", *settings) as broker, Raw(broker.kafka) as client:
        assert client.create("s", max_message_bytes=str(16 * MIB)) is ErrorCode.none
        for _ in range(3):
            part = client.produce("s", good())
            assert part.error_code is ErrorCode.none
        before = peak_bytes(broker.pid)
        for _ in range(5):
            part = client.produce("s", data)
            assert (part.error_code, part.base_offset) == (ErrorCode.message_too_large, -1)
            assert "decompress to more than 4194304 bytes" in part.error_message
        assert peak_bytes(broker.pid) - before < 50 * MIB + 5 * len(data)
        part = client.produce("s", right)
        assert (part.error_code, part.base_offset) == (ErrorCode.none, 6)
        assert broker.log_text().count("decompress to more than") == 1


def test_a_partition_that_is_not_there_takes_nothing(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path) as node, node.client() as client:
            stream = await node.broker.catalog.create_stream("s")
            for index in (1, -1, 2**31 - 1, -(2**31)):
                client.send(0, 9, produce_request(9, stream, {index: good()}))
                (part,) = (await client.reply()).responses[0].partition_responses
                assert (part.index, part.error_code) == (index, ErrorCode.unknown_topic_or_partition)

    run(body)


def frames_alive() -> set[int]:
    """Frames of what still runs or waits: the broker's background work has them, and gives them back itself."""
    frames = [one.cr_frame for one in gc.get_objects() if isinstance(one, CoroutineType)]
    for newest in sys._current_frames().values():
        above: FrameType | None = newest
        while above is not None:
            frames.append(above)
            above = above.f_back
    return {id(one) for one in frames}


def test_refused_requests_leave_nothing_to_the_garbage_collector(
    tmp_path: Path, warnings_logged: list[dict[str, Any]]
) -> None:
    """An error keeps the frames of its stack, and they the request's bytes: 28 MB each of these bombs, once."""

    async def body() -> None:
        async with unharmed(tmp_path, warnings_logged, max_decompressed_bytes=MIB) as node, node.client() as client:
            stream = await node.broker.catalog.create_stream("s")
            bombs = [bomb(codec, 2 * MIB) for codec in COMPRESSED]
            await answered(client, stream, good())
            gc.collect()
            gc.disable()
            before = {id(one) for one in gc.get_objects()}  # what other tests keep is theirs
            try:
                for data in (*bombs, good()[:-1], good(control=True), changed(-1)()):
                    assert (await answered(client, stream, data)).error_code is not ErrorCode.none
                client.send(0, 9, produce_request(9, stream, {9: good()}))
                await client.reply()
                (part,) = await fetched(client, 12, stream, {0: 1 << 40})
                assert part.error_code is ErrorCode.offset_out_of_range
                await fetched(client, 12, stream, {7: 0})
                assert (await offset_of(client, -77)).error_code is not ErrorCode.none
                async with node.client() as other:
                    other.writer.write(frame(0, 9, 1, written(produce_request(9, stream, {0: good()}))[:-9]))
                    assert await other.closed() == b""
                new = [one for one in gc.get_objects() if id(one) not in before]
                left = [one for one in new if isinstance(one, LogboomError | FrameType)]
                living = frames_alive()
                left = [one for one in left if id(one) not in living]
                ours = [one for one in left if not isinstance(one, FrameType) or "logboom" in one.f_code.co_filename]
            finally:
                gc.enable()
            assert ours == []

    run(body)


def test_the_log_calls_a_stream_by_its_name_where_the_request_has_its_id(
    tmp_path: Path, warnings_logged: list[dict[str, Any]]
) -> None:
    async def body() -> None:
        async with unharmed(tmp_path, warnings_logged) as node, node.client() as client:
            stream = await node.broker.catalog.create_stream("s")
            client.send(0, 13, produce_request(13, stream, {0: good(control=True)}))
            await client.reply()
            (line,) = warnings_logged
            assert line["stream"] == "s"

    run(body)
