"""Small rounds that are written on the loop: what they do on a disk that is quick, slow, full, failing or gone."""

import asyncio
import errno
import os
import random
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.broker.node import FaultyDisk, append, append_soon, batch, run, running, start, values_of
from tests.support.waiting import WAIT_S

from logboom.base.errors import DiskFullError, StorageError
from logboom.base.ids import Offset
from logboom.base.ports import Bytes
from logboom.broker.broker import Broker
from logboom.broker.disk import inline_commit
from logboom.broker.disk.inline_commit import (
    QUIET_MAX_MS,
    QUIET_MIN_MS,
    ROUND_BYTES_MAX,
    ROUND_LOGS_MAX,
    SLOW_SYNC_MS,
    SLOW_WRITE_MS,
    InlineCommit,
    InlinePolicy,
)
from logboom.broker.partition.replica import Partition
from logboom.host import OsDisk, async_syncs
from logboom.host.async_syncs import async_syncs_for
from logboom.host.disk import OsFile
from logboom.host.io_uring import IoUringQueue
from logboom.host.linux_aio import LinuxAioQueue
from logboom.host.sync_queue import SyncQueue
from logboom.host.workers import SystemWorkers

MS = 1_000_000


@pytest.fixture(autouse=True)
def syncs_beside_the_loop(tmp_path: Path) -> None:
    async def probe() -> bool:
        syncs = async_syncs_for(tmp_path)
        if syncs is not None:
            syncs.close()
        return syncs is not None

    if not asyncio.run(probe()):
        pytest.skip("no syncs beside the loop here")


def trusting(broker: Broker) -> InlineCommit:
    """The inline way of a broker, however slow this machine was just now."""
    inline = broker.flusher._inline_commit
    assert inline is not None
    inline._policy = InlinePolicy()
    return inline


def rounds(broker: Broker) -> tuple[int, int]:
    """Group commits on the loop, and all of them."""
    return broker.counters.inline_flush_rounds, broker.counters.flush_rounds


async def warm(broker: Broker, partitions: int = 1) -> None:
    """The first writes of a log open files and reserve room, which is the thread's."""
    for index in range(partitions):
        for _ in range(2):
            await append(broker.replicas.find("orders", index), b"warm")
    trusting(broker)


async def append_together(partitions: Sequence[Partition], value: bytes) -> None:
    """In one round."""
    await asyncio.gather(*[append_soon(partition, batch(value)) for partition in partitions])


def test_small_rounds_of_few_logs_need_no_thread_and_all_others_do(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path) as broker:
            await broker.catalog.create_stream("orders", partitions=2)
            first, second = (broker.replicas.find("orders", index) for index in range(2))
            await warm(broker, 2)
            before = rounds(broker)
            await append(first, b"small")
            trusting(broker)
            await append(second, b"small", acks=1)
            assert rounds(broker) == (before[0] + 2, before[1] + 2)
            trusting(broker)
            await append_together([first, second], b"x")
            assert rounds(broker) == (before[0] + 3, before[1] + 3)
            await append(first, bytes(ROUND_BYTES_MAX))
            assert broker.counters.inline_flush_rounds == before[0] + 3
            assert await values_of(second) == [b"warm", b"warm", b"small", b"x"]
            assert first.log.durable_end == first.high_watermark == 5
        async with running(tmp_path, inline_flush=False) as broker:
            first = broker.replicas.find("orders", 0)
            assert await values_of(first) == [b"warm", b"warm", b"small", b"x", bytes(ROUND_BYTES_MAX)]
            await append(first, b"by the thread")
            assert rounds(broker)[0] == 0

    run(body)


def test_many_logs_share_the_thread_and_its_helpers(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path) as broker:
            await broker.catalog.create_stream("orders", partitions=ROUND_LOGS_MAX + 1)
            partitions = [broker.replicas.find("orders", index) for index in range(ROUND_LOGS_MAX + 1)]
            await warm(broker, ROUND_LOGS_MAX + 1)
            before = rounds(broker)
            await append_together(partitions[:-1], b"few")
            assert rounds(broker) == (before[0] + 1, before[1] + 1)
            trusting(broker)
            await append_together(partitions, b"many")
            assert rounds(broker) == (before[0] + 1, before[1] + 2)

    run(body)


def test_what_one_log_of_a_round_leaves_to_the_thread_is_not_overtaken_for_ever(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path) as broker:
            await broker.catalog.create_stream("orders", partitions=2)
            first, cold = (broker.replicas.find("orders", index) for index in range(2))
            await warm(broker)
            before = rounds(broker)
            waits = append_soon(cold, batch(b"cold"))
            while not waits.done():
                await append(first, b"again and again")
                trusting(broker)
            assert await values_of(cold) == [b"cold"]
            appended = len(await values_of(first)) - 2
            assert appended <= 2, "the round after the first is the thread's, with what was left"
            assert rounds(broker)[0] > before[0]

    run(body)


def test_a_log_waits_for_all_syncs_of_its_round_and_nothing_is_written_meanwhile(tmp_path: Path) -> None:
    async def body() -> None:
        disk = FaultyDisk(str(tmp_path))
        async with running(tmp_path, open_disk=lambda _: disk) as broker:
            await broker.catalog.create_stream("orders", partitions=3)
            partitions = [broker.replicas.find("orders", index) for index in range(3)]
            await warm(broker, 3)
            inline = trusting(broker)
            disk.hold_syncs = True
            waiting = [append_soon(partition, batch(b"held")) for partition in partitions[:2]]
            async with asyncio.timeout(WAIT_S):
                while disk.held < 2:
                    await asyncio.sleep(0.001)
            waiting.append(append_soon(partitions[2], batch(b"later")))
            await asyncio.sleep(0)
            ends = [partition.log.written_end for partition in partitions]
            disk.release_one()
            async with asyncio.timeout(WAIT_S):
                while inline._under_way > 1:
                    await asyncio.sleep(0.001)
            assert ends == [partition.log.written_end for partition in partitions] == [3, 3, 2]
            assert not any(future.done() for future in waiting)
            disk.release()
            await asyncio.gather(*waiting)
            assert [partition.log.durable_end for partition in partitions] == [3, 3, 3]

    run(body)


def test_what_another_sync_of_a_round_made_safe_is_acked_where_one_fails(tmp_path: Path) -> None:
    async def body() -> None:
        disk = FaultyDisk(str(tmp_path))
        broker = await start(tmp_path, open_disk=lambda _: disk)
        await broker.catalog.create_stream("orders", partitions=2)
        first, second = (broker.replicas.find("orders", index) for index in range(2))
        await warm(broker, 2)
        disk.where, disk.sync_errno = "streams/orders-0", errno.EIO
        lost, kept = append_soon(first, batch(b"lost")), append_soon(second, batch(b"kept"))
        with pytest.raises(StorageError, match="closed for writing"):
            await lost
        assert (await kept).base_offset == 2
        with pytest.raises(StorageError):
            await append(second, b"refused: the log dir is offline")
        await broker.stop()
        async with running(tmp_path) as broker:
            assert await values_of(broker.replicas.find("orders", 1)) == [b"warm", b"warm", b"kept"]

    run(body)


@pytest.mark.parametrize("way", [IoUringQueue, LinuxAioQueue])
@pytest.mark.parametrize("when", ["at once", "late"])
def test_a_sync_that_fails_takes_the_log_dir_offline_though_another_one_of_its_round_hangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: type[SyncQueue], when: str
) -> None:
    """As many logs as a round may have: one of them fails, one hangs, the others are synced."""
    monkeypatch.setattr(async_syncs, "_WAYS", (way,))

    async def body() -> None:
        disk = FaultyDisk(str(tmp_path))
        broker = await start(tmp_path, open_disk=lambda _: disk)
        if broker.flusher._inline_commit is None:
            await broker.stop()
            pytest.skip(f"no {way.__name__} here")
        await broker.catalog.create_stream("orders", partitions=ROUND_LOGS_MAX)
        partitions = [broker.replicas.find("orders", index) for index in range(ROUND_LOGS_MAX)]
        await warm(broker, ROUND_LOGS_MAX)
        inline = trusting(broker)
        disk.fail_late = when == "late"
        disk.break_sync("streams/orders-0/")
        disk.hold_syncs, disk.hold_where = True, "streams/orders-7/"
        waiting = [append_soon(partition, batch(b"x")) for partition in partitions]
        async with asyncio.timeout(WAIT_S):
            while inline._under_way != (2 if disk.fail_late else 1):
                await asyncio.sleep(0.001)
            if disk.fail_late:
                while not inline._found_slow:
                    await asyncio.sleep(0.001)
                assert broker.flusher.failure is None
                disk.release_one()
            while broker.flusher.failure is None:
                await asyncio.sleep(0.001)
            assert "orders-0" in str(broker.flusher.failure)
            assert "closed for writing" in str(broker.health.unready_reason())
            answers = await asyncio.gather(*waiting, return_exceptions=True)
            assert all(isinstance(answer, StorageError) for answer in answers)
            assert inline.busy
            assert await values_of(partitions[7]) == [b"warm", b"warm"]
        disk.mend()
        disk.release()
        await broker.stop()
        async with running(tmp_path) as broker:
            for index in range(ROUND_LOGS_MAX):
                assert (await values_of(broker.replicas.find("orders", index)))[:2] == [b"warm", b"warm"]

    run(body)


def test_a_sync_that_hangs_stops_nothing_but_what_waits_for_it(tmp_path: Path) -> None:
    async def body() -> None:
        disk = FaultyDisk(str(tmp_path))
        async with running(tmp_path, open_disk=lambda _: disk, disk_hang_s=0.1) as broker:
            await broker.catalog.create_stream("orders", partitions=2)
            first, second = (broker.replicas.find("orders", index) for index in range(2))
            await warm(broker)
            disk.hold_syncs = True
            waiting = [append_soon(first, batch(b"waits"))]
            async with asyncio.timeout(WAIT_S):
                while not disk.held:
                    await asyncio.sleep(0.001)
                waiting += [append_soon(first, batch(b"too")), append_soon(second, batch(b"other"))]
                made = asyncio.ensure_future(broker.catalog.create_stream("more"))
                while broker.health.unready_reason() is None:
                    assert await values_of(first) == [b"warm", b"warm"]
                    await asyncio.sleep(0.01)
            assert str(broker.health.unready_reason()).startswith("the disk hangs")
            assert disk.held == 1, "nothing else is begun while it hangs"
            assert not made.done()
            assert not any(future.done() for future in waiting)
            disk.release()
            await asyncio.gather(*waiting, made)
            assert await values_of(first) == [b"warm", b"warm", b"waits", b"too"]
            assert broker.health.unready_reason() is None
            before = rounds(broker)
            await append(first, b"after")
            assert rounds(broker)[0] == before[0], "a disk that was slow is not written to on the loop again so soon"
            trusting(broker)
            await append(first, b"at last")
            assert rounds(broker)[0] == before[0] + 1

    run(body)


@pytest.mark.parametrize("waited", [True, False])
def test_a_write_is_slow_if_it_waited_and_not_if_there_was_no_processor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, waited: bool
) -> None:
    write = OsFile.write_nowait

    def slow(self: OsFile, offset: int, buffers: Sequence[Bytes]) -> bool:
        time.sleep(2 * SLOW_WRITE_MS / 1_000)
        return write(self, offset, buffers)

    async def body() -> None:
        async with running(tmp_path) as broker:
            await broker.catalog.create_stream("orders")
            partition = broker.replicas.find("orders", 0)
            await warm(broker)
            inline, before = trusting(broker), rounds(broker)
            with monkeypatch.context() as patched:
                patched.setattr(inline_commit, "_SLOW_SYNC_S", WAIT_S)  # of a machine that is busy with other tests
                patched.setattr(OsFile, "write_nowait", slow)
                if not waited:
                    patched.setattr(SystemWorkers, "waits", lambda _: 0)
                await append(partition, b"slowly")
            assert rounds(broker)[0] == before[0] + 1
            assert inline.takes([partition], 1) != waited

    run(body)


def test_a_sync_that_the_loop_hears_of_late_was_not_slow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SystemWorkers, "waits", lambda _: 0)

    def heard_late(done: Callable[[OSError | None], None]) -> None:
        time.sleep(2 * SLOW_SYNC_MS / 1_000)
        done(None)

    def begin_sync(self: OsFile, done: Callable[[OSError | None], None]) -> bool:
        self.sync()
        asyncio.get_running_loop().call_soon(heard_late, done)
        return True

    async def body() -> None:
        async with running(tmp_path) as broker:
            await broker.catalog.create_stream("orders")
            partition = broker.replicas.find("orders", 0)
            await warm(broker)
            inline = trusting(broker)
            with monkeypatch.context() as patched:
                patched.setattr(OsFile, "begin_sync", begin_sync)
                await append(partition, b"ended long ago")
            assert inline.takes([partition], 1)

    run(body)


def test_the_loop_is_told_of_what_has_ended_before_a_timer_that_is_due() -> None:
    """The order on which the test for slow syncs relies."""
    told: list[str] = []

    async def body() -> None:
        loop = asyncio.get_running_loop()
        eventfd = os.eventfd(0)

        def ended() -> None:
            loop.remove_reader(eventfd)
            told.append("ended")

        loop.add_reader(eventfd, ended)
        loop.call_later(0.001, told.append, "timer")
        os.eventfd_write(eventfd, 1)
        time.sleep(0.002)
        async with asyncio.timeout(WAIT_S):
            while len(told) < 2:
                await asyncio.sleep(0)
        os.close(eventfd)

    run(body)
    assert told == ["ended", "timer"]


@pytest.mark.parametrize("refusal", ["write", "sync"])
def test_what_is_refused_on_the_loop_is_done_by_the_thread(tmp_path: Path, refusal: str) -> None:
    async def body() -> None:
        disk = FaultyDisk(str(tmp_path))
        async with running(tmp_path, open_disk=lambda _: disk) as broker:
            await broker.catalog.create_stream("orders")
            partition = broker.replicas.find("orders", 0)
            await warm(broker)
            inline = trusting(broker)
            disk.refuse_nowait, disk.refuse_begin = refusal == "write", refusal == "sync"
            before = rounds(broker)
            await append(partition, b"a")
            assert not inline.takes([partition], 1)
            await append(partition, b"b")
            assert rounds(broker) == (before[0], before[1] + 2)
            assert partition.log.durable_end == 4
        async with running(tmp_path) as broker:
            assert await values_of(broker.replicas.find("orders", 0)) == [b"warm", b"warm", b"a", b"b"]

    run(body)


def test_a_write_error_on_the_loop_is_tried_again_by_the_thread(tmp_path: Path) -> None:
    async def body() -> None:
        disk = FaultyDisk(str(tmp_path))
        async with running(tmp_path, open_disk=lambda _: disk) as broker:
            await broker.catalog.create_stream("orders")
            partition = broker.replicas.find("orders", 0)
            await warm(broker)
            disk.fill("streams/orders")
            with pytest.raises(DiskFullError):
                await append(partition, b"lost")
            disk.mend()
            trusting(broker)
            assert (await append(partition, b"again")).base_offset == 2
            assert await values_of(partition) == [b"warm", b"warm", b"again"]

    run(body)


def test_a_sync_that_fails_beside_the_loop_is_final(tmp_path: Path) -> None:
    """Rule 10: never tried again, not by the thread either, and the whole log dir takes no more."""

    async def body() -> None:
        disk = FaultyDisk(str(tmp_path))
        broker = await start(tmp_path, open_disk=lambda _: disk)
        await broker.catalog.create_stream("orders", partitions=2)
        partition, other = (broker.replicas.find("orders", index) for index in range(2))
        await warm(broker)
        disk.where, disk.sync_errno = "streams/orders-0", errno.EIO
        before = disk.syncs
        with pytest.raises(StorageError, match="closed for writing"):
            await append(partition, b"lost")
        disk.mend()
        for one in (partition, other):
            with pytest.raises(StorageError):
                await append(one, b"refused")
        assert disk.syncs == before
        assert (partition.high_watermark, partition.log.durable_end) == (2, 2)
        assert await values_of(partition) == [b"warm", b"warm"]
        await broker.stop()
        async with running(tmp_path) as broker:
            partition = broker.replicas.find("orders", 0)
            assert (await values_of(partition))[:2] == [b"warm", b"warm"]
            await append(partition, b"again")

    run(body)


@pytest.mark.parametrize("seed", range(3))
def test_inline_rounds_thread_rounds_and_jobs_interleave_safely(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)

    async def body() -> None:
        disk = FaultyDisk(str(tmp_path))
        config = {"checkpoint_interval_s": 1, "background_sync_interval_s": 0.05}
        acked: list[list[bytes]] = [[], [], []]
        async with running(tmp_path, open_disk=lambda _: disk, **config) as broker:
            await broker.catalog.create_stream("orders", partitions=3, config={"segment.bytes": "60000"})
            partitions = [broker.replicas.find("orders", index) for index in range(3)]
            for _ in range(150):
                trusting(broker)
                disk.refuse_nowait = chance.random() < 0.1
                disk.refuse_begin = chance.random() < 0.1
                waiting = []
                for _ in range(chance.randint(1, 4)):
                    index = chance.choice([0, 0, 0, 1, 2])
                    value = chance.randbytes(chance.choice([5, 500, 5_000, 20_000]))
                    waiting.append(append_soon(partitions[index], batch(value)))
                    acked[index].append(value)
                    if chance.random() < 0.3:
                        await asyncio.sleep(0)
                if chance.random() < 0.2:
                    waiting.append(asyncio.ensure_future(broker.flusher.run(partitions[0].log.checkpoint)))  # type: ignore[arg-type]
                if chance.random() < 0.8:
                    await asyncio.gather(*waiting)
            await asyncio.gather(*waiting)
            assert [await values_of(partition) for partition in partitions] == acked
            assert 0 < rounds(broker)[0] < rounds(broker)[1]
            assert disk.begun_syncs >= rounds(broker)[0]
        async with running(tmp_path) as broker:
            assert [await values_of(broker.replicas.find("orders", index)) for index in range(3)] == acked

    run(body)


def test_a_batch_written_on_the_loop_is_found_by_offset_and_by_time(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path, open_disk=OsDisk) as broker:
            await broker.catalog.create_stream("orders")
            partition = broker.replicas.find("orders", 0)
            await warm(broker)
            for number in range(50):
                await append(partition, b"%d" % number, timestamp_ms=2_000 + number)
            assert rounds(broker)[0] > 0
            found = await partition.reads.offset_for_time(2_030)
            assert found is not None
            assert found.offset == 32
            assert (await values_of(partition, offset=Offset(40)))[0] == b"38"

    run(body)


# --- the policy -----------------------------------------------------------------------------------------------------

_TIMES = st.lists(st.tuples(st.booleans(), st.integers(0, 200 * MS), st.integers(0, 10_000 * MS)))


@given(_TIMES)
def test_a_slow_disk_turns_inline_writes_off_for_a_bounded_time(times: list[tuple[bool, int, int]]) -> None:
    policy, now_ns, not_before_ns = InlinePolicy(), 0, 0
    for waited, took_ns, idle_ns in times:
        now_ns += idle_ns
        if not policy.allows(now_ns):
            assert now_ns < not_before_ns + QUIET_MAX_MS * MS
            continue
        now_ns += took_ns
        policy.wrote(took_ns, now_ns, waited=waited)
        slow = waited and took_ns >= SLOW_WRITE_MS * MS
        assert policy.allows(now_ns) != slow
        if slow:
            not_before_ns = now_ns
            assert not policy.allows(now_ns + QUIET_MIN_MS * MS - 1)
            assert policy.allows(now_ns + QUIET_MAX_MS * MS)


def test_the_backoff_doubles_while_the_disk_is_slow_and_shrinks_while_it_is_quick() -> None:
    policy, now_ns, quiet_ms = InlinePolicy(), 0, []
    for _ in range(8):
        policy.wrote(SLOW_WRITE_MS * MS, now_ns, waited=True)
        began_ns = now_ns
        while not policy.allows(now_ns):
            now_ns += 500 * MS
        quiet_ms.append((now_ns - began_ns) // MS)
    assert quiet_ms == [1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000]
    for _ in range(QUIET_MAX_MS):
        policy.synced(SLOW_SYNC_MS * MS)
    policy.wrote(SLOW_WRITE_MS * MS, now_ns, waited=True)
    assert not policy.allows(now_ns + (QUIET_MAX_MS - 1) * MS), "what the loop hears of late proves nothing"
    for _ in range(QUIET_MAX_MS):
        policy.synced(MS)
    policy.wrote(SLOW_WRITE_MS * MS, now_ns, waited=True)
    assert policy.allows(now_ns + QUIET_MIN_MS * MS)
