"""What a broker says, and to whom, when its disk fails or something is lacking: /readyz, the log, clients."""

import asyncio
import errno
import shutil
from pathlib import Path
from typing import Any

import pytest
import structlog
from tests.broker.node import FaultyDisk, append, run, running, start, values_of
from tests.support.clock import ManualClock
from tests.support.waiting import WAIT_S

from logboom.base.errors import DiskFullError, NoHandlesError, RetriableStorageError, StorageError
from logboom.broker.disk.rejections import WriteRejections
from logboom.broker.metrics import Counters

pytestmark = pytest.mark.usefixtures("both_ways")


def test_a_sync_that_fails_while_a_partition_is_opened_takes_the_log_dir_offline(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path) as broker:
            for name in ("orders", "other"):
                await broker.catalog.create_stream(name)
                await append(broker.replicas.find(name, 0), b"a")
        # A tail that recovery has to sync.
        (tmp_path / "streams" / "orders-0" / "durable-end").unlink()
        disk = FaultyDisk(str(tmp_path))
        disk.break_sync("streams/orders-0")
        async with running(tmp_path, open_disk=lambda _: disk) as broker:
            assert broker.health.log_dir().failure is not None
            with pytest.raises(StorageError, match="cannot be opened"):
                broker.replicas.find("orders", 0)
            disk.mend()
            with pytest.raises(StorageError):
                await append(broker.replicas.find("other", 0), b"b")
            assert await values_of(broker.replicas.find("other", 0)) == [b"a"]
            assert "EIO" in str(broker.health.unready_reason())

    run(body)


@pytest.mark.parametrize("where", ["streams", "streams/more-0"])
def test_a_sync_that_fails_while_a_stream_is_made_takes_the_log_dir_offline(tmp_path: Path, where: str) -> None:
    async def body() -> None:
        disk = FaultyDisk(str(tmp_path))
        broker = await start(tmp_path, open_disk=lambda _: disk)
        await broker.catalog.create_stream("orders")
        disk.break_sync(where)
        change = broker.catalog.delete_stream("orders") if where == "streams" else broker.catalog.create_stream("more")
        with pytest.raises(StorageError):
            await change
        disk.mend()
        async with asyncio.timeout(WAIT_S):
            while broker.health.unready_reason() is None:
                await asyncio.sleep(0.01)
        with pytest.raises(StorageError):
            await broker.catalog.create_stream("again")
        await broker.stop()

    run(body)


def test_partitions_that_are_offline_are_named(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path) as broker:
            await broker.catalog.create_stream("orders", partitions=14)
            assert broker.health.unready_reason() is None
        for index in range(12):
            shutil.rmtree(tmp_path / "streams" / f"orders-{index}")
        async with running(tmp_path) as broker:
            told = str(broker.health.unready_reason())
            assert told.startswith("offline: orders-0, orders-1, orders-2, ")
            assert "orders-9 and 2 more; all others are served. orders-0 cannot be opened: " in told
            assert len(broker.replicas.failed) == 12
            await broker.catalog.delete_stream("orders")
            assert broker.health.unready_reason() is None

    run(body)


def test_a_full_disk_and_its_end_are_logged_with_a_rate_limit() -> None:
    clock = ManualClock(100.0)
    counters, log = Counters(), structlog.testing.CapturingLogger()
    says: Any = WriteRejections(counters, clock, structlog.wrap_logger(log, processors=[]))
    says.clear()
    for _ in range(50):
        says.record("orders-0", DiskFullError("no room"))
    says.record("orders-0", NoHandlesError("no handle"))
    clock.now_s += 9
    says.record("orders-1", DiskFullError("no room"))
    clock.now_s += 2
    says.record("orders-2", DiskFullError("no room"))
    for _ in range(3):
        says.clear()
    assert (counters.disk_full, counters.no_handles) == (52, 1)
    told = [(call.method_name, call.kwargs["event"], call.kwargs.get("refused")) for call in log.calls]
    assert told == [
        ("error", "the disk is full: writes are refused", 1),
        ("error", "file handles have run out: writes are refused", 50),
        ("error", "the disk is full: writes are refused", 2),
        ("info", "writes accepted again", None),
    ]


@pytest.mark.parametrize("lack", [errno.ENOSPC, errno.EMFILE])
def test_background_writes_without_room_block_nothing_and_log_one_line_a_round(tmp_path: Path, lack: int) -> None:
    async def body() -> None:
        disk = FaultyDisk(str(tmp_path))
        log: Any = structlog.testing.CapturingLogger()
        says = structlog.wrap_logger(log, processors=[])
        async with running(tmp_path, open_disk=lambda _: disk, checkpoint_interval_s=1, log=says) as broker:
            await broker.catalog.create_stream("orders", partitions=5)
            disk.where, disk.write_errno = "durable-end", lack
            for index in range(5):
                await append(broker.replicas.find("orders", index), b"a")
            async with asyncio.timeout(WAIT_S):
                while not said(log, "background write postponed"):
                    await asyncio.sleep(0.01)
            (line, *_) = said(log, "background write postponed")
            assert line["more"] > 0
            assert broker.health.log_dir().failure is None
            disk.mend()
            for index in range(5):
                await append(broker.replicas.find("orders", index), b"b")
                assert await values_of(broker.replicas.find("orders", index)) == [b"a", b"b"]
        async with running(tmp_path) as broker:
            for index in range(5):
                assert await values_of(broker.replicas.find("orders", index)) == [b"a", b"b"]

    run(body)


def said(log: Any, event: str) -> list[dict[str, Any]]:
    return [call.kwargs for call in log.calls if call.kwargs.get("event") == event]


def test_a_broker_stops_on_a_full_disk(tmp_path: Path) -> None:
    async def body() -> None:
        disk = FaultyDisk(str(tmp_path))
        log: Any = structlog.testing.CapturingLogger()
        broker = await start(tmp_path, open_disk=lambda _: disk, log=structlog.wrap_logger(log, processors=[]))
        await broker.catalog.create_stream("orders")
        await append(broker.replicas.find("orders", 0), b"a")
        disk.fill()
        await broker.stop()
        assert said(log, "the clean shutdown is not marked")
        assert said(log, "partition not closed cleanly")
        async with running(tmp_path) as broker:
            assert await values_of(broker.replicas.find("orders", 0)) == [b"a"]

    run(body)


def test_failed_creations_of_a_stream_leave_nothing_behind(tmp_path: Path) -> None:
    async def body() -> None:
        disk = FaultyDisk(str(tmp_path))
        async with running(tmp_path, open_disk=lambda _: disk) as broker:
            before = sorted((tmp_path / "streams").iterdir())
            for where in ("owner.json", ".log"):
                for lack in (errno.ENOSPC, errno.EMFILE):
                    disk.where, disk.open_errno = where, lack
                    for _ in range(2):
                        with pytest.raises(RetriableStorageError):
                            await broker.catalog.create_stream("orders", partitions=3)
                    disk.mend()
            async with asyncio.timeout(WAIT_S):
                while sorted((tmp_path / "streams").iterdir()) != before:
                    await asyncio.sleep(0.01)
            await broker.catalog.create_stream("orders", partitions=3)
            await append(broker.replicas.find("orders", 2), b"a")

    run(body)
