"""One partition from append to read, on the real disk."""

import asyncio
import errno
from functools import partial
from pathlib import Path

import pytest
from tests.broker.node import FaultyDisk, append, append_soon, batch, run, running, start, values_of
from tests.support import simulated

from logboom.base.errors import (
    CorruptBatchError,
    DiskFullError,
    FencedLeaderEpochError,
    InvalidTimestampError,
    LogboomError,
    MessageTooLargeError,
    NoHandlesError,
    NotEnoughReplicasError,
    NotLeaderError,
    OffsetOutOfRangeError,
    OutOfOrderSequenceError,
    StorageError,
    UnknownLeaderEpochError,
    UnknownStreamError,
)
from logboom.base.ids import Epoch, Offset
from logboom.broker.partition.refused_producers import BEGUN_S
from logboom.broker.partition.replica import RunResult
from logboom.records import HEADER_BYTES, Codec, Record, build_batch, iter_batches, read_header


@pytest.mark.parametrize("acks", [-1, 1])
@pytest.mark.parametrize("flush", ["commit", "none"])
def test_what_is_acked_is_read_back_verbatim(tmp_path: Path, acks: int, flush: str) -> None:
    async def body() -> None:
        async with running(tmp_path) as broker:
            await broker.catalog.create_stream("orders", config={"logboom.flush": flush})
            partition = broker.replicas.find("orders", 0)
            first = await append(partition, b"a", b"b", acks=acks)
            second = await append(partition, b"c", acks=acks, codec=Codec.ZSTD)
            assert (first.base_offset, second.base_offset, second.log_append_time_ms) == (0, 2, -1)
            assert (partition.high_watermark, partition.log_end_offset) == (3, 3)
            assert await values_of(partition) == [b"a", b"b", b"c"]
            data = partition.reads.read_cached(Offset(1), 1)
            assert data is not None
            header = read_header(data)
            assert (header.base_offset, header.last_offset, header.leader_epoch) == (0, 1, partition.leader_epoch)
            assert len(data) == header.size_bytes

    run(body)


@pytest.mark.usefixtures("both_ways")
def test_acks_come_in_order_and_only_after_the_disk_has_the_bytes(tmp_path: Path) -> None:
    async def body() -> None:
        disks: list[FaultyDisk] = []

        def open_disk(root: str) -> FaultyDisk:
            disks.append(FaultyDisk(root))
            return disks[0]

        async with running(tmp_path, open_disk=open_disk) as broker:
            await broker.catalog.create_stream("orders")
            partition = broker.replicas.find("orders", 0)
            answered: list[tuple[int, int]] = []
            before = disks[0].syncs

            def done(number: int, result: object) -> None:
                assert not isinstance(result, LogboomError)
                assert disks[0].syncs > before
                assert partition.log.durable_end > number
                answered.append((number, partition.high_watermark))

            for number in range(100):
                partition.append(batch(b"x"), acks=-1, done=partial(done, number))
            assert answered == []
            await append(partition, b"last")
            assert [number for number, _ in answered] == list(range(100))
            assert all(hw > number for number, hw in answered)
            # One turn of the loop, one group commit (the last append may have had its own).
            assert disks[0].syncs - before <= 4

    run(body)


def test_acks_0_is_answered_before_the_flush_and_kept(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path) as broker:
            await broker.catalog.create_stream("orders")
            partition = broker.replicas.find("orders", 0)
            answered = append_soon(partition, batch(b"a"), acks=0)
            while not answered.done():
                await asyncio.sleep(0)
            assert partition.high_watermark <= partition.log_end_offset == 1
            await append(partition, b"b")
            assert await values_of(partition) == [b"a", b"b"]

    run(body)


def test_log_append_time_is_stamped(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path) as broker:
            await broker.catalog.create_stream("orders", config={"message.timestamp.type": "LogAppendTime"})
            partition = broker.replicas.find("orders", 0)
            result = await append(partition, b"a", timestamp_ms=5)
            assert result.log_append_time_ms > 5
            ((_, header),) = iter_batches(await partition.reads.read(Offset(0), 100))
            assert header.uses_append_time
            assert header.max_timestamp == result.log_append_time_ms
            found = await partition.reads.offset_for_time(6)
            assert found is not None
            assert found.offset == 0

    run(body)


def test_records_of_a_time_too_far_off_are_refused(tmp_path: Path) -> None:
    """KIP-937: with CreateTime an hour ahead at most, as Kafka since 4.0; any time ago unless a stream says less."""

    async def body() -> None:
        async with running(tmp_path) as broker:
            limits = {"message.timestamp.before.max.ms": "60000", "message.timestamp.after.max.ms": "600000"}
            now_ms = broker.clock.wall_ms()
            near, far = 59_000, 61_000
            await broker.catalog.create_stream("usual")
            await broker.catalog.create_stream("narrow", config=limits)
            await broker.catalog.create_stream("own", config={**limits, "message.timestamp.type": "LogAppendTime"})
            usual, narrow, own = (broker.replicas.find(name, 0) for name in ("usual", "narrow", "own"))
            for taken in (-1, -5, 0, now_ms, now_ms + 3_500_000):
                await append(usual, b"x", timestamp_ms=taken)
            for refused in (now_ms + 3_700_000, 2**63 - 1):
                with pytest.raises(InvalidTimestampError, match="too far ahead"):
                    await append(usual, b"x", timestamp_ms=refused)
            for taken in (-1, now_ms, now_ms - near, now_ms + 500_000):
                await append(narrow, b"x", timestamp_ms=taken)
            for refused, why in ((now_ms - far, "too long ago"), (0, "too long ago"), (now_ms + 700_000, "ahead")):
                with pytest.raises(InvalidTimestampError, match=why):
                    await append(narrow, b"x", timestamp_ms=refused)
            mixed = [Record(Offset(n), now_ms - ago, None, b"x", ()) for n, ago in enumerate((0, 0, far, 0))]
            for codec in Codec:
                with pytest.raises(InvalidTimestampError, match="too long ago"):
                    await append_soon(narrow, build_batch(mixed, codec=codec))
            assert (usual.log_end_offset, narrow.log_end_offset) == (5, 4)
            await append(own, b"x", timestamp_ms=2**62)

    run(body)


def test_bad_appends_change_nothing(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path) as broker:
            await broker.catalog.create_stream("orders", config={"max.message.bytes": "1000"})
            partition = broker.replicas.find("orders", 0)
            broken = batch(b"a")
            broken[HEADER_BYTES + 3] ^= 1
            with pytest.raises(CorruptBatchError):
                await append_soon(partition, broken)
            with pytest.raises(MessageTooLargeError):
                await append(partition, bytes(1000))
            assert (partition.log_end_offset, broker.counters.refused_appends) == (0, 2)

    run(body)


def test_a_repeated_batch_is_answered_with_its_first_offset(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path) as broker:
            await broker.catalog.create_stream("orders")
            partition = broker.replicas.find("orders", 0)
            first = append_soon(partition, batch(b"a", b"b", producer=(7, 0, 0)))
            again = append_soon(partition, batch(b"a", b"b", producer=(7, 0, 0)))
            await append(partition, b"c", producer=(7, 0, 2))
            assert (await first).base_offset == (await again).base_offset == 0
            late = await append(partition, b"a", b"b", producer=(7, 0, 0))
            assert late.base_offset == 0
            await asyncio.sleep(BEGUN_S)
            with pytest.raises(OutOfOrderSequenceError):
                await append(partition, b"z", producer=(7, 0, 9))
            assert await values_of(partition) == [b"a", b"b", b"c"]
            assert broker.counters.duplicate_batches == 2

    simulated.run(body)


def test_below_min_insync_replicas_acks_all_is_refused(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path, stream_defaults={"min_insync_replicas": 2}) as broker:
            await broker.catalog.create_stream("orders")
            partition = broker.replicas.find("orders", 0)
            with pytest.raises(NotEnoughReplicasError):
                await append(partition, b"a")
            assert (await append(partition, b"b", acks=1)).base_offset == 0
            assert partition.high_watermark == 0
            await broker.catalog.change_stream_config("orders", {"min.insync.replicas": "1"})
            assert await values_of(partition) == [b"b"]

    run(body)


def test_offsets_outside_the_log(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path) as broker:
            await broker.catalog.create_stream("orders")
            partition = broker.replicas.find("orders", 0)
            await append(partition, b"a")
            assert partition.reads.read_cached(Offset(1), 100) == b""
            for offset in (-1, 2):
                with pytest.raises(OffsetOutOfRangeError):
                    partition.reads.read_cached(Offset(offset), 100)

    run(body)


def test_leader_epochs_fence_and_grow_with_each_start(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path) as broker:
            await broker.catalog.create_stream("orders")
            await append(broker.replicas.find("orders", 0), b"a", b"b")
        async with running(tmp_path) as broker:
            partition = broker.replicas.find("orders", 0)
            assert partition.leader_epoch == 1
            await append(partition, b"c")
            partition.check_leader_epoch(-1)
            partition.check_leader_epoch(1)
            with pytest.raises(FencedLeaderEpochError):
                partition.check_leader_epoch(0)
            with pytest.raises(UnknownLeaderEpochError):
                partition.check_leader_epoch(2)
            assert partition.end_of_epoch(Epoch(0)) == (0, 2)
            assert partition.end_of_epoch(Epoch(1)) == (1, 3)

    run(body)


def test_watchers_are_called_when_something_was_committed(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path) as broker:
            await broker.catalog.create_stream("orders")
            partition = broker.replicas.find("orders", 0)
            seen: list[int] = []
            handle = partition.watch(lambda: seen.append(partition.high_watermark))
            await append(partition, b"a")
            await append(partition, b"b")
            partition.unwatch(handle)
            partition.unwatch(handle)
            await append(partition, b"c")
            assert seen == [1, 2]

    run(body)


def test_waiting_appends_reads_and_watchers_learn_of_a_deletion(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path) as broker:
            await broker.catalog.create_stream("orders")
            partition = broker.replicas.find("orders", 0)
            woken = asyncio.Event()
            partition.watch(woken.set)
            await broker.catalog.delete_stream("orders")
            assert woken.is_set()
            with pytest.raises(UnknownStreamError):
                await append(partition, b"a")
            with pytest.raises(UnknownStreamError):
                await partition.reads.read(Offset(0), 100)

    run(body)


@pytest.mark.usefixtures("both_ways")
def test_appends_refused_by_a_full_disk_are_undone_and_later_ones_succeed(tmp_path: Path) -> None:
    async def body() -> None:
        disk = FaultyDisk(str(tmp_path))
        async with running(tmp_path, open_disk=lambda _: disk) as broker:
            await broker.catalog.create_stream("orders")
            await broker.catalog.create_stream("other")
            partition = broker.replicas.find("orders", 0)
            await append(partition, b"a", producer=(7, 0, 0))
            disk.fill("streams/orders")
            lost = [append_soon(partition, batch(b"b", producer=(7, 0, n))) for n in (1, 2)]
            for future in lost:
                with pytest.raises(DiskFullError):
                    await future
            assert (partition.high_watermark, partition.log_end_offset, partition.offline) == (1, 1, False)
            assert await values_of(partition) == [b"a"]
            await append(broker.replicas.find("other", 0), b"elsewhere")
            disk.mend()
            # The producer's sequence went back with the log, so its retry is taken.
            assert (await append(partition, b"b", producer=(7, 0, 1))).base_offset == 1
            assert await values_of(partition) == [b"a", b"b"]
            assert broker.counters.disk_full >= 1

    run(body)


@pytest.mark.usefixtures("both_ways")
def test_a_failed_sync_takes_the_log_dir_offline_and_reads_go_on(tmp_path: Path) -> None:
    async def body() -> None:
        disk = FaultyDisk(str(tmp_path))
        broker = await start(tmp_path, open_disk=lambda _: disk)
        await broker.catalog.create_stream("orders")
        await broker.catalog.create_stream("other")
        orders, other = broker.replicas.find("orders", 0), broker.replicas.find("other", 0)
        await append(orders, b"a")
        await append(other, b"b")
        woken = asyncio.Event()
        other.watch(woken.set)
        disk.break_sync("streams/orders")
        with pytest.raises(StorageError):
            await append(orders, b"lost")
        disk.mend()
        await woken.wait()
        for partition in (orders, other):
            assert partition.offline
            with pytest.raises(StorageError):
                await append(partition, b"x")
        assert await values_of(orders) == [b"a"]
        assert await values_of(other) == [b"b"]
        with pytest.raises(StorageError):
            await broker.catalog.create_stream("more")
        assert broker.health.log_dir().failure is not None
        await broker.stop()

    run(body)
    run(lambda: _only_acked(tmp_path))


async def _only_acked(path: Path) -> None:
    """After a restart on a mended disk everything acked is there and the log takes writes again."""
    async with running(path) as broker:
        partition = broker.replicas.find("orders", 0)
        assert (await values_of(partition))[:1] == [b"a"]
        await append(partition, b"again")


def test_a_stop_completes_queued_appends_and_refuses_later_ones(tmp_path: Path) -> None:
    async def body() -> None:
        broker = await start(tmp_path)
        await broker.catalog.create_stream("orders")
        partition = broker.replicas.find("orders", 0)
        taken = [append_soon(partition, batch(b"%d" % n)) for n in range(20)]
        await broker.stop()
        assert [(await future).base_offset for future in taken] == list(range(20))
        with pytest.raises(NotLeaderError):
            await append(partition, b"late")

    run(body)


@pytest.mark.usefixtures("both_ways")
def test_appends_refused_for_want_of_handles_are_undone_and_later_ones_succeed(tmp_path: Path) -> None:
    async def body() -> None:
        disk = FaultyDisk(str(tmp_path))
        async with running(tmp_path, open_disk=lambda _: disk) as broker:
            await broker.catalog.create_stream("orders", config={"segment.bytes": "16384"})
            partition = broker.replicas.find("orders", 0)
            await append(partition, bytes(10000))
            disk.where, disk.open_errno = "streams/orders", errno.EMFILE
            with pytest.raises(NoHandlesError, match="opened at the moment"):
                await append(partition, bytes(10001))  # begins a segment
            assert broker.health.log_dir().failure is None
            assert (partition.offline, partition.high_watermark) == (False, 1)
            assert (broker.counters.no_handles, broker.counters.disk_full) == (1, 0)
            disk.mend()
            assert (await append(partition, bytes(10001))).base_offset == 1

    run(body)


@pytest.mark.usefixtures("both_ways")
def test_what_got_onto_the_disk_before_it_was_full_is_acked(tmp_path: Path) -> None:
    async def body() -> None:
        disk = FaultyDisk(str(tmp_path))
        async with running(tmp_path, open_disk=lambda _: disk) as broker:
            await broker.catalog.create_stream("orders", config={"segment.bytes": "16384"})
            partition = broker.replicas.find("orders", 0)
            with disk.standstill:  # so that all three go with one flush
                disk.where, disk.open_errno = "1.log", errno.ENOSPC
                futures = [append_soon(partition, batch(bytes(10000))) for _ in range(3)]
            assert (await futures[0]).base_offset == 0
            for future in futures[1:]:
                with pytest.raises(DiskFullError):
                    await future
            assert (partition.high_watermark, partition.log_end_offset) == (1, 1)
            disk.mend()
            assert (await append(partition, b"x")).base_offset == 1

    run(body)


def test_a_run_cut_by_a_full_disk_is_answered_batch_by_batch(tmp_path: Path) -> None:
    async def body() -> None:
        disk = FaultyDisk(str(tmp_path))
        async with running(tmp_path, open_disk=lambda _: disk) as broker:
            await broker.catalog.create_stream("orders", config={"segment.bytes": "16384"})
            partition = broker.replicas.find("orders", 0)
            told: asyncio.Future[RunResult] = asyncio.get_running_loop().create_future()
            disk.where, disk.open_errno = "1.log", errno.ENOSPC
            partition.append_run([batch(bytes(10_000)), batch(bytes(10_000))], acks=-1, done=told.set_result)
            first, second = (await told).outcomes
            assert first == 0
            assert isinstance(second, DiskFullError)
            assert (partition.high_watermark, partition.log_end_offset) == (1, 1)

    run(body)


@pytest.mark.uncompiled
def test_a_bug_while_staging_stops_one_partition(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def body() -> None:
        async with running(tmp_path) as broker:
            await broker.catalog.create_stream("orders", partitions=2)
            broken, other = broker.replicas.find("orders", 0), broker.replicas.find("orders", 1)

            def fault(*_: object, **__: object) -> None:
                raise ZeroDivisionError

            monkeypatch.setattr(broken.log, "append_run", fault)
            waiting = [append_soon(broken, batch(b"a"), acks=acks) for acks in (-1, 1, -1)]
            good = append_soon(other, batch(b"b"))
            for one in waiting:
                with pytest.raises(StorageError, match="an internal error"):
                    await one
            assert (await good).base_offset == 0
            assert broken.offline
            assert not other.offline

    run(body)


@pytest.mark.uncompiled
def test_a_callback_that_raises_costs_no_other_append_its_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither while a fault stops its partition nor after a flush: each append is told once, on all partitions."""

    async def body() -> None:
        async with running(tmp_path) as broker:
            await broker.catalog.create_stream("orders", partitions=3)
            broken, flushed, other = (broker.replicas.find("orders", index) for index in range(3))

            def fault(*_: object, **__: object) -> None:
                raise ZeroDivisionError

            def raises(result: object) -> None:
                told.append(result)
                raise LookupError("a fault of the caller")

            told: list[object] = []
            monkeypatch.setattr(broken.log, "append_run", fault)
            broken.append(batch(b"a"), acks=-1, done=raises)
            lost = append_soon(broken, batch(b"b"))
            for _ in range(2):
                flushed.append(batch(b"c"), acks=-1, done=raises)
            committed = append_soon(flushed, batch(b"d"))
            good = append_soon(other, batch(b"e"))
            with pytest.raises(StorageError, match="an internal error"):
                await lost
            assert (await committed).base_offset == 2, "the flush had committed it before a callback raised"
            assert (await good).base_offset == 0
            assert len(told) == 3
            assert [partition.offline for partition in (broken, flushed, other)] == [True, True, False]

    run(body)
