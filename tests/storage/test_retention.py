from dataclasses import dataclass

import pytest
from tests.support.logs import PLAIN, Reports, append, batch, open_log, read_batches

from logboom.base.errors import DiskFullError, OffsetOutOfRangeError
from logboom.base.ids import Offset
from logboom.sim.disk import SimDisk
from logboom.storage import PartitionLog, Retention, retained_from


@dataclass
class Facts:
    base: Offset
    end: Offset | None
    size_bytes: int
    max_timestamp: int


# Four segments of 100 bytes and ten records, newest times 100, 200, 300 and 400.
SEGMENTS = [Facts(Offset(10 * n), Offset(10 * n + 10) if n < 3 else None, 100, 100 * (n + 1)) for n in range(4)]


def start_for(retention: Retention, *, now_ms: int = 1000, start: int = 0, high_watermark: int = 40) -> int:
    return retained_from(SEGMENTS, retention, now_ms=now_ms, start=Offset(start), high_watermark=Offset(high_watermark))


@pytest.mark.parametrize(("ms", "expected"), [(900, 0), (899, 10), (800, 10), (750, 20), (0, 30)])
def test_by_time(ms: int, expected: int) -> None:
    assert start_for(Retention(ms=ms)) == expected


@pytest.mark.parametrize(("size", "expected"), [(400, 0), (301, 0), (300, 10), (150, 20), (0, 30)])
def test_by_bytes(size: int, expected: int) -> None:
    assert start_for(Retention(bytes=size)) == expected


def test_nothing_is_asked_or_more_than_may_go() -> None:
    assert start_for(Retention()) == 0
    assert start_for(Retention(), start=7) == 7
    assert start_for(Retention(ms=0), high_watermark=19) == 10
    assert start_for(Retention(ms=750, bytes=0)) == 30
    assert retained_from([], Retention(ms=0), now_ms=0, start=Offset(3), high_watermark=Offset(3)) == 3


@pytest.mark.parametrize(("messages", "expected"), [(40, 0), (31, 0), (30, 10), (11, 20), (10, 30), (0, 30)])
def test_by_messages(messages: int, expected: int) -> None:
    assert start_for(Retention(messages=messages)) == expected


def test_a_segment_without_times_is_as_old_as_what_follows_it() -> None:
    segments = [Facts(one.base, one.end, 100, -1 if one.base < 20 else one.max_timestamp) for one in SEGMENTS]

    def start(ms: int) -> int:
        return retained_from(segments, Retention(ms=ms), now_ms=1000, start=Offset(0), high_watermark=Offset(40))

    assert start(700) == 0
    assert start(699) == 30
    timeless = [Facts(one.base, one.end, 100, -1) for one in SEGMENTS]
    assert retained_from(timeless, Retention(ms=0), now_ms=9, start=Offset(0), high_watermark=Offset(40)) == 0


def filled(disk: SimDisk, count: int = 100) -> PartitionLog:
    log = open_log(disk)
    for n in range(count):
        append(log, batch(3, 40, timestamp_ms=1000 + 10 * n))
    log.flush(sync=True)
    return log


def asked(log: PartitionLog, retention: Retention, now_ms: int) -> Offset:
    return log.reader.retained_from(retention, now_ms=now_ms, high_watermark=log.durable_end)


@pytest.mark.parametrize("reopened", [False, True])
def test_a_log_finds_its_start_and_follows(reopened: bool) -> None:
    disk = SimDisk()
    log = filled(disk)
    if reopened:
        log.close()
        log = open_log(disk)
    start = asked(log, Retention(ms=500), 2000)
    assert 0 < start <= 150
    log.delete_before(start)
    assert log.log_start_offset == log.segments[0].base == start
    assert log.log_start_offset == open_log(disk.copy()).log_start_offset
    assert asked(log, Retention(messages=60), 2000) == max(one.base for one in log.segments if one.base <= 240)


def test_the_newest_time_of_an_old_segment_is_known_without_its_index_and_with_a_broken_one() -> None:
    disk = SimDisk()
    times = [segment.max_timestamp for segment in filled(disk).segments]
    assert [segment.max_timestamp for segment in open_log(disk.copy()).segments] == times
    for name, node in disk.nodes.items():
        if name.endswith(".index"):
            node.data[-10] ^= 1
    assert [segment.max_timestamp for segment in open_log(disk.copy()).segments] == times


def test_retention_also_removes_the_last_segment_of_an_idle_log() -> None:
    disk = SimDisk()
    log = open_log(disk, PLAIN)
    assert not log.roll(), "an empty segment is not ended"
    append(log, batch(3, timestamp_ms=1000))
    append(log, batch(3, timestamp_ms=2000))
    log.flush(sync=True)
    retention = Retention(ms=100)
    assert not log.reader.expired_to_the_end(retention, now_ms=2100)
    assert log.reader.expired_to_the_end(retention, now_ms=2200)
    assert log.roll()
    assert not log.roll(), "once is enough"
    append(log, batch(1))  # comes while the end is staged
    log.flush(sync=True)
    assert [segment.base for segment in log.segments] == [0, 6]
    log.delete_before(asked(log, retention, 2200))
    assert (log.log_start_offset, log.log_end_offset) == (6, 7)
    for again in (open_log(disk.copy(), PLAIN), open_log(disk.copy(), PLAIN)):
        assert (again.log_start_offset, again.log_end_offset) == (6, 7)
        append(again, batch(2))
        again.flush(sync=True)
        assert len(read_batches(again, 6)) == 2


def test_the_end_of_a_segment_is_taken_back_where_there_is_no_room_for_the_next() -> None:
    disk = SimDisk()
    log = open_log(disk, PLAIN)
    append(log, batch(3))
    log.flush(sync=True)

    def full(operation: str, path: str) -> None:
        if operation == "open" and path.endswith("03.log"):
            raise OSError(28, "no space left on this disk")

    disk.fault = full
    assert log.roll()
    with pytest.raises(DiskFullError):
        log.flush(sync=True)
    log.abandon_staged()
    disk.fault = lambda operation, path: None
    append(log, batch(1))
    assert log.flush(sync=True) == 4
    assert len(log.segments) == 1
    assert log.roll()
    assert log.flush(sync=True) == 4
    assert len(log.segments) == 2


def test_deleted_records_wait_for_their_segment_to_end() -> None:
    log = open_log(SimDisk(), PLAIN)
    append(log, batch(3))
    log.flush(sync=True)
    log.delete_before(Offset(2))
    assert not log.reader.expired_to_the_end(Retention(), now_ms=0)
    log.delete_before(Offset(3))
    assert log.reader.expired_to_the_end(Retention(), now_ms=0)
    log.roll()
    log.flush(sync=True)
    assert log.delete_before(asked(log, Retention(), 0)) == 1
    assert (log.log_start_offset, log.log_end_offset, log.size_bytes) == (3, 3, 0)


def test_a_read_that_loses_its_segment_under_way_is_told_that_it_is_out_of_range() -> None:
    disk = SimDisk()
    log = filled(disk)
    log.close()
    log = open_log(disk)
    first = log.segments[0].path

    def deleted_meanwhile(operation: str, path: str) -> None:
        if operation == "open" and path == first:
            disk.fault = lambda operation, path: None
            log.delete_before(Offset(150))

    disk.fault = deleted_meanwhile
    with pytest.raises(OffsetOutOfRangeError):
        log.reader.read(Offset(0), 1000, ceiling=log.durable_end)
    log.close()
    disk = SimDisk()
    filled(disk).close()
    reports = Reports()
    log = open_log(disk, reports=reports)
    disk.fault = deleted_meanwhile
    found = log.reader.offset_for_time(1000, ceiling=log.durable_end)
    assert found is not None
    assert found.offset == 150
    assert not reports.damage


def test_the_age_of_a_segment_outlives_a_restart() -> None:
    disk = SimDisk()
    log = open_log(disk, PLAIN, now_ms=5_000)
    append(log, batch(1, timestamp_ms=5_000), now_ms=5_000)
    log.close()
    late = 5_000 + PLAIN.segment_ms
    log = open_log(disk, PLAIN, now_ms=late - 1)
    append(log, batch(1, timestamp_ms=late), now_ms=late)
    log.flush(sync=True)
    assert len(log.segments) == 2
