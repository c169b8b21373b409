"""Syncs beside the loop, on the real kernel; where it refuses, that is found at the start."""

import asyncio
import ctypes
import errno
import os
import platform
from pathlib import Path

import pytest
import uvloop
from tests.support.waiting import WAIT_S

from logboom.base.ports import SyncFailedError
from logboom.host import OsDisk, ReadOnlyDisk, aio
from logboom.host.aio import AsyncSyncs, async_syncs_for


def available(root: Path) -> bool:
    async def probe() -> bool:
        disk = OsDisk(root)
        try:
            return disk.start_async_syncs()
        finally:
            disk.stop_async_syncs()

    return asyncio.run(probe())


@pytest.fixture
def disk(tmp_path: Path) -> OsDisk:
    if not available(tmp_path):
        pytest.skip("no AIO here")
    return OsDisk(tmp_path)


@pytest.mark.parametrize("factory", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_many_syncs_end_on_the_loop(disk: OsDisk, factory: object) -> None:
    async def body() -> None:
        assert disk.start_async_syncs()
        assert disk.start_async_syncs(), "once more changes nothing"
        files = [disk.open(f"f{n}", create=True) for n in range(8)]
        for _ in range(20):
            ended: list[asyncio.Future[OSError | None]] = []
            for file in files:
                assert file.write_nowait(0, [b"abc", memoryview(b"def")])
                future: asyncio.Future[OSError | None] = asyncio.get_running_loop().create_future()
                assert file.begin_sync(future.set_result)
                file.close()  # the kernel holds the file until its sync has ended
                ended.append(future)
            assert await asyncio.wait_for(asyncio.gather(*ended), WAIT_S) == [None] * len(files)
            files = [disk.open(f"f{n}") for n in range(8)]
        assert files[0].read(0, 10) == b"abcdef"
        disk.stop_async_syncs()
        disk.stop_async_syncs()
        assert not files[0].begin_sync(lambda error: None)

    with asyncio.Runner(loop_factory=factory) as runner:  # type: ignore[arg-type]
        runner.run(body())


def test_a_sync_that_cannot_be_begun_is_left_to_a_thread(disk: OsDisk) -> None:
    """At once, where the kernel cannot even begin it."""

    async def body() -> None:
        assert disk.start_async_syncs()
        syncs = disk._syncs()
        assert syncs is not None
        eventfd = os.eventfd(0)  # a file that has no fsync
        assert not syncs.submit(eventfd, lambda error: None)
        os.close(eventfd)
        file = disk.open("a", create=True)
        assert not file.begin_sync(lambda error: None), "what was refused once for good is not asked for again"
        disk.stop_async_syncs()

    asyncio.run(body())


def test_the_kernels_answer_is_the_error(disk: OsDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    async def body() -> None:
        assert disk.start_async_syncs()
        whole = aio._EVENT.unpack_from

        class Failing:
            size = aio._EVENT.size

            @staticmethod
            def unpack_from(buffer: object, at: int) -> tuple[int, int, int, int]:
                number, control, _, _ = whole(buffer, at)  # type: ignore[arg-type]
                return number, control, -errno.EIO, 0

        monkeypatch.setattr(aio, "_EVENT", Failing)
        future: asyncio.Future[OSError | None] = asyncio.get_running_loop().create_future()
        assert disk.open("a", create=True).begin_sync(future.set_result)
        error = await asyncio.wait_for(future, WAIT_S)
        assert isinstance(error, SyncFailedError)
        assert error.errno == errno.EIO
        disk.stop_async_syncs()

    asyncio.run(body())


def test_no_more_than_the_queue_holds_are_begun(disk: OsDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    async def body() -> None:
        monkeypatch.setattr(aio, "_QUEUE_MAX", 2)
        assert disk.start_async_syncs()
        ended: list[OSError | None] = []
        file = disk.open("a", create=True)
        assert [file.begin_sync(ended.append) for _ in range(4)] == [True, True, False, False]
        async with asyncio.timeout(WAIT_S):
            while len(ended) < 2:
                await asyncio.sleep(0.001)
        assert file.begin_sync(ended.append)
        disk.stop_async_syncs()  # with one under way: it is not waited for, and nothing is called any more

    asyncio.run(body())


@pytest.mark.parametrize("code", [errno.ENOSYS, errno.EPERM, errno.EAGAIN])
def test_a_kernel_that_refuses_is_found_at_the_start(disk: OsDisk, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    def refuse(self: AsyncSyncs, number: int, *arguments: object) -> int:
        raise OSError(code, os.strerror(code))

    async def body() -> None:
        before = len(os.listdir("/proc/self/fd"))
        monkeypatch.setattr(AsyncSyncs, "_call", refuse)
        assert not disk.start_async_syncs()
        assert len(os.listdir("/proc/self/fd")) == before
        assert not disk.open("a", create=True).begin_sync(lambda error: None)

    asyncio.run(body())


def test_a_loop_that_watches_no_descriptors_has_none(disk: OsDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise NotImplementedError

    async def body() -> None:
        before = len(os.listdir("/proc/self/fd"))
        monkeypatch.setattr(asyncio.get_running_loop(), "add_reader", refuse)
        assert not disk.start_async_syncs()
        assert len(os.listdir("/proc/self/fd")) == before

    asyncio.run(body())


def test_other_machines_and_file_systems_have_none(disk: OsDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    async def body() -> None:
        assert async_syncs_for(Path("/proc")) is None
        assert async_syncs_for(Path("/nowhere")) is None
        monkeypatch.setattr(platform, "machine", lambda: "m68k")
        assert async_syncs_for(disk.root) is None

    asyncio.run(body())


def test_a_read_only_tree_syncs_nothing(tmp_path: Path) -> None:
    assert not ReadOnlyDisk(tmp_path).start_async_syncs()


def test_the_control_block_is_laid_out_as_the_kernel_reads_it() -> None:
    """linux/aio_abi.h: 64 bytes, and an event has 32."""
    assert (aio._IOCB.size, aio._EVENT.size) == (64, 32)
    assert ctypes.sizeof(ctypes.c_ulong) == 8
