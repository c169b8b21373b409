"""Syncs beside the loop, on the real kernel by either way; where it refuses, that is found at the start."""

import asyncio
import ctypes
import errno
import os
import platform
from collections.abc import Iterable
from functools import partial
from pathlib import Path

import pytest
import uvloop
from tests.support.waiting import WAIT_S

from logboom.base.ports import SyncFailedError
from logboom.host import OsDisk, ReadOnlyDisk, async_syncs, io_uring, linux_aio, sync_queue
from logboom.host.async_syncs import async_syncs_for
from logboom.host.io_uring import IoUringQueue
from logboom.host.linux_aio import LinuxAioQueue
from logboom.host.sync_queue import SyncQueue

BOTH = (IoUringQueue, LinuxAioQueue)


def available(way: type[SyncQueue]) -> bool:
    async def probe() -> bool:
        try:
            way().close()
        except OSError:
            return False
        return True

    return asyncio.run(probe())


@pytest.fixture(params=BOTH)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> type[SyncQueue]:
    """The only one that is there."""
    if not available(request.param):
        pytest.skip(f"no {request.param.__name__} here")
    monkeypatch.setattr(async_syncs, "_WAYS", (request.param,))
    return request.param  # type: ignore[no-any-return]


@pytest.fixture
def disk(way: type[SyncQueue], tmp_path: Path) -> OsDisk:
    return OsDisk(tmp_path)


@pytest.mark.parametrize("factory", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_many_syncs_end_on_the_loop(disk: OsDisk, factory: object) -> None:
    async def body() -> None:
        assert disk.start_async_syncs()
        assert disk.start_async_syncs(), "once more changes nothing"
        before = len(os.listdir("/proc/self/fd"))
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
        assert len(os.listdir("/proc/self/fd")) == before + len(files)
        disk.stop_async_syncs()
        disk.stop_async_syncs()
        assert not files[0].begin_sync(lambda error: None)

    with asyncio.Runner(loop_factory=factory) as runner:  # type: ignore[arg-type]
        runner.run(body())


def test_a_sync_that_cannot_be_begun_is_left_to_a_thread(disk: OsDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    """And what was refused for good is not asked for again; a kernel that is short of room, or of handles, is."""
    refusals = [errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.EINVAL]

    def refuse(number: int, *arguments: object) -> int:
        code = refusals.pop(0)
        raise OSError(code, os.strerror(code))

    async def body() -> None:
        assert disk.start_async_syncs()
        file = disk.open("a", create=True)
        ended: asyncio.Future[OSError | None] = asyncio.get_running_loop().create_future()
        with monkeypatch.context() as patched:
            for module in (io_uring, linux_aio):
                patched.setattr(module, "system_call", refuse)
            for _ in range(3):
                assert not file.begin_sync(ended.set_result)
        assert file.begin_sync(ended.set_result)
        assert await asyncio.wait_for(ended, WAIT_S) is None
        with monkeypatch.context() as patched:
            for module in (io_uring, linux_aio):
                patched.setattr(module, "system_call", refuse)
            assert not file.begin_sync(ended.set_result)
        assert not file.begin_sync(ended.set_result)
        disk.stop_async_syncs()

    asyncio.run(body())


def test_linux_aio_refuses_a_file_without_fsync_at_once() -> None:
    if not available(LinuxAioQueue):
        pytest.skip("no AIO here")

    async def body() -> None:
        queue, eventfd = LinuxAioQueue(), os.eventfd(0)
        assert not queue.submit(eventfd, lambda error: None)
        os.close(eventfd)
        queue.close()

    asyncio.run(body())


def test_the_rings_are_used_round_and_round() -> None:
    """More syncs than the rings have places, and each has an end of its own."""
    if not available(IoUringQueue):
        pytest.skip("no io_uring here")

    async def body() -> None:
        queue, ended = IoUringQueue(), list[tuple[int, OSError | None]]()

        def note(number: int, error: OSError | None) -> None:
            ended.append((number, error))

        file = os.memfd_create("synced")
        for number in range(5 * sync_queue.QUEUE_MAX):
            assert queue.submit(file, partial(note, number))
            if number % 7 == 0:
                async with asyncio.timeout(WAIT_S):
                    while len(ended) <= number:
                        await asyncio.sleep(0.0005)
        async with asyncio.timeout(WAIT_S):
            while len(ended) < 5 * sync_queue.QUEUE_MAX:
                await asyncio.sleep(0.0005)
        assert sorted(ended) == [(number, None) for number in range(5 * sync_queue.QUEUE_MAX)]
        os.close(file)
        queue.close()

    asyncio.run(body())


def test_the_kernels_answer_is_the_error(way: type[SyncQueue], disk: OsDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    async def body() -> None:
        assert disk.start_async_syncs()
        whole = way._ended

        def failing(self: SyncQueue) -> Iterable[tuple[int, int]]:
            return [(number, -errno.EIO) for number, _ in whole(self)]

        monkeypatch.setattr(way, "_ended", failing)
        future: asyncio.Future[OSError | None] = asyncio.get_running_loop().create_future()
        assert disk.open("a", create=True).begin_sync(future.set_result)
        error = await asyncio.wait_for(future, WAIT_S)
        assert isinstance(error, SyncFailedError)
        assert error.errno == errno.EIO
        disk.stop_async_syncs()

    asyncio.run(body())


def test_no_more_than_the_queue_holds_are_begun(disk: OsDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    async def body() -> None:
        monkeypatch.setattr(sync_queue, "QUEUE_MAX", 2)
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
    def refuse(number: int, *arguments: object) -> int:
        raise OSError(code, os.strerror(code))

    async def body() -> None:
        before = len(os.listdir("/proc/self/fd"))
        for module in (io_uring, linux_aio):
            monkeypatch.setattr(module, "system_call", refuse)
        assert not disk.start_async_syncs()
        assert len(os.listdir("/proc/self/fd")) == before
        assert not disk.open("a", create=True).begin_sync(lambda error: None)

    asyncio.run(body())


def test_where_io_uring_is_forbidden_linux_aio_does_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not available(LinuxAioQueue):
        pytest.skip("no AIO here")

    def forbidden(number: int, *arguments: object) -> int:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    async def body() -> None:
        monkeypatch.setattr(io_uring, "system_call", forbidden)
        queue = async_syncs_for(tmp_path)
        assert isinstance(queue, LinuxAioQueue)
        queue.close()

    asyncio.run(body())


def test_an_io_uring_without_what_is_needed_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    if not available(IoUringQueue):
        pytest.skip("no io_uring here")

    async def body() -> None:
        before = len(os.listdir("/proc/self/fd"))
        monkeypatch.setattr(io_uring, "_NEEDED", 1 << 31)
        with pytest.raises(OSError, match=r"before Linux 5\.5"):
            IoUringQueue()
        assert len(os.listdir("/proc/self/fd")) == before

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


def test_what_the_kernel_reads_is_laid_out_as_it_does() -> None:
    """linux/aio_abi.h: a control block of 64 bytes, an event of 32. linux/io_uring.h: parameters of 120 bytes, entries
    of 64 and of 16."""
    assert (linux_aio._IOCB.size, linux_aio._EVENT.size) == (64, 32)
    assert (io_uring._PARAMS.size, io_uring._ENTRY.size, io_uring._ENDED.size) == (120, 64, 16)
    assert ctypes.sizeof(ctypes.c_ulong) == 8
