"""Key compaction of one log: what stays, where it stays, and what survives beside it."""

import errno
from collections.abc import Callable

import pytest
from tests.support.compaction import clean, pairs_batch, pairs_of, put, records_of
from tests.support.logs import DIRECTORY, PLAIN, Reports, append, open_log, read_batches

from logboom.base.errors import CompactionCancelledError, DiskFullError, OutOfOrderSequenceError, StorageError
from logboom.base.ids import Epoch, Offset
from logboom.records import (
    Codec,
    Record,
    build_batch,
    iter_batches,
    keyed_records,
    read_header,
    records_body,
    retain_records,
)
from logboom.sim.disk import SimDisk
from logboom.storage import BatchView, Cleaning, CompactionSettings, Damage, LogView, PartitionLog, verify


def test_the_latest_record_of_each_key_stays_where_it_was() -> None:
    disk = SimDisk()
    log = open_log(disk, PLAIN)
    put(log, ("a", "1"), ("b", "1"))
    put(log, ("a", "2"), ("c", "1"))
    put(log, ("c", "2"))
    log.roll()
    put(log, ("a", "active"))
    cleaned = clean(log)
    expected = [(1, "b", "1"), (2, "a", "2"), (4, "c", "2"), (5, "a", "active")]
    assert pairs_of(log) == expected
    assert (cleaned.records_removed, cleaned.first_dirty_offset, cleaned.is_complete) == (2, 5, True)
    log.close()
    reports = Reports()
    again = open_log(disk, PLAIN, reports=reports)
    assert not reports.seen, reports.seen
    assert pairs_of(again) == expected
    assert again.compaction.first_dirty_offset == 5


def filled(disk: SimDisk) -> PartitionLog:
    """Three segments that become one, and one that is written to."""
    log = open_log(disk, PLAIN)
    for value in "123":
        put(log, ("a", value), ("b", value), (f"only {value}", value))
        log.roll()
    put(log, ("a", "active"))
    return log


KEPT = [(2, "only 1", "1"), (5, "only 2", "2"), (6, "a", "3"), (7, "b", "3"), (8, "only 3", "3"), (9, "a", "active")]


def test_segments_become_one_and_leave_nothing_behind() -> None:
    disk = SimDisk()
    log = filled(disk)
    cleaned = clean(log)
    assert (cleaned.segments_before, cleaned.segments_after) == (3, 1)
    assert pairs_of(log) == KEPT
    assert [segment.base for segment in log.segments] == [0, 9]
    names = disk.list(DIRECTORY)
    assert [name for name in names if name.endswith((".log", ".swap", ".cleaned"))] == [file_name(0), file_name(9)]
    assert cleaned.bytes_after == disk.size(f"{DIRECTORY}/{file_name(0)}") < cleaned.bytes_before


def file_name(base: int) -> str:
    return f"{base:020d}.log"


def test_a_swap_waits_for_the_disk_twice() -> None:
    """It runs on the thread that syncs what clients wait for, so they wait for each of its syncs."""
    disk = SimDisk()
    log = filled(disk)
    cleaning = log.compaction.begin(CompactionSettings(), now_ms=2000, stable_end=log.durable_end)
    swap = cleaning.write_next(lambda size_bytes: None, lambda: False)
    assert swap is not None
    asked: list[str] = []
    disk.fault = lambda operation, path: asked.append(operation)
    swap()
    assert [operation for operation in asked if "sync" in operation] == ["sync_dir", "sync_dir"]
    cleaning.abandon()


def test_a_log_that_is_cleaned_again_and_again_keeps_few_segments() -> None:
    """Segments are put together by their sizes before a cleaning, so those that it leaves nearly empty are joined by
    the next one."""
    log = open_log(SimDisk(), PLAIN)
    most = 0
    for number in range(120):
        for part in range(3):
            put(log, (f"k{number % 7}", "x" * 300), (f"once {number}", None if number % 5 else "y"))
            if part == number % 3:
                log.roll()
        clean(log, CompactionSettings(delete_retention_ms=0), now_ms=2000 + number)
        most = max(most, len(log.segments))
    size_bytes = sum(segment.size_bytes for segment in log.segments)
    assert most <= 2 * size_bytes // PLAIN.segment_bytes + 4
    assert len(pairs_of(log)) < 150


def test_a_second_cleaning_of_a_clean_log_changes_nothing() -> None:
    disk = SimDisk()
    log = filled(disk)
    clean(log)
    before = {name: bytes(disk.nodes[f"{DIRECTORY}/{name}"].data) for name in disk.list(DIRECTORY)}
    dirt = log.compaction.dirt(CompactionSettings(), now_ms=2000, stable_end=log.durable_end)
    assert (dirt.is_cleanable, dirt.ratio, dirt.clean_bytes) == (False, 0.0, log.segments[0].size_bytes)
    again = clean(log)
    assert (again.bytes_written, again.records_removed) == (0, 0)
    assert before == {name: bytes(disk.nodes[f"{DIRECTORY}/{name}"].data) for name in disk.list(DIRECTORY)}


def test_any_offset_can_be_read_from_and_leads_to_the_next_record() -> None:
    log = filled(SimDisk())
    clean(log)
    for start in range(log.log_end_offset):
        found = [(record.offset, record.value) for record in records_of(log, start)]
        assert found == [(offset, value.encode()) for offset, _, value in KEPT if offset >= start]


def test_a_read_in_progress_goes_on_in_what_it_knows() -> None:
    log = filled(SimDisk())
    first = log.reader.read_with_next_offset(Offset(0), 1, ceiling=log.written_end)
    assert first is not None
    old = log.segments[1]
    _ = old.file.handle, old.index.entries
    cleaning = log.compaction.begin(CompactionSettings(), now_ms=2000, stable_end=Offset(9))
    swap = cleaning.write_next(lambda size_bytes: None, lambda: False)
    assert swap is not None
    swap()
    data, _, _ = old.reader.read(Offset(3), 1, log.written_end, cached_only=False)
    assert read_header(data).base_offset == 3
    assert log.reader.read(first[1], 1 << 20, ceiling=log.written_end)
    # The file that has its name now is another one: it is not opened for it.
    assert cleaning.write_next(lambda size_bytes: None, lambda: False) is None
    with pytest.raises(FileNotFoundError):
        _ = old.file.handle
    cleaning.abandon()


def test_times_are_found_among_what_is_left() -> None:
    log = open_log(SimDisk(), PLAIN)
    put(log, ("a", "1"), ("b", "1"), timestamp_ms=1000)
    put(log, ("a", "2"), timestamp_ms=5000)
    put(log, ("a", "3"), timestamp_ms=3000)
    log.roll()
    put(log, ("z", "1"), timestamp_ms=2000)
    clean(log)
    assert [offset for offset, _, _ in pairs_of(log)] == [1, 3, 4]
    newest = log.reader.max_timestamp(log.written_end)
    assert newest is not None
    assert (newest.offset, newest.timestamp_ms) == (3, 3000)
    for time_ms, offset in ((0, 1), (1001, 1), (1002, 3), (3000, 3)):
        found = log.reader.offset_for_time(time_ms, ceiling=log.written_end)
        assert found is not None
        assert found.offset == offset
    assert log.reader.offset_for_time(3001, ceiling=log.written_end) is None


def test_a_tombstone_stays_for_its_time_from_the_first_cleaning_on() -> None:
    settings = CompactionSettings(delete_retention_ms=1000)
    log = open_log(SimDisk(), PLAIN)
    put(log, ("a", "1"), ("b", "1"), timestamp_ms=10)
    put(log, ("a", None), ("c", "1"), timestamp_ms=20)
    log.roll()
    put(log, ("d", "1"))
    clean(log, settings, now_ms=50_000)
    assert pairs_of(log) == [(1, "b", "1"), (2, "a", None), (3, "c", "1"), (4, "d", "1")]
    # The time is in the batch, in place of its base timestamp; the records' own times are what they were (KIP-534).
    header = read_header(read_batches(log, 2, 1)[0])
    assert header.delete_horizon_ms == 51_000
    assert [record.timestamp_ms for record in records_of(log) if record.offset in (2, 3)] == [20, 21]
    log.roll()
    put(log, ("e", "1"))
    clean(log, settings, now_ms=50_999)
    assert (2, "a", None) in pairs_of(log)
    log.roll()
    put(log, ("e", "2"))
    clean(log, settings, now_ms=51_000)
    assert pairs_of(log) == [(1, "b", "1"), (3, "c", "1"), (4, "d", "1"), (5, "e", "1"), (6, "e", "2")]


def test_a_batch_does_not_grow_above_its_limit() -> None:
    """A delete horizon makes timestamps longer, and Kafka's default level of a codec may be below its producer's."""
    log = open_log(SimDisk(), PLAIN)
    put(log, *[(f"k{n}", None) for n in range(50)], timestamp_ms=1000)
    plain = b"".join(b"%d %d, " % (n, n * n % 977) for n in range(9000))
    hard = build_batch([Record(Offset(0), 1000, b"%d" % n, plain) for n in range(3)])
    header = read_header(hard)
    body = records_body(hard, 0, header, 1 << 20)
    bounds = [record[3:] for record in keyed_records(body, 3)]
    packed = retain_records(header._replace(attributes=Codec.ZSTD), body, bounds, level=22)
    usual = retain_records(header._replace(attributes=Codec.ZSTD), body, bounds[1:])
    assert len(usual) > len(packed), "the example shows nothing"
    append(log, packed)
    put(log, ("0", "2"))
    log.roll()
    put(log, ("z", "1"))
    before = read_batches(log, 0, 1)[0]
    cleaned = clean(log, CompactionSettings(delete_retention_ms=1 << 40, max_batch_bytes=1))
    assert (cleaned.batches_without_horizon, cleaned.batches_above_limit) == (1, 0)
    assert read_batches(log, 0, 1)[0] == before
    rewritten = read_header(read_batches(log, 50, 1)[0])
    assert rewritten.records_count == 2
    assert rewritten.size_bytes <= len(packed)
    clean(log, CompactionSettings(delete_retention_ms=1 << 40))
    assert read_header(read_batches(log, 0, 1)[0]).delete_horizon_ms == 2000 + (1 << 40)


def test_young_records_uncommitted_ones_and_the_active_segment_stay() -> None:
    log = open_log(SimDisk(), PLAIN)
    for time_ms in (1000, 2000, 3000):
        put(log, ("a", str(time_ms)), ("a", str(time_ms + 1)), timestamp_ms=time_ms)
        log.roll()
    put(log, ("a", "active"), timestamp_ms=4000)
    young = CompactionSettings(min_compaction_lag_ms=2000)
    dirt = log.compaction.dirt(young, now_ms=4500, stable_end=log.durable_end)
    assert dirt.cleanable_end == 4
    assert log.compaction.dirt(young, now_ms=4500, stable_end=Offset(3)).cleanable_end == 2
    clean(log, young, now_ms=4500, stable_end=3)
    assert [offset for offset, _, _ in pairs_of(log)] == [1, 2, 3, 4, 5, 6]
    clean(log, young, now_ms=4500)
    assert [offset for offset, _, _ in pairs_of(log)] == [3, 4, 5, 6]


def test_the_age_of_the_oldest_dirty_record_is_told() -> None:
    log = open_log(SimDisk(), PLAIN)
    put(log, ("a", "1"), timestamp_ms=1000)
    log.roll()
    put(log, ("b", "1"), timestamp_ms=1500)
    late = CompactionSettings(max_compaction_lag_ms=5000)
    assert not log.compaction.dirt(late, now_ms=6000, stable_end=log.durable_end).max_lag_exceeded
    assert log.compaction.dirt(late, now_ms=6001, stable_end=log.durable_end).max_lag_exceeded
    clean(log, late, now_ms=6001)
    assert not log.compaction.dirt(late, now_ms=60_000, stable_end=log.durable_end).max_lag_exceeded


def test_the_age_of_a_segment_that_is_clean_in_part_is_that_of_its_dirty_records() -> None:
    """A cleaning whose map was full ends inside a segment, which may begin with a gap: that has no time."""
    log = open_log(SimDisk(), PLAIN)
    put(log, ("a", "1"), timestamp_ms=1000)
    put(log, ("a", "2"), timestamp_ms=2000)
    put(log, *[(f"key {n}", "1") for n in range(20)], timestamp_ms=3000)
    log.roll()
    put(log, ("z", "1"))
    assert not clean(log, CompactionSettings(map_bytes=1)).is_complete
    assert pairs_of(log)[0] == (1, "a", "2")
    late = CompactionSettings(max_compaction_lag_ms=5000)
    assert not log.compaction.dirt(late, now_ms=8000, stable_end=log.durable_end).max_lag_exceeded
    assert log.compaction.dirt(late, now_ms=8100, stable_end=log.durable_end).max_lag_exceeded


def test_records_without_a_key_go_and_are_counted() -> None:
    log = open_log(SimDisk(), PLAIN)
    put(log, ("a", "1"))
    append(log, build_batch([Record(Offset(0), 1000, None, b"keyless")]))
    log.roll()
    put(log, ("b", "1"))
    cleaned = clean(log)
    assert (cleaned.records_removed, cleaned.records_without_key) == (1, 1)
    assert [offset for offset, _, _ in pairs_of(log)] == [0, 2]


def test_the_last_batches_of_a_producer_keep_their_place_without_records() -> None:
    disk = SimDisk()
    log = open_log(disk, PLAIN)
    for n in range(7):
        append(log, pairs_batch([("a", str(n))], producer=(5, 0, n)))
    log.roll()
    put(log, ("a", "active"))
    put(log, ("b", "active"))
    clean(log)
    assert pairs_of(log) == [(6, "a", "6"), (7, "a", "active"), (8, "b", "active")]
    disk.unlink(f"{DIRECTORY}/{7:020d}.producers")
    again = open_log(disk.after_kill(), PLAIN)
    duplicate = append(again, pairs_batch([("a", "2")], producer=(5, 0, 2)))
    assert (duplicate.duplicate, duplicate.base_offset) == (True, 2)
    with pytest.raises(OutOfOrderSequenceError):
        append(again, pairs_batch([("a", "9")], producer=(5, 0, 9)))
    assert not append(again, pairs_batch([("a", "7")], producer=(5, 0, 7))).duplicate


def test_leader_epochs_begin_where_they_began() -> None:
    disk = SimDisk()
    log = open_log(disk, PLAIN)
    for epoch in range(4):
        log.epochs.begin(Epoch(epoch), log.log_end_offset)
        put(log, ("a", "1"), leader_epoch=epoch)
        put(log, ("a", "2"), leader_epoch=epoch)
    log.roll()
    put(log, ("b", "1"), leader_epoch=3)
    clean(log)
    assert [offset for offset, _, _ in pairs_of(log)] == [7, 8]
    entries = log.epochs.entries
    disk.unlink(f"{DIRECTORY}/leader-epochs")
    assert open_log(disk.after_kill(), PLAIN).epochs.entries == entries


def test_what_the_disk_does_not_give_back_is_reported_as_damage() -> None:
    """Nobody else may read that batch for years, and the other copies are there now."""
    disk = SimDisk()
    reports = Reports()
    log = open_log(disk, PLAIN, reports=reports)
    put(log, ("a", "1"))
    put(log, ("a", "2"))
    log.roll()
    put(log, ("c", "1"))

    def unreadable(operation: str, path: str) -> None:
        if operation == "read" and path.endswith(file_name(0)):
            raise OSError(errno.EIO, "a bad sector")

    disk.fault = unreadable
    with pytest.raises(StorageError, match=r"it cannot be read: .*a bad sector"):
        clean(log)
    assert [(damage.position, damage.offset) for damage in reports.damage] == [(0, 0)]
    disk.fault = lambda operation, path: None
    assert pairs_of(log) == [(0, "a", "1"), (1, "a", "2"), (2, "c", "1")]


def test_a_damaged_batch_ends_the_cleaning_and_stays() -> None:
    disk = SimDisk()
    reports = Reports()
    log = open_log(disk, PLAIN, reports=reports)
    put(log, ("a", "1"))
    put(log, ("b", "1"))
    put(log, ("a", "2"))
    log.roll()
    put(log, ("c", "1"))
    position = len(read_batches(log, 0, 1)[0]) + 65
    disk.nodes[f"{DIRECTORY}/{file_name(0)}"].data[position] ^= 1
    before = bytes(disk.nodes[f"{DIRECTORY}/{file_name(0)}"].data)
    with pytest.raises(StorageError, match="CRC of the batch is wrong"):
        clean(log)
    assert [(damage.position, damage.offset) for damage in reports.damage] == [(position - 65, 1)]
    assert bytes(disk.nodes[f"{DIRECTORY}/{file_name(0)}"].data) == before
    assert log.compaction.first_dirty_offset == 0
    assert not [name for name in disk.list(DIRECTORY) if name.endswith((".cleaned", ".swap"))]


def test_a_full_disk_leaves_the_log_as_it_was() -> None:
    disk = SimDisk()
    log = filled(disk)
    before = pairs_of(log)
    disk.capacity_bytes -= disk.free_bytes - 50
    with pytest.raises(DiskFullError):
        clean(log)
    assert pairs_of(log) == before
    assert not [name for name in disk.list(DIRECTORY) if name.endswith((".cleaned", ".swap"))]
    disk.capacity_bytes = 1 << 40
    assert clean(log).is_complete
    assert pairs_of(log) == KEPT


def test_retention_and_truncation_in_between_end_a_cleaning() -> None:
    def delete(log: PartitionLog) -> None:
        log.delete_before(Offset(4))

    def truncate(log: PartitionLog) -> None:
        log.truncate(Offset(9), now_ms=1000)

    for change in (delete, truncate):
        log = filled(SimDisk())
        cleaning = log.compaction.begin(CompactionSettings(), now_ms=2000, stable_end=Offset(9))
        swap = cleaning.write_next(lambda size_bytes: None, lambda: False)
        assert swap is not None
        change(log)
        before = pairs_of(log)
        swap()
        with pytest.raises(CompactionCancelledError):
            cleaning.write_next(lambda size_bytes: None, lambda: False)
        cleaning.abandon()
        assert pairs_of(log) == before
        log.roll()
        put(log, ("z", "1"))
        clean(log)
        latest = {key: (offset, key, value) for offset, key, value in before}
        assert pairs_of(log)[:-1] == sorted(latest.values())


def test_a_map_without_room_cleans_what_it_can_and_goes_on_the_next_time() -> None:
    log = open_log(SimDisk(), PLAIN)
    for round_number in range(3):
        put(log, *[(f"key {n}", str(round_number)) for n in range(20)])
    log.roll()
    put(log, ("z", "1"))
    tiny = CompactionSettings(map_bytes=1)
    runs = [clean(log, tiny)]
    while not runs[-1].is_complete:
        runs.append(clean(log, tiny))
    ends = [run.first_dirty_offset for run in runs]
    assert ends == sorted(set(ends))
    assert len(ends) > 2
    assert [offset for offset, _, _ in pairs_of(log)] == [*range(40, 61)]


def test_a_replica_takes_a_compacted_log_as_it_is() -> None:
    leader = filled(SimDisk())
    clean(leader)
    follower = open_log(SimDisk(), PLAIN)
    offset = leader.log_start_offset
    while offset < leader.log_end_offset:
        data = leader.reader.read(offset, 1 << 20, ceiling=leader.written_end)
        assert data is not None
        buffer = bytearray(data)
        offset = follower.append_replicated(buffer, list(iter_batches(buffer)), now_ms=1000)
    follower.flush(sync=True)
    assert pairs_of(follower) == KEPT


def test_a_look_from_outside_understands_every_moment_of_a_cleaning() -> None:
    """`logboom log verify` beside a broker that cleans: it may see the directory between any two changes."""
    disk = SimDisk()
    log = filled(disk)
    views: list[SimDisk] = []
    disk.fault = lambda operation, path: views.append(disk.copy()) if operation not in ("read", "open") else None
    clean(log)
    disk.fault = lambda operation, path: None
    assert len(views) > 8
    for view in views:
        reports = Reports()
        totals = verify(LogView(view, DIRECTORY), reports)
        assert not reports.damage, reports.damage
        assert totals.records in (10, 6)


def test_a_look_that_began_before_a_cleaning_ends_well() -> None:
    disk = SimDisk()
    log = filled(disk)
    found = LogView(disk, DIRECTORY).batches()
    first = next(found)
    clean(log)
    rest = list(found)
    assert not [one for one in (first, *rest) if isinstance(one, Damage)]
    assert isinstance(rest[-1], BatchView)
    assert rest[-1].header.base_offset == 9


def test_a_look_that_knew_a_segment_as_the_last_one_ends_well() -> None:
    disk = SimDisk()
    log = open_log(disk, PLAIN)
    for n in range(30):
        put(log, ("a", "1" * n))
    view = LogView(disk, DIRECTORY)
    log.roll()
    put(log, ("b", "1"))
    clean(log)
    found = list(view.batches())
    assert not [one for one in found if isinstance(one, Damage)]
    assert sum(one.header.records_count for one in found if isinstance(one, BatchView)) == 2


def test_transactions_neither_go_nor_supersede() -> None:
    log = open_log(SimDisk(), PLAIN)
    put(log, ("a", "1"))
    in_transaction = build_batch(
        [Record(Offset(0), 1, b"a", b"maybe aborted")],
        producer_id=3,
        producer_epoch=0,
        base_sequence=0,
        transactional=True,
    )
    # A marker's own producer is not looked at here: what writes markers is the coordinator.
    marker = build_batch([Record(Offset(0), 1, b"\x00\x00\x00\x01", b"\x00" * 6)], transactional=True, control=True)
    for buffer in (in_transaction, marker):
        log.append(buffer, [(0, read_header(buffer))], leader_epoch=Epoch(0), now_ms=1)
    log.roll()
    put(log, ("b", "1"))
    before = read_batches(log, 0)
    assert clean(log).records_removed == 0
    assert read_batches(log, 0) == before
    put(log, ("a", "2"))
    log.roll()
    put(log, ("b", "2"))
    clean(log)
    assert [offset for offset, _, _ in pairs_of(log)] == [1, 2, 3, 4, 5]


def test_segments_that_retention_removes_meanwhile_are_no_damage() -> None:
    """With compact,delete a segment may go between the two passes; the next run finds what is left."""
    for wait in range(4):
        log = filled(SimDisk())
        reads = 0

        def pace(size_bytes: int) -> None:
            nonlocal reads
            reads += 1
            if reads == wait + 1:  # noqa: B023 - called within this round
                log.delete_before(Offset(7))  # noqa: B023

        for segment in log.segments:
            segment.file.release()
        cleaning = log.compaction.begin(CompactionSettings(), now_ms=2000, stable_end=Offset(9))
        with pytest.raises(CompactionCancelledError):
            run_to_the_end(cleaning, pace)
        cleaning.abandon()
        clean(log)
        assert pairs_of(log) == [found for found in KEPT if found[0] >= 7]


def run_to_the_end(cleaning: Cleaning, pace: Callable[[int], None]) -> None:
    while (swap := cleaning.write_next(pace, lambda: False)) is not None:
        swap()


def test_the_room_of_replaced_segments_is_given_back_as_the_run_goes_on() -> None:
    log = filled(SimDisk())
    replaced = [segment.file for segment in log.segments[:3]]
    assert all(file.handle for file in replaced)
    cleaning = log.compaction.begin(CompactionSettings(), now_ms=2000, stable_end=Offset(9))
    swap = cleaning.write_next(lambda size_bytes: None, lambda: False)
    assert swap is not None
    swap()
    assert all(file.is_open for file in replaced)
    assert cleaning.write_next(lambda size_bytes: None, lambda: False) is None
    assert not any(file.is_open for file in replaced)
    cleaning.abandon()


def test_a_truncation_into_a_gap_ends_where_the_gap_begins() -> None:
    """Below what was committed, as after an unclean election: a follower fetches again from where its log then ends."""
    disk = SimDisk()
    log = filled(disk)
    clean(log)
    assert [offset for offset, _, _ in pairs_of(log)][:2] == [2, 5]
    assert log.truncate(Offset(4), now_ms=2000) == 3
    assert log.compaction.first_dirty_offset == 3
    put(log, ("new", "1"))
    log.close()
    reports = Reports()
    again = open_log(disk, PLAIN, reports=reports)
    assert not reports.seen, reports.seen
    assert pairs_of(again) == [(2, "only 1", "1"), (3, "new", "1")]
    assert again.compaction.first_dirty_offset <= 3


def test_a_copy_that_begins_anew_below_what_was_clean_is_all_dirty() -> None:
    """Records that were never cleaned would count as clean: a tombstone would go before what it deleted."""
    disk = SimDisk()
    log = filled(disk)
    log.delete_before(Offset(7))
    clean(log)
    log.roll()
    log.flush(sync=True)
    log.delete_before(log.log_end_offset)
    log.truncate(Offset(2), now_ms=2000, discard_all=True)
    put(log, ("deleted", "1"), ("a", "1"))
    put(log, ("deleted", None))
    log.roll()
    put(log, ("z", "1"))
    settings = CompactionSettings(delete_retention_ms=0)
    for now_ms in (3000, 4000):
        clean(log, settings, now_ms=now_ms)
        put(log, (f"new at {now_ms}", "1"))
        log.roll()
        put(log, ("z", "1"))
    clean(log, settings, now_ms=5000)
    assert "deleted" not in [key for _, key, _ in pairs_of(log)]
    assert open_log(disk.after_kill(), PLAIN).compaction.first_dirty_offset > 2


def test_damage_where_there_was_damage_before_the_log_began_anew_is_told_again() -> None:
    disk, reports = SimDisk(), Reports()
    log = open_log(disk, PLAIN, reports=reports)
    for life in range(2):
        put(log, ("a", "1"))
        put(log, ("a", "2"))
        log.roll()
        put(log, ("c", "1"))
        disk.nodes[f"{DIRECTORY}/{file_name(0)}"].data[100] ^= 1
        with pytest.raises(StorageError, match="CRC of the batch is wrong"):
            clean(log)
        assert len(reports.damage) == life + 1
        log.truncate(Offset(0), now_ms=2000, discard_all=True)
