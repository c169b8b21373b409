"""A log on a disk that is full, fails, or has no handle left: what is written stays, what was not is taken back."""

import errno

import pytest
from tests.support.logs import PLAIN, SMALL, Reports, append, batch, filled, open_log, read_batches, read_one

from logboom.base.errors import (
    DiskFullError,
    NoHandlesError,
    StorageError,
)
from logboom.base.ids import Epoch, Offset
from logboom.sim.disk import Always, SimDisk
from logboom.storage import LogConfig


def test_a_full_disk_is_cut_back_and_writing_goes_on_when_there_is_room() -> None:
    disk = SimDisk()
    log = open_log(disk, PLAIN)
    first, refused, last = batch(3), batch(3, 3000), batch(3)
    append(log, first)
    log.flush(sync=True)
    disk.capacity_bytes = sum(len(node.data) for node in disk.nodes.values()) + 1000
    append(log, refused)
    with pytest.raises(DiskFullError):
        log.flush(sync=True)
    log.abandon_staged()
    assert len(disk.nodes[log.segments[-1].path].data) == len(first)
    assert read_batches(log, 0) == [first]
    assert append(log, last).base_offset == 3
    assert log.flush(sync=True) == 6
    assert read_batches(log, 0) == [first, last]


def test_a_disk_too_full_for_a_new_segment() -> None:
    disk = SimDisk()
    log = open_log(disk)
    append(log, batch(1, 3000))
    log.flush(sync=True)

    def full(operation: str, path: str) -> None:
        if operation == "open" and path.endswith("1.log"):
            raise OSError(errno.ENOSPC, "no space left on this disk")

    disk.fault = full
    append(log, batch(1, 3000))
    with pytest.raises(DiskFullError):
        log.flush(sync=True)
    log.abandon_staged()
    disk.fault = lambda operation, path: None
    assert append(log, batch(1, 3000)).base_offset == 1
    assert log.flush(sync=True) == 2
    assert [segment.base for segment in log.segments] == [0, 1]


@pytest.mark.parametrize(("operation", "number"), [("write", errno.EIO), ("sync", errno.EIO), ("sync", errno.ENOSPC)])
def test_a_failed_disk_ends_writing_and_leaves_reading(operation: str, number: int) -> None:
    disk = SimDisk()
    log, batches = filled(disk, 5)

    def fail(happening: str, path: str) -> None:
        if happening == operation and path.endswith(".log"):
            raise OSError(number, "the disk is gone")

    disk.fault = fail
    append(log, batch())
    with pytest.raises(StorageError) as caught:
        log.flush(sync=True)
    assert not isinstance(caught.value, DiskFullError)
    # The operating system may have forgotten what it could not write: the sync is never tried again.
    disk.fault = lambda happening, path: None
    for _ in range(2):
        with pytest.raises(StorageError):
            log.flush(sync=True)
    with pytest.raises(StorageError):
        append(log, batch())
    log.abandon_staged()
    assert read_batches(log, 0)[:5] == batches
    log.close()
    assert open_log(disk).log_end_offset >= 15


def test_reading_from_a_failed_disk_is_a_storage_error() -> None:
    disk = SimDisk()
    log, _ = filled(disk, 5)

    def fail(happening: str, path: str) -> None:
        if happening == "read":
            raise OSError(errno.EIO, "the disk is gone")

    disk.fault = fail
    for attempt in (
        lambda: log.reader.read(Offset(0), 10, ceiling=log.durable_end),
        lambda: log.reader.offset_for_time(0, ceiling=log.durable_end),
        lambda: log.reader.max_timestamp(log.durable_end),
    ):
        with pytest.raises(StorageError):
            attempt()


def test_what_was_written_before_the_disk_was_full_is_durable_and_the_rest_is_taken_back() -> None:
    disk = SimDisk()
    config = LogConfig(segment_bytes=500, preallocate_bytes=0)
    log = open_log(disk, config)
    first = batch(1, 300)
    append(log, first)
    append(log, batch(1, 300))  # begins a segment of its own

    def fail(happening: str, path: str) -> None:
        if happening == "open" and path.endswith("1.log"):
            raise OSError(errno.ENOSPC, "No space left on device")

    disk.fault = fail
    with pytest.raises(DiskFullError):
        log.flush(sync=True)
    assert (log.durable_end, log.written_end) == (1, 1)
    log.abandon_staged()
    assert log.log_end_offset == 1
    disk.fault = lambda operation, path: None
    again = open_log(disk.power_cut(Always(survives=False)), config)
    assert again.durable_end == 1
    assert read_one(again, 0) == bytes(first)


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOMEM])
def test_running_out_of_file_handles_is_not_a_failed_disk(number: int) -> None:
    disk = SimDisk()
    log = open_log(disk, LogConfig(segment_bytes=500, preallocate_bytes=0))
    append(log, batch(1, 300))
    log.flush(sync=True)

    def fail(happening: str, path: str) -> None:
        if happening in ("open", "sync_dir"):
            raise OSError(number, "no more of them")

    for _ in range(3):
        disk.fault = fail
        append(log, batch(1, 300, producer=4, epoch=0, sequence=0))
        with pytest.raises(NoHandlesError):
            log.flush(sync=True)
        log.abandon_staged()
        disk.fault = lambda operation, path: None
        end = append(log, batch(1, 300)).last_offset + 1
        assert log.flush(sync=True) == end


def test_an_epoch_is_in_its_file_before_a_batch_of_it_is_written() -> None:
    disk = SimDisk()
    log = open_log(disk, PLAIN)
    append(log, batch(), leader_epoch=1)
    log.flush(sync=True)

    def fail(happening: str, path: str) -> None:
        if "leader-epochs" in path and happening == "write":
            raise OSError(errno.ENOSPC, "No space left on device")

    disk.fault = fail
    append(log, batch(), leader_epoch=2)
    for sync in (False, True):
        with pytest.raises(DiskFullError):
            log.flush(sync=sync)
    assert log.written_end == 1
    assert not [name for name in disk.nodes if name.endswith(".tmp")], "what could not be written gives its room back"
    disk.fault = lambda operation, path: None
    assert log.flush(sync=True) == 2


def test_a_full_disk_can_be_opened_and_read() -> None:
    disk = SimDisk()
    log = open_log(disk, SMALL)
    for _ in range(40):
        append(log, batch(2, 60))
    log.flush(sync=True)
    append(log, batch(1, 60), leader_epoch=1)
    log.flush(sync=False)
    after = disk.power_cut(Always(survives=True))
    after.capacity_bytes = sum(len(node.data) for node in after.nodes.values())
    reports = Reports()
    again = open_log(after, SMALL, reports=reports)
    assert not reports.damage
    assert (again.log_start_offset, again.log_end_offset) == (0, 81)
    again.epochs.begin(Epoch(2), again.durable_end)
    again.epochs.try_save()
    for offset in range(0, 80, 2):
        assert read_one(again, offset) is not None
    append(again, batch(1, 3000), leader_epoch=2)
    with pytest.raises(DiskFullError):
        again.flush(sync=True)
    again.abandon_staged()
    after.capacity_bytes += 100_000
    append(again, batch(1, 3000), leader_epoch=2)
    assert again.flush(sync=True) == 82
    assert open_log(after.power_cut(Always(survives=False)), SMALL).log_end_offset == 82
