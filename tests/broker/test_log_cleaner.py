"""Key compaction by a broker in simulated time: what is compacted, within which limits, and what ends a run."""

import asyncio
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
import structlog
from tests.broker.node import FaultyDisk, append, append_soon, running
from tests.broker.node import run as run_real
from tests.support.simulated import run
from tests.support.waiting import WAIT_S

from logboom.base.errors import InvalidRecordError
from logboom.base.ids import Offset
from logboom.broker.broker import Broker
from logboom.broker.partition.replica import AppendResult, Partition
from logboom.host.helper import HelperProcess
from logboom.records import Record, build_batch, iter_batches, iter_records

COMPACT = {"cleanup.policy": "compact", "segment.bytes": "16384"}
SOON = {"backoff_ms": 100}
VALUE = bytes(1_000)


async def put(partition: Partition, *keys: bytes | None, value: bytes | None = VALUE) -> AppendResult:
    """Append one batch with a record for each key."""
    now_ms = partition._services.clock.wall_ms()
    return await append_soon(
        partition, build_batch([Record(Offset(n), now_ms, key, value) for n, key in enumerate(keys)])
    )


async def fill(partition: Partition, rounds: int, keys: int = 10) -> None:
    for number in range(rounds):
        await put(partition, *(b"key-%d" % key for key in range(keys)), value=b"%d " % number + VALUE)


async def records_of(partition: Partition) -> list[Record]:
    records, offset = list[Record](), partition.log_start_offset
    while data := await partition.reads.read(offset, 1 << 20):
        for position, header in iter_batches(data):
            records += iter_records(data, position, header, 1 << 26)
            offset = header.next_offset
    return records


async def until(condition: Callable[[], bool], within_s: float = WAIT_S) -> None:
    async with asyncio.timeout(within_s):
        while not condition():
            await asyncio.sleep(0.05)


def latest(records: list[Record]) -> dict[bytes | None, bytes | None]:
    return {record.key: record.value for record in records}


async def compacted_stream(broker: Broker, name: str = "table", **settings: str) -> Partition:
    await broker.catalog.create_stream(name, config={**COMPACT, **settings})
    return broker.replicas.find(name, 0)


def test_a_dirty_log_is_compacted_and_nothing_of_the_latest_is_lost(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path, cleaner=SOON) as broker:
            table = await compacted_stream(broker)
            await fill(table, 40)
            before = latest(await records_of(table))
            await until(lambda: broker.counters.compacted_away_records > 200)
            records = await records_of(table)
            assert latest(records) == before
            assert len(records) < 100
            assert table.log_end_offset == 400, "offsets never change"
            state = broker.cleaner.state
            assert state.uncleanable == {}
            assert 0 < state.last_recopy_ratio < 1
        async with running(tmp_path, cleaner=SOON) as broker:
            assert await records_of(broker.replicas.find("table", 0)) == records

    run(body)


def test_a_log_below_its_ratio_waits_until_its_lag_is_over(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path, cleaner=SOON) as broker:
            settings = {"min.cleanable.dirty.ratio": "1", "max.compaction.lag.ms": "60000"}
            table = await compacted_stream(broker, **settings)
            await fill(table, 10)
            await asyncio.sleep(30)
            assert broker.counters.compactions == 0
            assert broker.cleaner.state.max_dirty_ratio == 1
            await until(lambda: broker.counters.compacted_away_records > 0)

    run(body)


def test_a_young_record_is_not_compacted_away(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path, cleaner=SOON) as broker:
            table = await compacted_stream(broker, **{"min.compaction.lag.ms": "60000"})
            await fill(table, 10)
            await asyncio.sleep(50)
            assert len(await records_of(table)) == 100
            await until(lambda: broker.counters.compacted_away_records > 0)

    run(body)


def test_the_limit_of_io_holds(tmp_path: Path) -> None:
    async def body() -> None:
        limit = 65_536
        async with running(tmp_path, cleaner={**SOON, "max_io_bytes_per_s": limit}) as broker:
            table = await compacted_stream(broker)
            await fill(table, 60)
            began_s = asyncio.get_running_loop().time()
            await until(lambda: broker.counters.compactions > 0)
            took_s = asyncio.get_running_loop().time() - began_s
            moved = broker.counters.compacted_read_bytes + broker.counters.compacted_written_bytes
            assert moved > 500_000
            assert took_s > 0.8 * moved / limit

    run(body)


def test_a_broker_that_stops_does_not_wait_for_the_rate_limit(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path, cleaner={**SOON, "max_io_bytes_per_s": 65_536}) as broker:
            table = await compacted_stream(broker)
            await fill(table, 400)
            before = latest(await records_of(table))
            await asyncio.sleep(2)
            assert broker.counters.compactions == 0, "it is in the middle"
            began_s = asyncio.get_running_loop().time()
        assert asyncio.get_running_loop().time() - began_s < 5
        async with running(tmp_path, cleaner=SOON) as broker:
            table = broker.replicas.find("table", 0)
            assert latest(await records_of(table)) == before
            await until(lambda: broker.counters.compacted_away_records > 2_000)
            assert latest(await records_of(table)) == before

    run(body)


@pytest.mark.parametrize("change", ["delete", "policy"])
def test_a_stream_that_is_deleted_or_changed_is_let_go_of(tmp_path: Path, change: str) -> None:
    async def body() -> None:
        async with running(tmp_path, cleaner={**SOON, "max_io_bytes_per_s": 65_536}) as broker:
            table = await compacted_stream(broker)
            await fill(table, 400)
            other = await compacted_stream(broker, "other")
            await asyncio.sleep(2)
            if change == "delete":
                await broker.catalog.delete_stream("table")
                table = await compacted_stream(broker)
                assert await records_of(table) == []
            else:
                await broker.catalog.change_stream_config("table", {"cleanup.policy": "delete"})
            await fill(other, 10)
            await until(lambda: broker.counters.compactions > 0)
            assert len(await records_of(other)) < 100
            if change == "policy":
                assert len(await records_of(table)) == 4_000

    run(body)


def test_a_record_without_a_key_is_refused_and_says_which(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path) as broker:
            table = await compacted_stream(broker)
            with pytest.raises(InvalidRecordError, match="Record 1 of the batch has no key") as refused:
                await put(table, b"a", None, b"b")
            assert list(refused.value.record_indexes) == [1]
            await put(table, b"a", b"")
            assert table.log_end_offset == 2, "an empty key is a key"
            await broker.catalog.change_stream_config("table", {"cleanup.policy": "delete"})
            await put(table, None)
            assert table.log_end_offset == 3

    run(body)


def test_records_without_a_key_from_before_go_with_the_first_compaction(tmp_path: Path) -> None:
    async def body() -> None:
        told = structlog.testing.CapturingLogger()
        async with running(tmp_path, cleaner=SOON, log=structlog.wrap_logger(told)) as broker:
            await broker.catalog.create_stream("table", config={"segment.bytes": "16384"})
            table = broker.replicas.find("table", 0)
            for _ in range(30):
                await append(table, VALUE)
            await broker.catalog.change_stream_config("table", {"cleanup.policy": "compact"})
            await fill(table, 5)
            await until(lambda: broker.counters.compactions > 0)
            assert all(record.key is not None for record in await records_of(table))
            assert any("records without a key removed" in str(call) for call in told.calls)

    run(body)


def test_compact_alone_has_no_retention_and_both_together_have(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path, retention_check_interval_s=1, cleaner={"backoff_ms": 1_000_000}) as broker:
            kept = await compacted_stream(broker, **{"retention.bytes": "0"})
            short = await compacted_stream(
                broker, "short", **{"retention.bytes": "0", "cleanup.policy": "compact,delete"}
            )
            for partition in (kept, short):
                await fill(partition, 10)
            await asyncio.sleep(10)
            assert kept.log_start_offset == 0
            assert short.log_start_offset > 50

    run(body)


def test_a_log_for_which_there_is_no_room_holds_up_no_other(tmp_path: Path) -> None:
    async def body() -> None:
        disk = FaultyDisk(str(tmp_path))
        async with running(tmp_path, open_disk=lambda _: disk, cleaner=SOON) as broker:
            stuck, other = await compacted_stream(broker, "stuck"), await compacted_stream(broker, "other")
            disk.fill("cleaned")
            await fill(stuck, 30)
            await fill(other, 10)
            before = latest(await records_of(stuck))
            disk.where = "stuck-0/"
            await until(lambda: broker.counters.compacted_away_records > 0)
            assert len(await records_of(other)) < 100
            assert broker.cleaner.state.uncleanable == {}
            assert latest(await records_of(stuck)) == before
            disk.mend()
            await until(lambda: broker.counters.compacted_away_records > 200)
            assert latest(await records_of(stuck)) == before

    run_real(body)


def test_what_compaction_cannot_make_small_enough_is_told(tmp_path: Path) -> None:
    async def body() -> None:
        told = structlog.testing.CapturingLogger()
        async with running(tmp_path, cleaner=SOON, log=structlog.wrap_logger(told)) as broker:
            table = await compacted_stream(broker)
            await put(table, *(b"%d" % key for key in range(1_000)), value=None)
            await broker.catalog.change_stream_config("table", {"max.message.bytes": "1000"})
            for _ in range(40):
                await put(table, b"other", value=bytes(800))
            await until(lambda: broker.counters.compactions > 0)
            assert any("compacted batches above max.message.bytes" in str(call) for call in told.calls)
            assert sum(record.value is None for record in await records_of(table)) == 1_000

    run(body)


def test_a_damaged_log_is_compacted_once_the_damage_was_deleted(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path, cleaner={"backoff_ms": 1_000_000}) as broker:
            await fill(await compacted_stream(broker), 20)
        path = tmp_path / "streams" / "table-0" / f"{0:020d}.log"
        data = bytearray(path.read_bytes())
        data[500] ^= 1
        path.write_bytes(data)
        async with running(tmp_path, cleaner=SOON) as broker:
            table = broker.replicas.find("table", 0)
            await until(lambda: bool(broker.cleaner.state.uncleanable))
            assert "damaged" in broker.cleaner.state.sentence_of(table.stream.name)
            assert path.read_bytes()[: len(data)] == data
            assert broker.counters.compactions == 0
            await table.deletion.delete_records(10)
            await until(lambda: broker.counters.compactions > 0)
            assert not broker.cleaner.state.uncleanable
            assert len(latest(await records_of(table))) == 10

    run_real(body)


def test_a_stop_does_not_wait_for_a_process_that_does_not_answer(tmp_path: Path) -> None:
    """One that was stopped by a signal; it would stay for ever, with files of the broker's."""

    async def body() -> None:
        async with running(tmp_path, cleaner={"backoff_ms": 1_000_000}) as broker:
            await fill(await compacted_stream(broker, **{"segment.bytes": "1000000"}), 300)
        async with running(tmp_path, cleaner={**SOON, "max_io_bytes_per_s": 1 << 20}) as broker:
            process = broker.cleaner._process
            await until(lambda: process.runs)
            helper = process._helper
            assert isinstance(helper, HelperProcess)
            pid = helper._process.pid
            os.kill(pid, signal.SIGSTOP)
        assert not Path(f"/proc/{pid}").exists()
        async with running(tmp_path, cleaner=SOON) as broker:
            await until(lambda: broker.counters.compactions > 0)
            assert len(latest(await records_of(broker.replicas.find("table", 0)))) == 10

    run_real(body)


@pytest.mark.parametrize("attached", [True, False])
def test_messages_of_nats_stay_as_long_as_their_ids_are_to_be_known(tmp_path: Path, attached: bool) -> None:
    async def body() -> None:
        async with running(tmp_path, cleaner=SOON) as broker:
            subjects = {"logboom.nats.subjects": "orders.>"} if attached else {}
            await broker.catalog.create_stream("s", config={**COMPACT, **subjects})
            partition = broker.replicas.find("s", 0)
            await fill(partition, 20)
            before = len(await records_of(partition))
            if attached:
                await asyncio.sleep(100)
                assert len(await records_of(partition)) == before
            await until(lambda: broker.counters.compactions > 0)
            assert len(await records_of(partition)) < before

    run(body)
