"""The index of a segment is read by those who search it: the writer never waits for that, and nothing gets lost."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.logs import SMALL, Reports, append, batch, open_log, read_one
from tests.support.waiting import WAIT_S

from logboom.base.errors import OffsetOutOfRangeError
from logboom.base.ids import Offset
from logboom.sim.disk import SimDisk
from logboom.storage import LogConfig, PartitionLog
from logboom.storage.segment.sparse_index import SparseIndex

ONE_SEGMENT = replace(SMALL, segment_bytes=1 << 20)


def write(log: PartitionLog, count: int) -> None:
    for _ in range(count):
        append(log, batch(1, 100))
    log.flush(sync=True)


def values(log: PartitionLog) -> list[bytes | None]:
    return [read_one(log, offset) for offset in range(log.log_end_offset)]


@pytest.fixture
def disk() -> SimDisk:
    """A log of one segment with 100 batches, killed: nothing of it is in memory."""
    disk = SimDisk()
    write(open_log(disk, ONE_SEGMENT), 100)
    return disk


@contextmanager
def hanging(disk: SimDisk, suffix: str) -> Iterator[threading.Event]:
    """Reads of files whose name ends so hang; set once one of them does."""
    entered, go_on = threading.Event(), threading.Event()

    def wait(operation: str, path: str) -> None:
        if operation == "read" and path.endswith(suffix) and threading.current_thread() is not threading.main_thread():
            entered.set()
            assert go_on.wait(WAIT_S)

    disk.fault = wait
    try:
        yield entered
    finally:
        go_on.set()


@pytest.mark.parametrize("suffix", [".index", ".log"])
def test_a_search_that_hangs_holds_up_neither_writes_nor_other_searches(disk: SimDisk, suffix: str) -> None:
    log = open_log(disk, ONE_SEGMENT)
    found: list[bytes | None] = []
    search = threading.Thread(target=lambda: found.append(read_one(log, 50)), daemon=True)
    with hanging(disk, suffix) as entered:
        search.start()
        assert entered.wait(WAIT_S)
        write(log, 100)
        log.checkpoint()
        assert log.durable_end == 200
        assert read_one(log, 60) is not None
        assert read_one(log, 150) is not None
        assert not found
    search.join(WAIT_S)
    assert found == [read_one(log, 50)]
    assert None not in values(log)


def test_a_save_that_hangs_holds_up_neither_searches_nor_the_end_of_the_segment() -> None:
    """Two searches make the index of one complete segment; the write of the first does not return."""
    disk = SimDisk()
    write(open_log(disk, SMALL), 200)
    log = open_log(disk, SMALL)
    first = log.segments[0]
    disk.unlink(first.index.path)
    entered, go_on = threading.Event(), threading.Event()
    stuck = threading.Thread(target=lambda: read_one(log, 1), daemon=True)

    def wait(operation: str, path: str) -> None:
        if operation == "write" and path == first.index.path and threading.current_thread() is stuck:
            entered.set()
            assert go_on.wait(WAIT_S)

    disk.fault = wait
    done: list[bytes | None] = []

    def others() -> None:
        first.file.cached_index = None  # as where that was dropped for memory, or another search is not done yet
        done.append(read_one(log, 1))
        first.index.retire()

    try:
        stuck.start()
        assert entered.wait(WAIT_S)
        other = threading.Thread(target=others, daemon=True)
        other.start()
        other.join(WAIT_S)
        assert not other.is_alive()
    finally:
        go_on.set()
    stuck.join(WAIT_S)
    assert done[0] is not None


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 30), min_size=1, max_size=6), st.integers(0, 199), st.booleans())
def test_what_is_written_while_the_index_is_read_is_found(during: list[int], offset: int, rolls: bool) -> None:
    """Writes, and ends of segments, between any two reads of a search."""
    disk = SimDisk()
    config = SMALL if rolls else ONE_SEGMENT
    write(open_log(disk, config), 200)
    log = open_log(disk, config)
    left = list(during)

    def write_meanwhile(operation: str, path: str) -> None:
        if operation == "read" and left:
            write(log, left.pop())

    disk.fault = write_meanwhile
    assert read_one(log, offset) is not None
    disk.fault = lambda operation, path: None
    assert None not in values(log)
    log.close()
    reports = Reports()
    assert len(values(open_log(disk, config, reports=reports))) == log.log_end_offset
    assert not reports.seen


def open_closed_log(disk: SimDisk) -> PartitionLog:
    """The log once more, after it was closed: recovery had nothing to walk, and does not know how the index ends."""
    open_log(disk, ONE_SEGMENT).close()
    return open_log(disk, ONE_SEGMENT)


def test_an_index_that_fell_behind_is_whole_again_after_a_close(disk: SimDisk) -> None:
    log = open_closed_log(disk)
    write(log, 400)
    assert log.reader.index_is_behind
    log.close()
    assert len(disk.nodes[log.segments[-1].index.path].data) // 28 >= 100, "one entry for some three batches"


def test_the_next_checkpoint_saves_an_index_that_was_loaded(disk: SimDisk) -> None:
    log = open_closed_log(disk)
    write(log, 400)
    path = log.segments[-1].index.path
    before = len(disk.nodes[path].data)
    log.checkpoint()
    assert len(disk.nodes[path].data) == before
    log.reader.load_index()
    assert not log.reader.index_is_behind
    log.checkpoint()
    assert len(disk.nodes[path].data) > before


def entries(disk: SimDisk, log: PartitionLog) -> bytes:
    return bytes(disk.nodes[log.segments[-1].index.path].data)


def test_a_killed_log_goes_on_with_its_index_unread(disk: SimDisk) -> None:
    """What recovery walked and what is written then goes behind the last entry, as if the index had been in memory."""
    unread, read = disk.copy(), disk.copy()
    log, other = open_log(unread, ONE_SEGMENT), open_log(read, ONE_SEGMENT)
    other.reader.load_index()
    for one in (log, other):
        write(one, 400)
        one.checkpoint()
    assert not log.reader.index_is_behind
    assert log.segments[-1].file.cached_index is None
    assert entries(unread, log) == entries(read, other)
    assert len(entries(unread, log)) // 28 >= 100
    for one in (log, other):
        write(one, 100)
        one.close()
    assert entries(unread, log) == entries(read, other)


def test_a_log_killed_again_and_again_is_walked_from_its_last_recovery_point_alone() -> None:
    """With a recovery point each MiB or so: 80 batches of 100 KB are written between two kills."""
    disk, config, reads = SimDisk(), LogConfig(), []
    log = open_log(disk, config)
    for _ in range(4):
        for _ in range(80):
            append(log, batch(1, 100_000))
            log.flush(sync=True)
        disk.fault = lambda operation, path: reads.append(path) if operation == "read" else None
        log = open_log(disk, config)
        disk.fault = lambda operation, path: None
        assert len([path for path in reads if path.endswith(".log")]) <= 60
        reads.clear()
    assert None not in values(log)


def test_an_index_whose_last_entry_leads_nowhere_is_not_gone_on_with(disk: SimDisk) -> None:
    """Its CRC is right, but no batch begins there: the index is made again when it is asked for."""
    log = open_log(disk, ONE_SEGMENT)
    path = log.segments[-1].index.path
    position, data, _ = _with_last_position_off_by_one(entries(disk, log))
    disk.open(path).write(position, [data])
    reports = Reports()
    log = open_log(disk, ONE_SEGMENT, reports=reports)
    write(log, 200)
    log.checkpoint()
    assert None not in values(log)
    log.close()
    again = open_log(disk, ONE_SEGMENT)
    assert None not in values(again)


def _with_last_position_off_by_one(data: bytes) -> tuple[int, bytes, int]:
    index = SparseIndex.load(data, SMALL.index_interval_bytes, Offset(0), 1 << 40)
    assert index is not None
    index.positions[-1] += 1
    index.saved -= 1
    return index.pending_bytes()


def test_a_cut_during_a_load_of_the_index_leaves_no_entry_behind_the_end(disk: SimDisk) -> None:
    log = open_log(disk, ONE_SEGMENT)
    pending = [Offset(40)]

    def cut_meanwhile(operation: str, path: str) -> None:
        if operation == "read" and path.endswith(".index") and pending:
            log.truncate(pending.pop(), now_ms=1_000)

    disk.fault = cut_meanwhile
    with pytest.raises(OffsetOutOfRangeError, match="Offset 90 is outside of 0 to 40"):
        read_one(log, 90)
    disk.fault = lambda operation, path: None
    assert log.log_end_offset == 40
    write(log, 100)
    assert len(values(log)) == 140
    assert None not in values(log)


def test_a_search_that_takes_too_long_is_done_again(disk: SimDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("logboom.storage.segment.index_file._ADDED_MAX", 10)
    log = open_closed_log(disk)
    pending = [50]

    def write_meanwhile(operation: str, path: str) -> None:
        if operation == "read" and path.endswith(".index") and pending:
            write(log, pending.pop())

    disk.fault = write_meanwhile
    assert read_one(log, 10) is not None
    assert log.reader.index_is_behind
    assert read_one(log, 140) is not None
    assert not log.reader.index_is_behind
