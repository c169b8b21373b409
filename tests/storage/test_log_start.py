"""The start of a log that moves: what is below it is gone for good, and it is durable before it counts."""

import errno
from random import Random

import pytest
from tests.support.logs import DIRECTORY, SMALL, Reports, append, batch, filled, open_log, read_batches, read_one

from logboom.base.errors import (
    NoHandlesError,
    OffsetOutOfRangeError,
    StorageError,
)
from logboom.base.ids import Offset
from logboom.sim.disk import Always, SimDisk
from logboom.storage import UnknownStart


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
    assert restarted.segments[0].base == offset, "what is below is removed, now that the start is durable"
    reports = Reports()
    again = open_log(disk.power_cut(Always(survives=False)), SMALL, reports=reports)
    assert (again.log_start_offset, reports.damage) == (offset, [])
    assert read_one(again, offset) is not None


def _begun_in_the_middle(disk: SimDisk) -> Offset:
    """Take the first segment and the checkpoint away; where the log begins now."""
    log, _ = filled(disk)
    bases = [segment.base for segment in log.segments]
    log.close()
    disk.unlink(f"{DIRECTORY}/{bases[0]:020}.log")
    disk.unlink(f"{DIRECTORY}/durable-end")
    return bases[1]


def test_a_start_that_nothing_tells_stays_unknown_until_records_are_deleted_up_to_it() -> None:
    disk = SimDisk()
    start = _begun_in_the_middle(disk)
    for _ in range(2):  # the second one finds a checkpoint
        reports = Reports()
        log = open_log(disk, SMALL, reports=reports)
        assert [type(one) for one in reports.seen if "begins at" in str(one)] == [UnknownStart]
        assert (log.log_start_offset, log.start.is_known, log.start.deleted_below) == (start, False, 0)
        log.truncate(Offset(log.log_end_offset - 2), now_ms=1000)
        log.close()
    log = open_log(disk, SMALL)
    log.delete_before(Offset(start - 1))
    assert not log.start.is_known
    log.delete_before(start)
    for reader in (log, open_log(disk.power_cut(Always(survives=False)))):
        assert (reader.log_start_offset, reader.start.is_known, reader.start.deleted_below) == (start, True, start)


def test_a_log_begins_anew_with_a_start_that_is_known_or_not() -> None:
    disk = SimDisk()
    filled(disk)[0].close()
    for is_known in (False, True):
        log = open_log(disk, SMALL)
        log.truncate(Offset(500), now_ms=1000, discard_all=True, start_is_known=is_known)
        log.abandon()
        again = open_log(disk.power_cut(Always(survives=False)), SMALL)
        assert (again.log_start_offset, again.start.is_known) == (500, is_known)
