"""After a failed sync the machine runs on, and what the sync was about looks done: bytes, and where a file ends.

The next process must not build on it. A power failure later shows what the disk really has.
"""

import errno
from collections.abc import Callable

import pytest
from tests.support.logs import DIRECTORY, PLAIN, append, batch, open_log, read_one

from logboom.base.errors import StorageError
from logboom.sim.disk import Always, SimDisk
from logboom.storage import LogConfig, PartitionLog

ROOMY = LogConfig(preallocate_bytes=2_000)
FIRST_SEGMENT = f"{DIRECTORY}/{0:020d}.log"


def fail_a_sync(disk: SimDisk, action: Callable[[], object]) -> None:
    """Let every sync that `action` needs fail, once."""

    def fail(operation: str, path: str) -> None:
        if operation == "sync":
            raise OSError(errno.EIO, "the disk lost it")

    disk.fault = fail
    with pytest.raises(StorageError):
        action()
    disk.fault = lambda operation, path: None


def after_a_power_failure(disk: SimDisk, config: LogConfig) -> PartitionLog:
    return open_log(disk.power_cut(Always(False)), config)


def batches(log: PartitionLog) -> list[bytes | None]:
    """The batches, of one record each; None for one that is damaged."""
    return [read_one(log, offset) for offset in range(log.log_end_offset)]


def test_the_end_of_a_segment_is_set_again_before_the_next_one_begins() -> None:
    """Else the room that was reserved behind its last batch comes back, and zeros there are damage."""
    disk = SimDisk()
    log = open_log(disk, ROOMY)
    first, second = batch(1), batch(1)
    append(log, first)
    log.flush(sync=True)
    log.roll()
    fail_a_sync(disk, lambda: log.flush(sync=True))
    log = open_log(disk, ROOMY)
    log.roll()
    append(log, second)
    log.flush(sync=True)
    log = after_a_power_failure(disk, ROOMY)
    assert [segment.base for segment in log.segments] == [0, 1]
    assert batches(log) == [bytes(first), bytes(second)]


def a_disk_with_a_torn_tail(config: LogConfig) -> tuple[SimDisk, bytearray]:
    """A disk on which one batch is whole and durable, the one behind it is not, and the next one is whole again; and
    the first of them."""
    disk = SimDisk()
    log = open_log(disk, config)
    first, lost, stray = batch(1), batch(1), batch(1)
    append(log, first)
    log.close()
    log = open_log(disk, config)
    append(log, lost)
    append(log, stray)
    log.flush(sync=False)
    disk = disk.power_cut(Always(False))
    node = disk.nodes[FIRST_SEGMENT]
    node.write(len(first), bytes(len(lost)) + bytes(stray))
    node.sync()
    return disk, first


def test_a_torn_tail_that_was_cut_does_not_come_back_behind_new_records() -> None:
    disk, first = a_disk_with_a_torn_tail(PLAIN)
    log = open_log(disk, PLAIN)
    assert log.log_end_offset == 1
    log.roll()
    fail_a_sync(disk, lambda: log.flush(sync=True))
    log = open_log(disk, PLAIN)
    again = batch(1)
    append(log, again)
    log.flush(sync=True)
    log = after_a_power_failure(disk, PLAIN)
    assert batches(log) == [bytes(first), bytes(again)]


def test_a_torn_tail_under_room_whose_sync_failed_does_not_come_back() -> None:
    disk, first = a_disk_with_a_torn_tail(ROOMY)
    log = open_log(disk, ROOMY)
    again = batch(1)
    append(log, again)
    fail_a_sync(disk, lambda: log.flush(sync=True))
    log = open_log(disk, ROOMY)
    log = after_a_power_failure(disk, ROOMY)
    assert batches(log) == [bytes(first), bytes(again)]
