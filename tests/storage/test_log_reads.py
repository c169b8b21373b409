"""Reading a partition's log: by offset, up to a ceiling, by time."""

import errno
from collections.abc import Callable
from random import Random

import pytest
from tests.support.logs import DIRECTORY, Reports, append, batch, filled, open_log, read_batches

from logboom.base.errors import OffsetOutOfRangeError, StorageError
from logboom.base.ids import Offset
from logboom.records import Record, build_batch
from logboom.sim.disk import SimDisk
from logboom.storage import PartitionLog


def test_an_offset_inside_a_batch_gives_the_whole_batch() -> None:
    log, batches = filled(SimDisk())
    for offset in (0, 1, 2, 3, 151, 299):
        assert read_batches(log, offset, 1) == [batches[offset // 3]]


def test_as_many_whole_batches_as_fit_and_the_first_always() -> None:
    log, batches = filled(SimDisk(), 5)
    size = len(batches[0])
    for limit, expected in ((0, 1), (1, 1), (size, 1), (2 * size - 1, 1), (2 * size, 2), (5 * size, 5), (9999, 5)):
        assert read_batches(log, 0, limit) == batches[:expected]


def test_nothing_at_or_above_the_ceiling() -> None:
    log, batches = filled(SimDisk(), 5)
    assert log.reader.read(Offset(0), 9999, ceiling=Offset(6)) == bytes(batches[0] + batches[1])
    assert log.reader.read(Offset(6), 9999, ceiling=Offset(6)) == b""
    assert log.reader.read(Offset(15), 9999, ceiling=Offset(15)) == b""
    # A batch that reaches above the ceiling stays out.
    assert log.reader.read(Offset(3), 9999, ceiling=Offset(5)) == b""


def test_offsets_outside_the_log_are_out_of_range() -> None:
    log, _ = filled(SimDisk(), 5)
    for offset in (-1, 16):
        with pytest.raises(OffsetOutOfRangeError):
            log.reader.read(Offset(offset), 10, ceiling=log.durable_end)


def test_every_batch_is_found_in_any_order_across_segments() -> None:
    log, batches = filled(SimDisk())
    assert len(log.segments) > 3
    order = list(range(100))
    Random(1).shuffle(order)
    for n in order:
        assert read_batches(log, 3 * n + 1)[0] == batches[n]


def test_reads_that_follow_each_other_give_every_batch() -> None:
    log, batches = filled(SimDisk())
    offset, seen = 0, []
    while offset < log.durable_end:
        found = read_batches(log, offset, 700)
        seen += found
        offset += 3 * len(found)
    assert seen == batches


def test_a_read_of_cached_data_alone_gives_none_where_it_would_wait_for_the_disk() -> None:
    disk = SimDisk()
    log, batches = filled(disk)
    disk.cached = False
    assert log.reader.read(Offset(299), 10, ceiling=log.durable_end, cached_only=True) is None
    assert log.reader.read(Offset(299), 10, ceiling=log.durable_end) == bytes(batches[-1])


def test_offsets_by_time() -> None:
    disk = SimDisk()
    log, _ = filled(disk)
    for reader in (log, open_log(disk.copy())):
        end = reader.durable_end
        for timestamp_ms, offset, found_ms in (
            (0, 0, 1000),
            (1000, 0, 1000),
            (1001, 1, 1001),
            (1003, 3, 1010),
            (1500, 150, 1500),
            (1992, 299, 1992),
        ):
            found = reader.reader.offset_for_time(timestamp_ms, ceiling=end)
            assert found is not None
            assert (found.offset, found.timestamp_ms, found.leader_epoch) == (offset, found_ms, 0)
        assert reader.reader.offset_for_time(1993, ceiling=end) is None
        assert reader.reader.offset_for_time(1500, ceiling=Offset(150)) is None
        newest = reader.reader.max_timestamp(end)
        assert newest is not None
        assert (newest.offset, newest.timestamp_ms) == (299, 1992)
        newest = reader.reader.max_timestamp(Offset(150))
        assert newest is not None
        assert (newest.offset, newest.timestamp_ms) == (149, 1492)


def test_offsets_by_time_where_timestamps_go_back() -> None:
    log = open_log(SimDisk())
    for timestamp_ms in (5000, 1000, 9000, 2000):
        for _ in range(20):
            append(log, batch(1, timestamp_ms=timestamp_ms))
    log.flush(sync=True)
    found = [log.reader.offset_for_time(ms, ceiling=log.durable_end) for ms in (1, 5000, 5001, 9000, 9001)]
    assert [None if f is None else f.offset for f in found] == [0, 0, 40, 40, None]
    newest = log.reader.max_timestamp(log.durable_end)
    assert newest is not None
    assert newest.offset == 40


def test_an_empty_log_has_no_times() -> None:
    log = open_log(SimDisk())
    assert log.reader.max_timestamp(log.durable_end) is None
    assert log.reader.offset_for_time(0, ceiling=log.durable_end) is None


@pytest.mark.parametrize("start", [1, 2, 3, 4, 5])
def test_the_newest_time_is_not_that_of_a_deleted_record(start: int) -> None:
    """Clocks jump back, and DeleteRecords moves the start into a segment, or a batch, that stays."""
    log = open_log(SimDisk())
    times = [5000, 3000, 1000, 2000, 1500, 1500]
    for first in range(0, 6, 2):
        append(log, build_batch([Record(Offset(0), time_ms, None, b"v") for time_ms in times[first : first + 2]]))
    log.flush(sync=True)
    log.delete_before(Offset(start))
    newest = max(times[start:])
    found = log.reader.max_timestamp(log.durable_end)
    assert found is not None
    assert (found.offset, found.timestamp_ms) == (times.index(newest, start), newest)


READS: list[Callable[[PartitionLog], object]] = [
    lambda log: log.reader.read(Offset(1), 10, ceiling=log.durable_end),
    lambda log: log.reader.offset_for_time(1001, ceiling=log.durable_end),
    lambda log: log.reader.max_timestamp(Offset(2)),
    lambda log: log.reader.bytes_between(Offset(1), Offset(3)),
]


@pytest.mark.parametrize("read", READS, ids=["batches", "first of a time", "newest time", "bytes between"])
@pytest.mark.parametrize("code", [errno.EIO, errno.EBADMSG, errno.EUCLEAN])
def test_what_the_disk_does_not_give_back_is_damage_whoever_reads_it(
    read: Callable[[PartitionLog], object], code: int
) -> None:
    disk, reports = SimDisk(), Reports()
    filled(disk)[0].close()
    log = open_log(disk, reports=reports)
    first = log.segments[0].path

    def fault(operation: str, path: str) -> None:
        if operation in {"read", "read_cached"} and path == first:
            raise OSError(code, "a bad sector")

    disk.fault = fault
    for _ in range(2):
        with pytest.raises(StorageError, match="a bad sector"):
            read(log)
    (damage,) = reports.damage  # told once
    assert (damage.path, damage.position) == (first, 0)
    assert log.reader.read(Offset(299), 10, ceiling=log.durable_end)  # everything else is read


@pytest.mark.parametrize("read", READS, ids=["batches", "first of a time", "newest time", "bytes between"])
def test_a_lack_of_handles_is_no_damage(read: Callable[[PartitionLog], object]) -> None:
    disk, reports = SimDisk(), Reports()
    filled(disk)[0].close()
    log = open_log(disk, reports=reports)

    def fault(operation: str, path: str) -> None:
        if path.startswith(DIRECTORY):
            raise OSError(errno.EMFILE, "too many open files")

    disk.fault = fault
    with pytest.raises(StorageError, match="too many open files"):
        read(log)
    assert not reports.damage
