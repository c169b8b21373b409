"""A truncation on a disk without room, or a process without handles: it is done, or nothing is and it can be tried
again. A follower must be able to cut its log on a full disk: it is a way to have room again."""

import errno
from collections.abc import Callable

import pytest
from tests.support.logs import Reports, append, batch, open_log, read_one

from logboom.base.errors import DiskFullError, RetriableStorageError, StorageError
from logboom.base.ids import Epoch, Offset
from logboom.sim.disk import SimDisk
from logboom.storage import PartitionLog

NEEDS_ROOM = ("write", "allocate", "make_dir")
NO_FAULT: Callable[[str, str], None] = lambda operation, path: None  # noqa: E731


def a_log(disk: SimDisk) -> PartitionLog:
    """Sixty records of three leader epochs in several segments."""
    log = open_log(disk)
    for number in range(60):
        sent = batch(1, 100, producer=7, epoch=0, sequence=number)
        append(log, sent, leader_epoch=number // 20)
        log.flush(sync=True)
    return log


def lack(disk: SimDisk, at: int) -> Callable[[], int]:
    """Let every operation that needs room fail from the one of a number on; how many there were."""
    seen = 0

    def full(operation: str, path: str) -> None:
        nonlocal seen
        if operation in NEEDS_ROOM:
            seen += 1
            if seen > at:
                raise OSError(errno.ENOSPC, "no room", path)

    disk.fault = full
    return lambda: seen


@pytest.mark.parametrize(("offset", "anew"), [(0, False), (15, False), (33, False), (59, False), (0, True), (80, True)])
def test_a_truncation_without_room_is_done_or_can_be_tried_again(offset: int, anew: bool) -> None:
    for at in range(40):
        disk = SimDisk()
        log = a_log(disk)
        seen = lack(disk, at)
        try:
            log.truncate(Offset(offset), now_ms=1000, discard_all=anew)
        except DiskFullError:
            assert log.log_end_offset == log.written_end == log.durable_end
            disk.fault = NO_FAULT
            log.truncate(Offset(offset), now_ms=1000, discard_all=anew)
        disk.fault = NO_FAULT
        expected = (offset, offset) if anew else (0, offset)
        assert (log.log_start_offset, log.log_end_offset) == expected
        append(log, batch(1), leader_epoch=9)
        assert log.flush(sync=True) == offset + 1
        reports = Reports()
        again = open_log(disk.after_kill(), reports=reports)
        assert (again.log_start_offset, again.log_end_offset, reports.damage) == (expected[0], offset + 1, [])
        assert again.epochs.entries == log.epochs.entries
        assert all(read_one(again, one) is not None for one in range(expected[0], offset + 1))
        if seen() <= at:
            return
    raise AssertionError("a truncation does not write that often")


def test_a_leadership_that_wrote_nothing_cannot_be_forgotten_without_room_and_is_later() -> None:
    disk = SimDisk()
    log = a_log(disk)
    log.epochs.begin(Epoch(9), log.log_end_offset)
    log.epochs.save()
    lack(disk, 0)
    with pytest.raises(RetriableStorageError):
        log.truncate(log.log_end_offset, now_ms=1000)
    disk.fault = NO_FAULT
    log.truncate(log.log_end_offset, now_ms=1000)
    assert open_log(disk.after_kill()).epochs.latest == 2


def test_a_disk_that_fails_in_the_midst_of_a_truncation_ends_writing() -> None:
    disk = SimDisk()
    log = a_log(disk)

    def fail(operation: str, path: str) -> None:
        if operation == "unlink":
            raise OSError(errno.EMFILE, "no handle", path)

    disk.fault = fail
    with pytest.raises(StorageError) as caught:
        log.truncate(Offset(5), now_ms=1000)
    assert not isinstance(caught.value, RetriableStorageError)
