"""How a cleaning writes a file of many megabytes: a piece at a time, so that other files' syncs wait for little."""

import errno
from collections.abc import Sequence

import pytest
from tests.support.compaction import clean, pairs_of, put
from tests.support.logs import PLAIN, open_log

from logboom.base.errors import StorageError
from logboom.base.ports import Bytes, File, SyncFailedError
from logboom.base.units import KIB, MIB
from logboom.sim.disk import SimDisk, SimFile
from logboom.storage import LogConfig, PartitionLog

LARGE = LogConfig(segment_bytes=64 * MIB, max_decompressed_bytes=PLAIN.max_decompressed_bytes)
VALUE = "v" * (100 * KIB)


class Unwritten:
    """How much of the file that is written was not given to the device when it was synced, and before that."""

    def __init__(self) -> None:
        self.most_bytes = self.synced_bytes = self.written_bytes = self._given_bytes = 0

    def wrote(self, end: int) -> None:
        self.written_bytes = end
        self.most_bytes = max(self.most_bytes, end - self._given_bytes)

    def gave(self, offset: int, length: int) -> None:
        assert offset <= self._given_bytes, "a part was left out"
        self._given_bytes = max(self._given_bytes, offset + length)

    def synced(self) -> None:
        self.synced_bytes = self.written_bytes - self._given_bytes


class WatchedFile(SimFile):
    watch: Unwritten

    def write(self, offset: int, buffers: Sequence[Bytes]) -> None:
        super().write(offset, buffers)
        self.watch.wrote(offset + sum(map(len, buffers)))

    def write_out(self, offset: int, length: int, *, wait: bool) -> None:
        super().write_out(offset, length, wait=wait)
        if wait:
            self.watch.gave(offset, length)

    def sync(self) -> None:
        super().sync()
        self.watch.synced()


class WatchedDisk(SimDisk):
    def __init__(self) -> None:
        super().__init__()
        self.watch = Unwritten()

    def open(self, path: str, *, create: bool = False) -> File:
        file = super().open(path, create=create)
        if not path.endswith(".cleaned"):
            return file
        watched = WatchedFile(self, path, self.nodes[path])
        watched.watch = self.watch
        return watched


def filled(disk: SimDisk, *, changes_late: bool) -> PartitionLog:
    """Four MiB in one segment, of which little is superseded: at its start, or, `changes_late`, at its end only."""
    log = open_log(disk, LARGE)
    if not changes_late:
        put(log, ("again", "old"))
    for number in range(40):
        put(log, (f"key {number}", VALUE))
    if changes_late:
        put(log, ("again", "old"))
    put(log, ("again", "new"))
    log.roll()
    put(log, ("active", "1"))
    return log


@pytest.mark.parametrize("changes_late", [False, True], ids=["rewritten", "copied up to the first change"])
def test_the_device_has_nearly_all_of_a_cleaned_file_before_its_sync(changes_late: bool) -> None:
    disk = WatchedDisk()
    log = filled(disk, changes_late=changes_late)
    cleaned = clean(log)
    assert cleaned.records_removed == 1
    assert disk.watch.written_bytes == cleaned.bytes_after > 4_000_000
    assert disk.watch.most_bytes <= MIB
    assert disk.watch.synced_bytes <= 512 * KIB
    assert len(pairs_of(log)) == 42


@pytest.mark.parametrize("operation", ["begin_write_out", "write_out"])
@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC])
def test_write_back_that_fails_ends_the_cleaning_as_a_failed_sync_does(operation: str, number: int) -> None:
    """What it was about may be lost although the sync at the end succeeds: the file never becomes part of the log."""
    disk = SimDisk()
    log = filled(disk, changes_late=False)
    before = pairs_of(log)

    def fault(happening: str, path: str) -> None:
        if happening == operation:
            disk.fault = lambda operation, path: None  # once
            raise OSError(number, errno.errorcode[number], path)

    disk.fault = fault
    with pytest.raises(StorageError) as failed:
        clean(log)
    assert isinstance(failed.value.__cause__, SyncFailedError)
    assert pairs_of(log) == before
    assert not [name for name in disk.nodes if name.endswith((".swap", ".cleaned"))]
