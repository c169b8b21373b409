import ctypes
import errno
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Thread

import pytest
from tests.support.logs import append, batch, open_log, read_batches
from tests.support.waiting import WAIT_S

from logboom.base.ids import Offset
from logboom.base.ports import Clock, Disk, LockHeldError, SyncFailedError
from logboom.host import OsDisk, ReadOnlyDisk, SystemClock, write_out
from logboom.storage import LogConfig


@pytest.fixture
def disk(tmp_path: Path) -> OsDisk:
    return OsDisk(tmp_path)


def test_reads_and_writes_at_positions(disk: OsDisk) -> None:
    file = disk.open("a", create=True)
    file.write(3, [b"abc", memoryview(b"def"), bytearray(b"g")])
    assert file.size() == 10
    assert file.read(0, 100) == b"\0\0\0abcdefg"
    assert file.read(4, 2) == b"bc"
    assert file.read(10, 5) == b""
    file.truncate(5)
    assert file.read(0, 100) == b"\0\0\0ab"
    file.sync()
    file.close()
    file.close()
    assert disk.size("a") == 5


def test_more_buffers_than_one_call_takes(disk: OsDisk) -> None:
    file = disk.open("a", create=True)
    buffers = [b"%06d" % n for n in range(5000)]
    file.write(0, buffers)
    assert file.read(0, 40_000) == b"".join(buffers)


def test_a_short_write_is_carried_on(disk: OsDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    file = disk.open("a", create=True)
    whole = os.pwrite

    def short(fd: int, buffers: Sequence[bytes], offset: int) -> int:
        return whole(fd, b"".join(buffers)[:4], offset)

    monkeypatch.setattr(os, "pwritev", short)
    file.write(0, [b"abc", b"defgh"])
    assert file.read(0, 10) == b"abcdefgh"
    monkeypatch.setattr(os, "pwrite", lambda fd, data, offset: 0)
    with pytest.raises(OSError, match="no progress"):
        file.write(0, [b"abc", b"defgh"])


def test_a_short_read_is_carried_on(disk: OsDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    file = disk.open("a", create=True)
    file.write(0, [b"abcdefgh"])
    whole = os.pread
    monkeypatch.setattr(os, "pread", lambda fd, length, offset: whole(fd, min(3, length), offset))
    assert file.read(0, 7) == b"abcdefg"
    assert file.read(2, 100) == b"cdefgh"


def test_cached_reads(disk: OsDisk) -> None:
    file = disk.open("a", create=True)
    file.write(0, [b"abcdefgh"])
    assert file.read_cached(2, 3) == b"cde"
    assert file.read_cached(6, 100) == b"gh"
    assert file.read_cached(8, 100) == b""


def refusing(number: int) -> Callable[..., int]:
    def preadv(*arguments: object) -> int:
        raise OSError(number, os.strerror(number))

    return preadv


def test_a_read_that_would_wait_gives_none(disk: OsDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    file = disk.open("a", create=True)
    file.write(0, [b"abcdefgh"])
    monkeypatch.setattr(os, "preadv", refusing(errno.EAGAIN))
    assert file.read_cached(0, 4) is None
    # Part of it in memory, the rest not.
    monkeypatch.setattr(os, "preadv", lambda fd, buffers, offset, flags: 2)
    assert file.read_cached(0, 4) is None


def test_a_file_system_without_such_reads_is_never_read_without_a_thread(
    disk: OsDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that hangs would hang the loop."""
    file = disk.open("a", create=True)
    file.write(0, [b"abcdefgh"])
    monkeypatch.setattr(os, "preadv", refusing(errno.EOPNOTSUPP))
    assert file.read_cached(1, 3) is None
    monkeypatch.setattr(os, "preadv", refusing(errno.EIO))
    assert file.read_cached(1, 3) is None
    assert file.read(1, 3) == b"bcd"
    other = disk.open("a")
    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        other.read_cached(1, 3)


def test_room_is_reserved(disk: OsDisk) -> None:
    file = disk.open("a", create=True)
    file.write(0, [b"abc"])
    file.allocate(100_000)
    assert file.size() == 100_000
    assert file.read(0, 5) == b"abc\0\0"


def test_an_open_file_can_be_read_after_its_deletion(disk: OsDisk) -> None:
    file = disk.open("a", create=True)
    file.write(0, [b"abc"])
    disk.unlink("a")
    assert file.read(0, 3) == b"abc"
    assert not disk.exists("a")
    with pytest.raises(FileNotFoundError):
        disk.open("a")


def test_a_data_directory_that_is_made_is_its_owners_alone(tmp_path: Path) -> None:
    OsDisk(tmp_path / "parent" / "data").make_root()
    assert (tmp_path / "parent" / "data").stat().st_mode & 0o777 == 0o700
    (tmp_path / "given").mkdir()
    (tmp_path / "given").chmod(0o750)
    OsDisk(tmp_path / "given").make_root()
    assert (tmp_path / "given").stat().st_mode & 0o777 == 0o750


def test_directories(disk: OsDisk) -> None:
    disk.make_dir("streams/web-0")
    disk.make_dir("streams/web-0")
    for name in ("b", "a"):
        disk.open(f"streams/web-0/{name}", create=True)
    assert disk.list("streams/web-0") == ["a", "b"]
    disk.rename("streams/web-0/a", "streams/web-0/b")
    disk.sync_dir("streams/web-0")
    assert disk.list("streams/web-0") == ["b"]
    disk.remove_tree("streams/web-0")
    assert disk.list("streams") == []
    with pytest.raises(FileNotFoundError):
        disk.list("nowhere")


def test_directories_made_together_wait_for_their_parents_once(disk: OsDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    monkeypatch.setattr("logboom.host.disk._sync_dir", lambda path: synced.append(Path(path).name))
    disk.make_dirs([f"streams/web-{index}" for index in range(3)])
    assert synced[-1] == "streams"
    synced.clear()
    disk.make_dirs(["streams/web-3", "streams/web-1", "other/web-0/inner"])
    assert synced == ["streams", disk.root.name, "other", "web-0"]
    assert disk.list("streams") == ["web-0", "web-1", "web-2", "web-3"]
    disk.open("streams/file", create=True)
    with pytest.raises(FileExistsError):
        disk.make_dirs(["streams/web-4", "streams/file"])


def test_the_ports_are_whole(disk: OsDisk) -> None:
    port: Disk = disk
    clock: Clock = SystemClock()
    assert port.exists(".")
    assert clock.wall_ms() > 1_600_000_000_000
    assert clock.monotonic_s() <= clock.monotonic_s()


def test_a_log_on_a_real_disk_with_readers_beside_the_writer(disk: OsDisk) -> None:
    config = LogConfig(segment_bytes=20_000, index_interval_bytes=500, preallocate_bytes=8000)
    log = open_log(disk, config)
    batches = [batch(3, 100) for _ in range(300)]
    wrong: list[int] = []

    def read_all() -> None:
        done = 0
        while done < 900:
            end = log.durable_end
            if end > done:
                data = log.reader.read(Offset(done), 3000, ceiling=end)
                assert data is not None
                size = len(batches[0])
                for at in range(0, len(data), size):
                    if bytes(data[at : at + size]) != batches[done // 3]:
                        wrong.append(done)
                    done += 3

    readers = [Thread(target=read_all) for _ in range(3)]
    for reader in readers:
        reader.start()
    for n, buffer in enumerate(batches):
        append(log, buffer)
        if n % 4 == 3:
            log.flush(sync=True)
    for reader in readers:
        reader.join(WAIT_S)
        assert not reader.is_alive()
    assert wrong == []
    again = open_log(disk, config)
    assert again.log_end_offset == 900
    log.close()
    assert [read_batches(again, 3 * n, 1)[0] for n in range(300)] == batches


def test_quiet_logs_hold_no_file_open_and_old_segments_few(disk: OsDisk) -> None:
    config = LogConfig(segment_bytes=2000, index_interval_bytes=500)
    log = open_log(disk, config)
    for _ in range(200):
        append(log, batch(3, 100))
    log.flush(sync=True)
    log.close()
    before = len(os.listdir("/proc/self/fd"))
    again = open_log(disk, config)
    assert len(os.listdir("/proc/self/fd")) == before
    for n in range(200):
        assert read_batches(again, 3 * n, 1)
    assert len(again.segments) > 20
    assert len(os.listdir("/proc/self/fd")) <= before + 10


def test_a_tree_that_is_only_read(tmp_path: Path) -> None:
    written = OsDisk(tmp_path).open("a", create=True)
    written.write(0, [b"abc"])
    disk = ReadOnlyDisk(tmp_path)
    file = disk.open("a")
    assert (file.read(0, 9), disk.size("a"), disk.list("."), disk.exists("b")) == (b"abc", 3, ["a"], False)
    changes: list[Callable[[], object]] = [
        lambda: disk.open("b", create=True),
        lambda: disk.make_dir("b"),
        lambda: disk.rename("a", "b"),
        lambda: disk.unlink("a"),
        lambda: disk.remove_tree("."),
        lambda: disk.sync_dir("."),
        lambda: file.write(0, [b"x"]),
        lambda: file.truncate(0),
    ]
    for change in changes:
        with pytest.raises(OSError, match=r"only read|Bad file descriptor|Invalid argument"):
            change()
    assert (tmp_path / "a").read_bytes() == b"abc"
    with pytest.raises(FileNotFoundError):
        disk.open("b")


def test_a_lock_is_held_by_one_opener(tmp_path: Path) -> None:
    disk = OsDisk(tmp_path)
    first = disk.lock("lock")
    with pytest.raises(LockHeldError) as refused:
        disk.lock("lock")
    assert refused.value.holder == str(os.getpid())
    first.close()
    first.close()
    disk.lock("lock").close()


def test_the_root_is_made_and_its_space_is_known(tmp_path: Path) -> None:
    disk = OsDisk(tmp_path / "deep" / "root")
    with pytest.raises(FileNotFoundError):
        disk.space()
    disk.make_root()
    disk.make_root()
    space = disk.space()
    assert 0 < space.usable_bytes <= space.total_bytes


def test_a_tree_that_is_only_read_gives_no_lock(tmp_path: Path) -> None:
    disk = ReadOnlyDisk(tmp_path)
    for refused in (disk.make_root, lambda: disk.lock("lock")):
        with pytest.raises(OSError, match="only read"):
            refused()
    assert list(tmp_path.iterdir()) == []


def test_what_is_written_out_is_what_was_written(disk: OsDisk) -> None:
    file = disk.open("a", create=True)
    file.write(0, [b"abc" * 100_000])
    file.write_out(0, 0, wait=True)
    file.write_out(0, 200_000, wait=False)
    file.write_out(100_000, 200_000, wait=True)
    assert file.read(0, 300_001) == b"abc" * 100_000


@pytest.mark.parametrize("wait", [False, True])
def test_write_back_that_fails_is_a_failed_sync(disk: OsDisk, monkeypatch: pytest.MonkeyPatch, wait: bool) -> None:
    """The kernel tells of it once: a sync after it would not."""
    fails_with: list[int] = []

    def system_call(fd: int, offset: int, length: int, flags: int) -> int:
        ctypes.set_errno(fails_with[0])
        return -1

    monkeypatch.setattr(write_out, "_SYNC_FILE_RANGE", system_call)
    file = disk.open("a", create=True)
    for fails_with[:] in ([errno.EIO], [errno.ENOSPC]):
        with pytest.raises(SyncFailedError) as failed:
            file.write_out(0, 1, wait=wait)
        assert failed.value.errno == fails_with[0]


def test_where_there_is_no_call_for_write_back_nothing_happens(disk: OsDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(fd: int, offset: int, length: int, flags: int) -> int:
        ctypes.set_errno(errno.ENOSYS)
        return -1

    file = disk.open("a", create=True)
    for system_call in (refused, None):
        monkeypatch.setattr(write_out, "_SYNC_FILE_RANGE", system_call)
        file.write_out(0, 1, wait=True)
        assert file.size() == 0
