"""Conditional appends: decided by what lies right before them in the log, from memory or by reading."""

import asyncio
import random
from base64 import urlsafe_b64encode
from pathlib import Path

import pytest
from tests.broker.conditions import Put, put, puts
from tests.broker.node import FaultyDisk, append, append_soon, running
from tests.broker.node import run as run_real
from tests.support.simulated import run

from logboom.base.errors import (
    ConditionFailedError,
    DiskFullError,
    InvalidRecordError,
    MessageTooLargeError,
    NotLeaderError,
    StorageError,
)
from logboom.base.ids import Offset
from logboom.broker.broker import Broker
from logboom.broker.partition.conditions import CONDITIONAL_RECORDS_MAX
from logboom.broker.partition.replica import Partition
from logboom.records import Codec, Record, iter_batches, iter_records, read_header, recompress

ASK = "logboom-expected-offset"


async def table(broker: Broker, **config: str) -> Partition:
    """A partition whose offsets 0 to 2 are: `a`, `b`, and a tombstone of `a`."""
    await broker.catalog.create_stream("t", config={name.replace("_", "."): value for name, value in config.items()})
    partition = broker.replicas.find("t", 0)
    await append_soon(partition, puts([put(b"a", b"1"), put(b"b", b"2"), put(b"a", None)]))
    return partition


async def send(partition: Partition, *records: Put, codec: Codec = Codec.NONE) -> int:
    """Append one batch; its base offset."""
    return (await append_soon(partition, puts(records, codec=codec))).base_offset


async def refused(partition: Partition, *records: Put) -> InvalidRecordError:
    """Append one batch that is refused; nothing of it is written."""
    end = partition.log_end_offset
    with pytest.raises(InvalidRecordError) as refusal:
        await send(partition, *records)
    assert partition.log_end_offset == end
    return refusal.value


def remembers(partition: Partition) -> bool:
    return partition._conditions.follows


async def records_of(partition: Partition) -> list[Record]:
    records: list[Record] = []
    offset = partition.log_start_offset
    while data := await partition.reads.read(offset, 1 << 20):
        for position, header in iter_batches(data):
            records += iter_records(data, position, header, 1 << 26)
            offset = header.next_offset
    return records


@pytest.mark.parametrize("codec", Codec)
def test_of_two_writers_that_know_the_same_version_one_is_refused(tmp_path: Path, codec: Codec) -> None:
    async def body() -> None:
        async with running(tmp_path) as broker:
            partition = await table(broker)
            assert await send(partition, put(b"b", b"3", 1), codec=codec) == 3
            lost = await refused(partition, put(b"b", b"4", 1))
            assert str(lost) == (
                "The latest record of key 'b' is at offset 3, not at 1 as header logboom-expected-offset expects."
            )
            assert list(lost.record_indexes) == [0]
            one, other = (append_soon(partition, puts([put(b"b", value, 3)], codec=codec)) for value in (b"5", b"6"))
            assert (await one).base_offset == 4
            with pytest.raises(ConditionFailedError, match="at offset 4"):
                await other
            assert broker.counters.conditions_compared == 4
            assert broker.counters.conditions_failed == 2
            assert broker.counters.refused_appends == 2

    run(body)


def test_no_record_and_a_tombstone_are_expected_as_none(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path) as broker:
            partition = await table(broker)
            found = await refused(partition, put(b"b", b"3", -1))
            assert "at offset 1, where header logboom-expected-offset expects none" in str(found)
            assert await send(partition, put(b"a", b"3", -1)) == 3, "only a tombstone"
            assert await send(partition, put(b"c", b"3", -1, 4)) == 4, "nothing at all"
            assert await send(partition, put(b"c", None, 4)) == 5
            assert "is at offset 5 and deletes it, not at 4" in str(await refused(partition, put(b"c", b"4", 4)))
            assert await send(partition, put(b"c", b"4", 5)) == 6, "a tombstone by its offset"

    run(body)


def test_a_wrong_version_is_refused_though_nothing_was_written_since(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path) as broker:
            partition = await table(broker)
            await refused(partition, put(b"b", b"3", -1))  # has the broker read from the start
            assert "at offset 1, not at 2" in str(await refused(partition, put(b"b", b"3", 2, 3)))
            assert "at offset 1, where" in str(await refused(partition, put(b"b", b"3", -1, 3)))

    run(body)


def test_a_batch_is_taken_whole_or_not_at_all(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path) as broker:
            partition = await table(broker)
            fault = await refused(
                partition,
                put(b"c", b"x"),
                put(b"b", b"3", 1),
                put(b"a", b"3", 0),
                put(b"d", b"3", -1),
                put(b"d", b"4", -1),
            )
            assert list(fault.record_indexes) == [2, 4]
            first, second = fault.record_messages
            assert "key 'a' is at offset 2 and deletes it, not at 0" in first
            assert "An earlier record of the same batch has key 'd' too" in second
            assert str(fault) == first
            assert await send(partition, put(b"c", b"x"), put(b"b", b"3", 1), put(b"a", b"3", 2), put(b"b", b"4")) == 3
            assert await send(partition, put(b"b", b"5", 6)) == 7

    run(body)


def test_conditions_are_not_stored_and_all_else_is(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path) as broker:
            partition = await table(broker, compression_type="zstd", message_timestamp_type="LogAppendTime")
            stream_id = urlsafe_b64encode(partition.stream.id.bytes).rstrip(b"=")
            others = (("trace", b"7"), ("logboom-stream-id", stream_id), ("empty", b""))
            await send(
                partition, put(b"x", b"0"), put(b"b", b"3", 1, 3, *others), put(b"", b"", None, None, ("h", b""))
            )
            *_, first, record, last = await records_of(partition)
            assert (first.offset, record.offset, last.offset) == (3, 4, 5)
            assert (record.key, record.value, record.headers) == (b"b", b"3", (("trace", b"7"), ("empty", b"")))
            assert (last.key, last.value, last.headers) == (b"", b"", (("h", b""),))
            assert record.timestamp_ms > 1_000
            assert await send(partition, put(b"b", b"", 4, 6), put(b"b", b"", None, 3)) == 6
            assert (await records_of(partition))[-1].headers == (("logboom-read-to", b"3"),), "means nothing alone"

    run(body)


def test_a_retry_is_a_duplicate_and_does_not_lose_against_itself(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path) as broker:
            partition = await table(broker)
            batches = [puts([put(b"b", b"3", 1)], producer=(7, 0, 0)), puts([put(b"b", b"4", 3)], producer=(7, 0, 1))]
            appended = [await append_soon(partition, bytearray(batch)) for batch in batches]
            again = [await append_soon(partition, bytearray(batch)) for batch in batches]
            assert [one.base_offset for one in appended] == [one.base_offset for one in again] == [3, 4]
            assert broker.counters.duplicate_batches == 2
            with pytest.raises(ConditionFailedError):
                await append_soon(partition, puts([put(b"b", b"5", 3)], producer=(7, 0, 2)))
            taken = await append_soon(partition, puts([put(b"b", b"5", 4)], producer=(7, 0, 2)))
            assert taken.base_offset == 5, "what was refused has used no sequence"
        async with running(tmp_path) as broker:
            partition = broker.replicas.find("t", 0)
            assert (await append_soon(partition, bytearray(batches[1]))).base_offset == 4
            assert partition.log_end_offset == 6

    run(body)


@pytest.mark.parametrize(
    ("record", "sentence"),
    [
        ((b"b", b"", ((ASK, b"one"),)), "is 'one', and should be an offset, or -1 for no record"),
        ((b"b", b"", ((ASK, b""),)), "is '', and should be"),
        ((b"b", b"", ((ASK, b"-2"),)), "is '-2', and should be"),
        ((b"b", b"", ((ASK, b"1_0"),)), "is '1_0', and should be"),
        ((b"b", b"", ((ASK, b" 1"),)), "is ' 1', and should be"),
        ((b"b", b"", ((ASK, b"9" * 20),)), "should be"),
        ((b"b", b"", ((ASK, None),)), "logboom-expected-offset has no value"),
        ((b"b", b"", ((ASK, b"1"), (ASK, b"1"))), "logboom-expected-offset is there more than once"),
        ((b"b", b"", ((ASK, b"1"), ("logboom-read-to", b"-1"))), "logboom-read-to is '-1', and should be an offset"),
        ((None, b"", ((ASK, b"1"),)), "on a record without a key"),
        ((b"b", b"", ((ASK, b"3"),)), "logboom-expected-offset is beyond the end of the partition at offset 3"),
        ((b"b", b"", ((ASK, b"1"), ("logboom-read-to", b"4"))), "logboom-read-to is beyond the end"),
        (
            (b"b", b"", ((ASK, b"1"), ("logboom-stream-id", b"AAAAAAAAAAAAAAAAAAAAAQ"))),
            "names the stream 'AAAAAAAAAAAAAAAAAAAAAQ', and this one has the id",
        ),
        ((b"k\n" * 50, b"", ((ASK, b"1"),)), None),
    ],
)
def test_headers_that_cannot_be_right_are_refused_with_a_sentence(
    tmp_path: Path, record: tuple[bytes | None, bytes, tuple[tuple[str, bytes | None], ...]], sentence: str | None
) -> None:
    async def body() -> None:
        async with running(tmp_path) as broker:
            partition = await table(broker)
            if sentence is None:
                await send(partition, record)  # type: ignore[arg-type]
                shown = str(await refused(partition, record))  # type: ignore[arg-type]
                assert "key 'k\\nk\\n" in shown
                assert "... (100 bytes) is at offset 3" in shown
                return
            fault = await refused(partition, put(b"x", b""), record)  # type: ignore[arg-type]
            assert sentence in str(fault)
            assert list(fault.record_indexes) == [1]

    run(body)


def test_a_version_below_the_start_of_the_log_is_to_be_read_again(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path) as broker:
            partition = await table(broker)
            await partition.deletion.delete_records(2)
            for record in (put(b"b", b"3", 1), put(b"b", b"3", -1, 1)):
                assert "lies before the start of the partition at offset 2" in str(await refused(partition, record))
            assert await send(partition, put(b"b", b"3", -1)) == 3

    run(body)


def test_a_record_that_is_remembered_and_was_deleted_does_not_count(tmp_path: Path) -> None:
    """By DeleteRecords or retention: nobody can read it any more, so nobody could ever name it."""

    async def body() -> None:
        async with running(tmp_path) as broker:
            partition = await table(broker)
            assert await send(partition, put(b"b", b"3", 1)) == 3
            await partition.deletion.delete_records(-1)
            assert "lies before the start of the partition at offset 4" in str(
                await refused(partition, put(b"b", b"4", 3))
            )
            assert await send(partition, put(b"b", b"4", -1, 4)) == 4
            assert "at offset 4, where" in str(await refused(partition, put(b"b", b"5", -1)))

    run(body)


def test_after_a_restart_the_log_is_read_and_then_remembered(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path) as broker:
            await table(broker)
        async with running(tmp_path) as broker:
            partition = broker.replicas.find("t", 0)
            await refused(partition, put(b"b", b"3", -1))
            scanned = broker.counters.conditions_scanned_bytes
            assert scanned == partition.log.size_bytes
            for n in range(20):
                await send(partition, put(b"n%d" % n, b"", -1))
            await refused(partition, put(b"n3", b"", -1))
            await send(partition, put(b"b", b"", 1))
            assert broker.counters.conditions_scanned_bytes == scanned

    run(body)


def test_what_is_too_much_to_read_is_refused_and_goes_with_the_offset_read_to(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path, conditions={"scan_max_bytes": 1 << 20}) as broker:
            partition = await table(broker)
            for _ in range(3):
                await send(partition, put(b"large", bytes(500_000)))
            fault = await refused(partition, put(b"b", b"3", 1), put(b"c", b"", -1), put(b"large", b"", 4, 4))
            assert str(fault) == (
                "The records from offset 2 to 6 would have to be searched for the latest record of a key, and are "
                "more than 1MiB (broker.conditions.scan_max_bytes): read the partition to its end, and send the "
                "offset behind it in header logboom-read-to."
            )
            assert fault.limit == "broker.conditions.scan_max_bytes"
            assert list(fault.record_indexes) == [0, 1, 2]
            assert "at offset 5, not at 4" in fault.record_messages[2], "what can be decided is"
            assert await send(partition, put(b"b", b"3", 1, 6)) == 6
            # Compressed it is little to read, and still too much to look at.
            await send(partition, put(b"large", bytes(900_000)), codec=Codec.ZSTD)
            await send(partition, put(b"large", bytes(900_000)), codec=Codec.ZSTD)
        async with running(tmp_path, conditions={"scan_max_bytes": 1 << 20}) as broker:
            partition = broker.replicas.find("t", 0)
            assert "are more than 1MiB" in str(await refused(partition, put(b"b", b"4", 6)))
            assert await send(partition, put(b"b", b"4", 6, 9)) == 9

    run(body)


def test_more_keys_than_memory_may_hold_are_decided_by_reading(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path, conditions={"memory_bytes": 1 << 20}) as broker:
            partition = await table(broker)
            for first in range(0, 6_000, 1_000):
                await send(partition, *[put(b"k%d" % (first + n), b"") for n in range(1_000)])
            for _ in range(2):
                assert "at offset 1, where" in str(await refused(partition, put(b"b", b"", -1)))
                assert "at offset 3, where" in str(await refused(partition, put(b"k0", b"", -1)))
                fault = await refused(partition, put(b"k10", b"", -1), put(b"k", b"", -1))
                assert "at offset 13, where" in str(fault)
                assert list(fault.record_indexes) == [0], "k is a part of other keys and no key"
            scanned = broker.counters.conditions_scanned_bytes
            for n in range(6_000):
                if n % 1_000 == 0:
                    await send(
                        partition, *[put(b"m%d" % (n + i), b"", -1, partition.log_end_offset) for i in range(1_000)]
                    )
            assert broker.counters.conditions_scanned_bytes == scanned
            assert await send(partition, put(b"b", b"", 1)) == 12_003

    run(body)


def test_memory_has_its_bound_while_only_records_without_a_condition_come(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path, conditions={"memory_bytes": 1 << 20}) as broker:
            partition = await table(broker)
            await send(partition, put(b"b", b"3", 1))
            for first in range(0, 12_000, 500):  # more than a quarter of the memory has room for
                await send(partition, *[put(b"k%d" % (first + n), b"") for n in range(500)])
            held, window = broker.window_memory.held_bytes, partition._conditions._window
            assert window is not None
            assert 100_000 < window.size_bytes < 1 << 19, "a quarter of it, and the newest generation"
            assert 100_000 < held < 1 << 18, "and it is counted"
            scanned = broker.counters.conditions_scanned_bytes
            assert await send(partition, put(b"k11999", b"", 12_003)) == 12_004
            assert broker.counters.conditions_scanned_bytes == scanned
            assert await send(partition, put(b"b", b"4", 3)) == 12_005
            assert broker.counters.conditions_scanned_bytes > scanned, "what was forgotten is read again"

    run(body)


def test_a_conditional_batch_of_too_many_records_is_refused(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path) as broker:
            partition = await table(broker)
            many = [put(b"k%d" % n, b"", -1) for n in range(CONDITIONAL_RECORDS_MAX)]
            with pytest.raises(MessageTooLargeError, match="has 10001 records, above the limit of 10000: send fewer"):
                await send(partition, put(b"b", b"3", 1), *many)
            assert await send(partition, *many) == 3
            assert "key 'k1' too" in str(await refused(partition, put(b"k1", b""), put(b"k1", b"", 4)))

    run(body)


def test_a_batch_that_is_too_large_without_its_conditions_is_refused(tmp_path: Path) -> None:
    """Its client has compressed it harder than the broker does."""

    async def body() -> None:
        async with running(tmp_path) as broker:
            await broker.catalog.create_stream("t")
            partition = broker.replicas.find("t", 0)
            chance = random.Random(1)
            words = [bytes(chance.choices(b"abcdefghij", k=8)) for _ in range(2_000)]
            plain = puts([put(b"k%d" % n, b" ".join(chance.choices(words, k=60)), -1) for n in range(500)])
            header = read_header(plain)
            squeezed = recompress(plain, header, Codec.ZSTD, 19, 1 << 26)
            limit = str(len(squeezed))
            await broker.catalog.change_stream_config("t", {"max.message.bytes": limit})
            with pytest.raises(MessageTooLargeError, match="bytes compressed again without the headers") as refusal:
                await append_soon(partition, squeezed)
            assert refusal.value.limit == "max.message.bytes"
            assert partition.log_end_offset == 0

    run(body)


def test_appends_behind_a_condition_that_is_looked_up_keep_their_order(tmp_path: Path) -> None:
    disks: list[FaultyDisk] = []

    def open_disk(root: str) -> FaultyDisk:
        disks.append(FaultyDisk(root))
        return disks[-1]

    async def body() -> None:
        async with running(tmp_path) as broker:
            await table(broker)
        async with running(tmp_path, open_disk=open_disk) as broker:
            partition = broker.replicas.find("t", 0)
            disks[-1].hold_reads_of = "t-0"
            asked = append_soon(partition, puts([put(b"b", b"3", 1)], producer=(7, 0, 0)))
            behind = append_soon(partition, puts([put(b"c", b"3")], producer=(7, 0, 1)))
            while not disks[-1].reads_held:
                await asyncio.sleep(0.001)
            late = append_soon(partition, puts([put(b"b", b"4", 1)], producer=(7, 0, 2)))
            await asyncio.sleep(0)
            assert not any(one.done() for one in (asked, behind, late))
            disks[-1].release_reads()
            assert [(await asked).base_offset, (await behind).base_offset] == [3, 4]
            with pytest.raises(ConditionFailedError, match="at offset 3"):
                await late

    run_real(body)


def test_what_waits_to_be_decided_is_answered_when_the_partition_ends(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path) as broker:
            await table(broker)
        async with running(tmp_path) as broker:
            partition = broker.replicas.find("t", 0)
            asked = append_soon(partition, puts([put(b"b", b"3", 1)]))
            behind = append_soon(partition, puts([put(b"c", b"3")]))
            partition.drain()
            partition.close(NotLeaderError("gone"))
            for future in (asked, behind):
                with pytest.raises(NotLeaderError):
                    await future

    run(body)


def test_records_that_are_staged_count_and_those_taken_back_do_not(tmp_path: Path) -> None:
    disks: list[FaultyDisk] = []

    def open_disk(root: str) -> FaultyDisk:
        disks.append(FaultyDisk(root))
        return disks[-1]

    async def body() -> None:
        async with running(tmp_path, open_disk=open_disk) as broker:
            partition = await table(broker)
            staged = append_soon(partition, puts([put(b"b", b"3")]))
            asked = append_soon(partition, puts([put(b"b", b"4", 1)]))
            assert (await staged).base_offset == 3
            with pytest.raises(ConditionFailedError, match="at offset 3"):
                await asked
            disks[-1].fill("t-0")
            for records in ([put(b"b", b"5", 3)], [put(b"b", b"6")]):
                with pytest.raises(DiskFullError):
                    await append_soon(partition, puts(records))
            disks[-1].mend()
            assert await send(partition, put(b"b", b"7", 3)) == 4

    run_real(body)


def test_a_log_that_cannot_be_read_decides_nothing(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path) as broker:
            await table(broker)
            await append(broker.replicas.find("t", 0), b"no key")
        log = next((tmp_path / "streams" / "t-0").glob("*.log"))
        data = bytearray(log.read_bytes())
        data[100] ^= 1
        log.write_bytes(data)
        async with running(tmp_path) as broker:
            partition = broker.replicas.find("t", 0)
            with pytest.raises(StorageError, match="is damaged"):
                await send(partition, put(b"b", b"3", 1, 1))
            assert await send(partition, put(b"b", b"3", 1, 4)) == 4

    run_real(body)


def test_a_window_is_forgotten_where_no_condition_comes(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path) as broker:
            partition = await table(broker)
            await send(partition, put(b"b", b"3", 1))
            assert remembers(partition)
            await asyncio.sleep(150)
            await send(partition, put(b"c", b""))
            assert remembers(partition)
            await asyncio.sleep(151)
            await send(partition, put(b"c", b""))
            assert not remembers(partition)
            await refused(partition, put(b"c", b"", 4))
            assert await send(partition, put(b"c", b"", 5)) == 6
            await send(partition, *[put(b"n%d" % n, b"") for n in range(10_001)])
            assert not remembers(partition), "a batch of many records is not looked at on the loop"
            assert "at offset 10007, not at 6" in str(await refused(partition, put(b"n10000", b"", 6)))

    run(body)


def test_offsets_that_compaction_removed_on_both_sides_of_the_window_hide_nothing(tmp_path: Path) -> None:
    """They are covered by one batch, in the middle of which the window begins."""

    async def body() -> None:
        async with running(tmp_path, cleaner={"backoff_ms": 20}) as broker:
            partition = await table(broker, cleanup_policy="compact", segment_bytes="16384")
            for _ in range(10):
                await send(partition, put(b"c", bytes(1_000)))
            await send(partition, put(b"c", bytes(1_000), 12))  # from here on the window knows
            for _ in range(30):
                await send(partition, put(b"c", bytes(1_000)))
            while broker.counters.compacted_away_records < 20:
                await asyncio.sleep(0.05)
            gap = await partition.reads.read(Offset(12), 1)
            assert next(iter_batches(gap))[1].base_offset > 13, "nothing is left around the start of the window"
            assert "at offset 1, where" in str(await refused(partition, put(b"b", b"", -1)))
            assert await send(partition, put(b"d", b"", -1)) == 44

    run(body)


def test_a_stream_that_was_made_anew_takes_nothing_of_who_read_the_old_one(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path) as broker:
            old = (await table(broker)).stream.id
            await broker.catalog.delete_stream("t")
            partition = await table(broker)
            await partition.deletion.delete_records(0)
            await refused(partition, put(b"b", b"3", 5, 6))
            for _ in range(4):
                await send(partition, put(b"x", b""))
            stream_id = urlsafe_b64encode(old.bytes).rstrip(b"=")
            fault = await refused(partition, put(b"b", b"3", 5, 6, ("logboom-stream-id", stream_id)))
            assert "a stream of this name was deleted and recreated" in str(fault)

    run(body)
