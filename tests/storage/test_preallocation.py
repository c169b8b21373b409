"""Room that a segment reserves ahead of its records, and what a clean close gives back."""

import pytest
from tests.support.logs import Reports, append, batch, open_log, read_batches

from logboom.base.errors import (
    StorageError,
)
from logboom.sim.disk import SimDisk
from logboom.storage import LogConfig


def test_a_clean_close_leaves_nothing_to_recover() -> None:
    disk = SimDisk()
    config = LogConfig(preallocate_bytes=10_000)
    log = open_log(disk, config)
    for n in range(50):
        append(log, batch(2, producer=3, epoch=0, sequence=2 * n))
    log.flush(sync=True)
    assert len(disk.nodes[log.segments[-1].path].data) > log.size_bytes
    known = list(log.producers)
    log.close()
    assert len(disk.nodes[log.segments[-1].path].data) == log.size_bytes
    disk.syncs = 0
    reports = Reports()
    again = open_log(disk, config, reports=reports)
    assert (again.log_end_offset, list(again.producers)) == (100, known)
    assert (disk.syncs, reports.seen) == (0, [])
    with pytest.raises(StorageError):
        log.flush(sync=True)


def test_preallocated_space_is_not_reported_as_a_torn_tail() -> None:
    disk = SimDisk()
    config = LogConfig(preallocate_bytes=10_000)
    log = open_log(disk, config)
    append(log, batch(2))
    log.flush(sync=True)
    reports = Reports()
    again = open_log(disk.copy(), config, reports=reports)
    assert (again.log_end_offset, reports.seen) == (2, [])


@pytest.mark.parametrize("size_bytes", [100, 60_000])
def test_space_is_preallocated_as_the_log_grows_and_released_by_a_close(size_bytes: int) -> None:
    disk = SimDisk()
    log = open_log(disk, LogConfig(preallocate_bytes=200_000, segment_bytes=2_000_000))
    lengths = set()
    for n in range(20):
        append(log, batch(1, size_bytes))
        log.flush(sync=True)
        lengths.add(len(disk.nodes[log.segments[-1].path].data) - log.size_bytes)
        assert read_batches(log, n, 1)
    assert 0 < max(lengths) <= 200_000
    log.close()
    assert len(disk.nodes[log.segments[-1].path].data) == log.size_bytes


def test_a_failed_preallocation_is_not_a_failed_write() -> None:
    disk = SimDisk(capacity_bytes=20_000)
    log = open_log(disk, LogConfig(preallocate_bytes=100_000))
    append(log, batch(2))
    assert log.flush(sync=True) == 2
