"""Reading and checking everything durable of a log that is in use: damage is found wherever it is, and only damage."""

import errno
from collections.abc import Callable
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.logs import DIRECTORY, SMALL, Reports, append, batch, filled, open_log

from logboom.base.ids import Offset
from logboom.sim.disk import SimDisk
from logboom.storage import Damage, LogView, PartitionLog, verify

STRETCH = 900
LAST = Offset(300)
FIRST_FILE = f"{DIRECTORY}/00000000000000000000.log"


def scrub(log: PartitionLog, ceiling: int | None = None, start: int = 0) -> tuple[int, int]:
    """A whole pass: how many bytes it read, and how many damaged places it found."""
    one, size_bytes, damages = log.reader.scrub(Offset(start)), 0, 0
    for _ in range(1_000):
        found = one.check_next(Offset(log.durable_end if ceiling is None else ceiling), STRETCH)
        size_bytes += found.size_bytes
        damages += found.damages
        if found.is_last:
            return size_bytes, damages
    raise AssertionError("the pass does not end")


@cache
def closed() -> SimDisk:
    """The disk of a log of some segments."""
    filled(disk := SimDisk())[0].close()
    return disk


def opened() -> tuple[PartitionLog, Reports, SimDisk]:
    """A log, what it reports, and its disk."""
    disk, reports = closed().copy(), Reports()
    return open_log(disk, reports=reports), reports, disk


def test_a_good_log_is_read_whole_and_once() -> None:
    log, reports, _ = opened()
    append(log, batch(3))
    log.flush(sync=True)
    assert scrub(log) == (log.size_bytes, 0)
    assert not reports.damage


def test_nothing_is_read_above_the_ceiling_or_above_what_is_durable() -> None:
    log, reports, disk = opened()
    end = log.size_bytes
    append(log, batch(3))
    log.flush(sync=False)
    disk.nodes[log.segments[-1].path].data[-1] ^= 1
    assert scrub(log) == (end, 0)
    disk.nodes[FIRST_FILE].data[1_000] ^= 1
    assert scrub(log, ceiling=6)[1] == 0
    assert not reports.damage


def test_a_pass_that_is_taken_up_again_leaves_out_the_segments_before() -> None:
    log, _, _ = opened()
    second = log.segments[1]
    assert scrub(log, start=second.base + 3) == (log.size_bytes - log.segments[0].size_bytes, 0)
    assert scrub(log, start=log.durable_end) == (0, 0)


def test_a_log_whose_start_has_moved_is_read_from_the_segment_that_holds_it() -> None:
    log, _, _ = opened()
    log.delete_before(Offset(log.segments[1].base + 1))
    assert scrub(log) == (log.size_bytes, 0)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_it_finds_what_verify_finds(data: st.DataObject) -> None:
    log, reports, disk = opened()
    names = [segment.path for segment in log.segments]
    for _ in range(data.draw(st.integers(1, 3), "flips")):
        content = disk.nodes[data.draw(st.sampled_from(names), "file")].data
        content[data.draw(st.integers(0, len(content) - 1), "byte")] ^= 1 << data.draw(st.integers(0, 7), "bit")
    seen: list[object] = []
    verify(LogView(disk, DIRECTORY), seen.append)
    expected = [one for one in seen if isinstance(one, Damage)]
    assert scrub(log)[1] == len(expected)
    assert set(reports.damage) == set(expected)


def test_each_place_is_reported_once_and_counted_each_time() -> None:
    log, reports, disk = opened()
    disk.nodes[FIRST_FILE].data[200] ^= 1
    assert (scrub(log)[1], scrub(log)[1]) == (1, 1)
    assert len(reports.damage) == 1


def test_a_file_that_is_cut_or_gone_is_damaged() -> None:
    log, reports, disk = opened()
    cut, gone = log.segments[1].path, log.segments[3].path
    del disk.nodes[cut].data[-10:]
    disk.unlink(gone)
    assert scrub(log)[1] == 2
    assert [one.path for one in reports.damage] == [cut, gone]


@pytest.mark.parametrize("code", [errno.EIO, errno.EBADMSG])
def test_what_the_disk_does_not_give_back_is_damaged(code: int) -> None:
    log, reports, disk = opened()

    def fault(operation: str, path: str) -> None:
        if operation == "read" and path == FIRST_FILE:
            raise OSError(code, "a bad sector")

    disk.fault = fault
    assert scrub(log)[1] == 1
    assert "a bad sector" in reports.damage[0].reason


def test_a_lack_of_handles_is_no_damage() -> None:
    log, reports, disk = opened()

    def fault(operation: str, path: str) -> None:
        raise OSError(errno.EMFILE, "too many open files")

    disk.fault = fault
    with pytest.raises(OSError, match="too many"):
        scrub(log)
    disk.fault = lambda operation, path: None
    assert scrub(log) == (log.size_bytes, 0)
    assert not reports.damage


def emptied(log: PartitionLog) -> None:
    log.truncate(Offset(0), now_ms=1_000, discard_all=True)


def cut_off(log: PartitionLog) -> None:
    log.truncate(Offset(3), now_ms=1_000)


def deleted(log: PartitionLog) -> None:
    log.delete_before(LAST)


@pytest.mark.parametrize("change", [emptied, cut_off, deleted])
@pytest.mark.parametrize("moment", ["open", "read"])
def test_what_happens_to_a_log_meanwhile_is_no_damage(moment: str, change: Callable[[PartitionLog], None]) -> None:
    """It is emptied to be copied anew, cut back, or its records are deleted, right before a file of it is read."""
    log, reports, disk = opened()
    one = log.reader.scrub(Offset(0))
    while one.offset < 30:
        one.check_next(LAST, STRETCH)

    def fault(operation: str, path: str) -> None:
        if operation == moment:
            disk.fault = lambda operation, path: None
            change(log)

    disk.fault = fault
    for _ in range(1_000):
        if one.check_next(LAST, STRETCH).is_last:
            break
    assert not reports.damage


def test_a_small_stretch_takes_a_batch_that_is_larger() -> None:
    log = open_log(SimDisk(), SMALL)
    append(log, batch(3, 1_000))
    log.flush(sync=True)
    assert scrub(log) == (log.size_bytes, 0)
