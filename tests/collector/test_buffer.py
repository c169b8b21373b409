"""The disk buffer: what was committed is there after a crash, in order, and never more than the bound."""

from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logboom.base.errors import DiskFullError
from logboom.base.units import MIB
from logboom.collector.batch import Lines
from logboom.collector.buffer import DiskBuffer
from logboom.collector.config import BufferConfig
from logboom.host import OsDisk
from logboom.sim.disk import SimDisk
from logboom.storage import Damage, Notice

reports: list[Damage | Notice] = []


def open_buffer(disk: OsDisk | SimDisk, reading_from: int = 0, max_bytes: int = 16 * MIB) -> DiskBuffer:
    return DiskBuffer(
        disk,
        "buffers/i",
        BufferConfig(max_bytes=max_bytes),
        reading_from=reading_from,
        now_ms=1,
        report=reports.append,
    )


def lines(*values: bytes, start: int = 0, unfinished: frozenset[int] = frozenset()) -> Lines:
    starts = [start + 10 * index for index in range(len(values))]
    return Lines(list(values), starts, start + 10 * len(values), unfinished)


def leave(disk: SimDisk, free_bytes: int) -> None:
    disk.capacity_bytes += free_bytes - disk.free_bytes


def state(buffer: DiskBuffer) -> tuple[bool, bool]:
    return buffer.is_drained, buffer.has_staged


def read_all(buffer: DiskBuffer) -> list[bytes]:
    values: list[bytes] = []
    while (buffered := buffer.read()) is not None:
        values += buffered.lines.values
        buffer.acknowledge(buffered.next_offset)
    return values


def test_lines_come_back_with_position_time_and_mark(tmp_path: Path) -> None:
    buffer = open_buffer(OsDisk(tmp_path))
    buffer.stage(lines(b"a", b"", b"\xff\x00", start=100, unfinished=frozenset({1})), 777)
    assert buffer.read() is None
    buffer.commit()
    buffered = buffer.read()
    assert buffered is not None
    assert buffered.lines.values == [b"a", b"", b"\xff\x00"]
    assert buffered.lines.starts == [0, 1, 2], "its offsets"
    assert buffered.lines.unfinished == {1}
    assert (buffered.time_ms, buffered.next_offset) == (777, 3)
    assert state(buffer) == (False, False)
    buffer.acknowledge(buffered.next_offset)
    assert state(buffer) == (True, False)
    buffer.close()


def test_what_was_not_acknowledged_is_read_again_after_a_restart(tmp_path: Path) -> None:
    buffer = open_buffer(OsDisk(tmp_path))
    for value in (b"a", b"b", b"c"):
        buffer.stage(lines(value), 1)
        buffer.commit()
    first = buffer.read()
    assert first is not None
    buffer.acknowledge(first.next_offset)
    acked = buffer.acked
    again = open_buffer(OsDisk(tmp_path), reading_from=acked)
    assert read_all(again) == [b"b", b"c"]
    again.close()


def test_space_is_given_back_and_the_bound_holds(tmp_path: Path) -> None:
    buffer = open_buffer(OsDisk(tmp_path), max_bytes=16 * MIB)
    number, taken = 0, []
    for _ in range(3):
        while not buffer.is_full:
            value = b"%d:" % number + b"x" * 200_000
            buffer.stage(lines(value), 1)
            buffer.commit()
            taken.append(value)
            number += 1
        assert buffer.fill_bytes <= 16 * MIB
        assert read_all(buffer) == taken
        taken = []
        buffer.release(buffer.acked)
        buffer.give_back()
        assert buffer.fill_bytes <= 4 * MIB
    buffer.close()


def test_a_damaged_batch_is_counted_and_the_rest_is_read(tmp_path: Path) -> None:
    buffer = open_buffer(OsDisk(tmp_path))
    for value in (b"first", b"second", b"third"):
        buffer.stage(lines(value), 1)
        buffer.commit()
    buffer.close()
    [log] = (tmp_path / "buffers/i").glob("*.log")
    content = bytearray(log.read_bytes())
    content[content.index(b"second")] ^= 1
    log.write_bytes(content)
    again = open_buffer(OsDisk(tmp_path))
    values: list[bytes] = []
    for _ in range(10):
        buffered = again.read()
        values += buffered.lines.values if buffered else []
    assert values == [b"first", b"third"]
    assert again.lines_damaged == 1
    again.close()


@settings(max_examples=40, deadline=None)
@given(st.lists(st.lists(st.binary(max_size=600), min_size=1, max_size=5), max_size=12), st.integers(0, 2**32))
def test_no_committed_line_is_lost_by_a_power_failure(turns: list[list[bytes]], seed: int) -> None:
    disk = SimDisk()
    buffer = open_buffer(disk)
    for turn in turns:
        buffer.stage(lines(*turn), 1)
        buffer.commit()
    buffer.stage(lines(b"never committed"), 1)
    again = open_buffer(disk.power_cut(Random(seed)))
    assert read_all(again) == [value for turn in turns for value in turn]


def test_a_full_disk_keeps_lines_staged_until_there_is_room() -> None:
    disk = SimDisk()
    buffer = open_buffer(disk)
    buffer.stage(lines(b"a"), 1)
    buffer.commit()
    leave(disk, 1000)
    buffer.stage(lines(b"b" * 500), 1)
    buffer.stage(lines(b"c" * 500_000), 1)
    with pytest.raises(DiskFullError):
        buffer.commit()
    assert state(buffer) == (False, True)
    with pytest.raises(DiskFullError):
        buffer.commit()
    leave(disk, 4_000_000)
    buffer.commit()
    assert state(buffer) == (False, False)
    assert read_all(buffer) == [b"a", b"b" * 500, b"c" * 500_000]


def test_dropping_what_a_full_disk_did_not_take_is_counted() -> None:
    disk = SimDisk()
    buffer = open_buffer(disk)
    leave(disk, 10)
    buffer.stage(lines(b"b", b"c"), 1)
    with pytest.raises(DiskFullError):
        buffer.commit()
    assert buffer.drop() == 2
    leave(disk, 4_000_000)
    buffer.stage(lines(b"d"), 1)
    buffer.commit()
    assert read_all(buffer) == [b"d"]


def test_positions_that_do_not_fit_the_buffer_are_not_believed(tmp_path: Path) -> None:
    buffer = open_buffer(OsDisk(tmp_path), reading_from=99)
    buffer.stage(lines(b"a"), 1)
    buffer.commit()
    assert read_all(buffer) == [b"a"]
    buffer.close()
