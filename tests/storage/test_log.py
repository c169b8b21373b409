import errno
from collections.abc import Sequence
from random import Random

import pytest
from tests.support.logs import DIRECTORY, PLAIN, SMALL, Reports, append, batch, open_log, read_batches, read_one

from logboom.base.errors import (
    DiskFullError,
    NoHandlesError,
    OffsetOutOfRangeError,
    OutOfOrderSequenceError,
    RecordListTooLargeError,
    StorageError,
)
from logboom.base.ids import Epoch, Offset, ProducerId
from logboom.base.ports import Bytes
from logboom.base.units import DAY_MS
from logboom.records import Codec, iter_batches
from logboom.sim.disk import Always, SimDisk, SimFile
from logboom.storage import LogConfig, PartitionLog
from logboom.storage.checkpoint import load as load_checkpoint
from logboom.storage.snapshots import snapshot_offsets


def filled(disk: SimDisk, count: int = 100, config: LogConfig = SMALL) -> tuple[PartitionLog, list[bytearray]]:
    """A log of batches of three records, offsets 3n, times 1000 + 10n."""
    log = open_log(disk, config)
    batches = [batch(3, 40, timestamp_ms=1000 + 10 * n) for n in range(count)]
    for buffer in batches:
        append(log, buffer)
        log.flush(sync=True)
    return log, batches


def test_what_is_appended_is_read_back_with_offset_and_epoch() -> None:
    log = open_log(SimDisk())
    first, second = batch(3), batch(2, codec=Codec.ZSTD)
    assert append(log, first, leader_epoch=5).base_offset == 0
    placed = append(log, second, leader_epoch=5)
    assert (placed.base_offset, placed.last_offset, placed.duplicate) == (3, 4, False)
    assert (log.log_end_offset, log.written_end, log.durable_end) == (5, 0, 0)
    assert log.flush(sync=False) == 5
    assert (log.written_end, log.durable_end) == (5, 0)
    assert log.flush(sync=True) == 5
    data = log.reader.read(Offset(0), 10_000, ceiling=Offset(5))
    assert data is not None
    assert bytes(data) == bytes(first + second)
    assert [(h.base_offset, h.leader_epoch) for _, h in iter_batches(data)] == [(0, 5), (3, 5)]
    assert log.size_bytes == len(data)


def test_a_batch_may_lie_anywhere_in_the_requests_buffer() -> None:
    log = open_log(SimDisk())
    record_batch = batch(2)
    request = bytearray(b"head" + record_batch + b"tail")
    view = memoryview(request)[4 : 4 + len(record_batch)]
    log.append(view, list(iter_batches(view)), leader_epoch=Epoch(1), now_ms=0)
    log.flush(sync=True)
    assert log.reader.read(Offset(0), 1, ceiling=Offset(2)) == bytes(view)
    assert (bytes(request[:4]), bytes(request[-4:])) == (b"head", b"tail")


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


def test_reading_on_and_on_gives_everything() -> None:
    log, batches = filled(SimDisk())
    offset, seen = 0, []
    while offset < log.durable_end:
        found = read_batches(log, offset, 700)
        seen += found
        offset += 3 * len(found)
    assert seen == batches


def test_a_read_that_would_wait_says_so() -> None:
    disk = SimDisk()
    log, batches = filled(disk)
    disk.cached = False
    assert log.reader.read(Offset(299), 10, ceiling=log.durable_end, cached_only=True) is None
    assert log.reader.read(Offset(299), 10, ceiling=log.durable_end) == bytes(batches[-1])


def test_segments_roll_by_size() -> None:
    log, batches = filled(SimDisk())
    size = len(batches[0])
    assert all(segment.size_bytes <= SMALL.segment_bytes for segment in log.segments)
    assert log.segments[0].size_bytes > SMALL.segment_bytes - size
    assert [s.base for s in log.segments[1:]] == [s.end for s in log.segments[:-1]]


def test_segments_roll_by_age() -> None:
    log = open_log(SimDisk(), LogConfig(segment_ms=DAY_MS))
    for now_ms in (1000, 1000 + DAY_MS - 1, 1000 + DAY_MS, 1000 + 2 * DAY_MS - 1):
        append(log, batch(), now_ms=now_ms)
    log.flush(sync=True)
    assert [segment.base for segment in log.segments] == [0, 2]


def test_several_rolls_in_one_flush() -> None:
    disk = SimDisk()
    log = open_log(disk)
    batches = [batch(3, 300) for _ in range(20)]
    for buffer in batches:
        append(log, buffer)
    log.flush(sync=True)
    assert len(log.segments) > 4
    assert [read_batches(log, 3 * n, 1)[0] for n in range(20)] == batches
    again = open_log(disk.copy())
    assert again.log_end_offset == 60


def test_a_batch_larger_than_a_segment_is_refused() -> None:
    log = open_log(SimDisk())
    with pytest.raises(RecordListTooLargeError):
        append(log, batch(1, 5000))
    assert log.log_end_offset == 0


def test_a_duplicate_answers_with_the_first_offsets_and_is_not_written() -> None:
    log = open_log(SimDisk())
    append(log, batch(4))
    append(log, batch(2, producer=1, epoch=0, sequence=0))
    again = append(log, batch(2, producer=1, epoch=0, sequence=0))
    assert (again.base_offset, again.last_offset, again.duplicate) == (4, 5, True)
    with pytest.raises(OutOfOrderSequenceError):
        append(log, batch(2, producer=1, epoch=0, sequence=5))
    assert log.log_end_offset == 6


def test_abandoning_takes_back_offsets_producers_and_epochs() -> None:
    log = open_log(SimDisk())
    append(log, batch(2, producer=1, epoch=0, sequence=0), leader_epoch=1)
    log.flush(sync=True)
    known = list(log.producers)
    append(log, batch(2, producer=1, epoch=0, sequence=2), leader_epoch=1)
    append(log, batch(2, producer=2, epoch=0, sequence=0), leader_epoch=1)
    append(log, batch(2), leader_epoch=2)
    log.abandon_staged()
    assert (log.log_end_offset, list(log.producers)) == (2, known)
    assert log.epochs.entries == ((1, 0),)
    assert append(log, batch(2, producer=1, epoch=0, sequence=2), leader_epoch=1).base_offset == 2
    log.flush(sync=True)
    assert len(read_batches(log, 0)) == 2


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
    assert log.failed
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


def test_times_that_go_back() -> None:
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


@pytest.mark.parametrize("offset", [0, 1, 3, 50, 51, 149, 299])
def test_truncation_leaves_whole_batches_below(offset: int) -> None:
    disk = SimDisk()
    log, batches = filled(disk)
    log.truncate(Offset(offset), now_ms=0)
    kept = offset // 3
    for reader in (log, open_log(disk.power_cut(Random(offset)))):
        assert (reader.log_end_offset, reader.durable_end) == (3 * kept, 3 * kept)
        assert [read_batches(reader, 3 * n, 1)[0] for n in range(kept)] == batches[:kept]
        assert append(reader, batch(3)).base_offset == 3 * kept
        assert reader.flush(sync=True) == 3 * kept + 3
        newest = reader.reader.max_timestamp(reader.durable_end)
        assert newest is not None
        assert newest.timestamp_ms == max(1002, 1000 + 10 * (kept - 1) + 2)


def test_truncation_takes_producers_and_epochs_back() -> None:
    log = open_log(SimDisk())
    for n in range(60):
        append(log, batch(1, 100, producer=1, epoch=0, sequence=n), leader_epoch=n // 20)
        log.flush(sync=True)
    log.truncate(Offset(30), now_ms=0)
    assert log.epochs.entries == ((0, 0), (1, 20))
    assert append(log, batch(1, producer=1, epoch=0, sequence=27), leader_epoch=1).duplicate
    assert append(log, batch(1, producer=1, epoch=0, sequence=30), leader_epoch=1).base_offset == 30


def test_truncation_above_the_end_only_drops_what_is_staged() -> None:
    log, batches = filled(SimDisk(), 4)
    append(log, batch())
    log.truncate(Offset(50), now_ms=0)
    assert log.log_end_offset == 12
    assert read_batches(log, 0) == batches


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


def test_an_epoch_is_known_even_if_nothing_was_written_in_it() -> None:
    log, _ = filled(SimDisk(), 4)
    log.epochs.begin(Epoch(3), log.log_end_offset)
    assert log.epochs.end_of(Epoch(3), log.log_end_offset) == (3, 12)
    assert log.epochs.end_of(Epoch(0), log.log_end_offset) == (0, 12)
    append(log, batch(), leader_epoch=3)
    assert log.epochs.end_of(Epoch(3), log.log_end_offset) == (3, 13)
    assert log.epochs.end_of(Epoch(2), log.log_end_offset) == (0, 12)


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


def test_room_that_was_reserved_is_no_torn_tail() -> None:
    disk = SimDisk()
    config = LogConfig(preallocate_bytes=10_000)
    log = open_log(disk, config)
    append(log, batch(2))
    log.flush(sync=True)
    reports = Reports()
    again = open_log(disk.copy(), config, reports=reports)
    assert (again.log_end_offset, reports.seen) == (2, [])


@pytest.mark.parametrize("size_bytes", [100, 60_000])
def test_room_is_reserved_as_the_log_grows_and_given_back(size_bytes: int) -> None:
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


def test_no_room_to_reserve_is_no_failure() -> None:
    disk = SimDisk(capacity_bytes=20_000)
    log = open_log(disk, LogConfig(preallocate_bytes=100_000))
    append(log, batch(2))
    assert log.flush(sync=True) == 2


def test_producers_are_rebuilt_from_the_log_when_every_snapshot_is_gone() -> None:
    disk = SimDisk()
    log = open_log(disk)
    for n in range(60):
        append(log, batch(1, 100, producer=n % 3, epoch=0, sequence=n // 3))
        log.flush(sync=True)
    assert snapshot_offsets(disk, DIRECTORY)
    for name in [name for name in disk.nodes if name.endswith(".producers")]:
        disk.unlink(name)
    again = open_log(disk)
    assert list(again.producers) == list(log.producers)
    assert again.producers.get(ProducerId(2)) is not None


def test_producers_are_not_read_from_the_start_where_a_snapshot_helps() -> None:
    disk = SimDisk()
    log = open_log(disk)
    for n in range(60):
        append(log, batch(1, 100, producer=n % 3, epoch=0, sequence=n // 3))
        log.flush(sync=True)
    first = log.segments[0].path
    after = disk.copy()

    def watch(operation: str, path: str) -> None:
        assert (operation, path) != ("read", first)

    after.fault = watch
    assert list(open_log(after).producers) == list(log.producers)


# --- what is lacking for a while ------------------------------------------------------------------------------------


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
def test_no_handle_to_open_a_file_with_is_no_failure_of_the_disk(number: int) -> None:
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
        assert not log.failed
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


def test_a_start_whose_sync_failed_is_durable_before_anybody_hears_of_it() -> None:
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


def test_writes_on_the_loop_leave_every_sync_to_the_flusher(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also that of the checkpoint, which is synced every so many bytes."""

    def write_nowait(self: SimFile, offset: int, buffers: Sequence[Bytes]) -> bool:
        self.write(offset, buffers)
        return True

    monkeypatch.setattr(SimFile, "write_nowait", write_nowait)
    disk = SimDisk()
    log = open_log(disk, LogConfig(checkpoint_bytes=5_000))
    syncs: list[str] = []

    def watch(operation: str, path: str) -> None:
        if operation in ("sync", "sync_dir"):
            syncs.append(path)

    disk.fault = watch
    inline = 0
    for count in range(1, 60):
        append(log, batch(1, 1000))
        syncs.clear()
        file = log.inline.write(100_000)
        if file is None:
            log.flush(sync=True)
        else:
            file.sync()
            syncs.clear()
            assert log.inline.synced() == count
            inline += 1
            assert syncs == []
        noted = load_checkpoint(disk.power_cut(Always(survives=False)), DIRECTORY)
        assert count - (0 if noted is None else noted.durable_end) < 8
    assert inline > 30
