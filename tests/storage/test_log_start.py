"""The start of a log that moves: what is below it is gone for good, and it is durable before it counts."""

import errno
from random import Random

import pytest
from tests.support.logs import SMALL, Reports, append, batch, filled, open_log, read_batches, read_one

from logboom.base.errors import (
    NoHandlesError,
    OffsetOutOfRangeError,
    StorageError,
)
from logboom.base.ids import Offset
from logboom.sim.disk import Always, SimDisk


def test_a_start_that_moves_removes_whole_segments_for_good() -> None:
    disk = SimDisk()
    log, batches = filled(disk)
    start = Offset(log.segments[2].base + 4)
    assert log.delete_before(start) == 2
    assert log.delete_before(start) == 0
    for reader in (log, open_log(disk.power_cut(Random(3)))):
        assert reader.log_start_offset == start
        assert read_batches(reader, start, 1) == [batches[start // 3]]
        with pytest.raises(OffsetOutOfRangeError):
            reader.reader.read(Offset(start - 1), 10, ceiling=reader.durable_end)
        found = reader.reader.offset_for_time(0, ceiling=reader.durable_end)
        assert found is not None
        assert found.offset == start
    log.delete_before(log.durable_end)
    assert (len(log.segments), log.reader.read(Offset(300), 10, ceiling=Offset(300))) == (1, b"")


def test_a_start_that_could_not_be_noted_is_not_moved() -> None:
    disk = SimDisk()
    log = open_log(disk, SMALL)
    for _ in range(60):
        append(log, batch(2, 60))
    log.flush(sync=True)

    def fail(happening: str, path: str) -> None:
        if happening == "sync_dir":
            raise OSError(errno.EMFILE, "Too many open files")

    disk.fault = fail
    offset = log.segments[1].base
    with pytest.raises(NoHandlesError):
        log.delete_before(offset)
    assert log.log_start_offset == 0
    disk.fault = lambda operation, path: None
    assert log.delete_before(offset) == 1
    reports = Reports()
    again = open_log(disk.power_cut(Always(survives=False)), SMALL, reports=reports)
    assert (again.log_start_offset, reports.damage) == (offset, [])


def test_a_start_whose_sync_failed_is_made_durable_before_it_is_served() -> None:
    """The next process finds it in the page cache. Once it has told it, or removed a segment below, it holds."""
    disk = SimDisk()
    log = open_log(disk, SMALL)
    for _ in range(60):
        append(log, batch(2, 60))
    log.flush(sync=True)

    def fail(happening: str, path: str) -> None:
        if happening == "sync" and path.endswith("durable-end"):
            raise OSError(errno.EIO, "the disk lost it")

    disk.fault = fail
    offset = log.segments[2].base
    with pytest.raises(StorageError):
        log.delete_before(offset)
    assert log.log_start_offset == 0
    disk.fault = lambda operation, path: None
    assert open_log(disk.power_cut(Always(survives=False)), SMALL).log_start_offset == 0
    restarted = open_log(disk, SMALL)
    assert restarted.log_start_offset == offset
    assert restarted.delete_before(offset) == 2
    reports = Reports()
    again = open_log(disk.power_cut(Always(survives=False)), SMALL, reports=reports)
    assert (again.log_start_offset, reports.damage) == (offset, [])
    assert read_one(again, offset) is not None
