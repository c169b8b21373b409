"""A flush of many megabytes: synced in parts, each of which is told of and survives a power failure from then on."""

import pytest
from tests.support.logs import PLAIN, append, batch, open_log, read_batches

from logboom.base.errors import DiskFullError
from logboom.base.ids import Offset
from logboom.sim.disk import Always, SimDisk

QUARTER = 256 * 1024


def test_each_part_is_durable_when_it_is_told() -> None:
    disk = SimDisk()
    log = open_log(disk, PLAIN)
    batches = [batch(1, QUARTER) for _ in range(10)]
    for one in batches:
        append(log, one)
    told: list[tuple[Offset, int]] = []

    def on_part(end: Offset) -> None:
        survives = open_log(disk.power_cut(Always(False)), PLAIN)
        told.append((end, survives.log_end_offset))

    assert log.flush(sync=True, on_part=on_part) == 10
    assert told == [(4, 4), (8, 8)], "the last part is the result"
    assert read_batches(log, 8) == batches[8:]


def test_a_lack_of_room_in_a_later_part_takes_nothing_back_that_was_told() -> None:
    disk = SimDisk()
    log = open_log(disk, PLAIN)
    for _ in range(10):
        append(log, batch(1, QUARTER))
    disk.capacity_bytes = sum(len(node.data) for node in disk.nodes.values()) + 6 * QUARTER
    told: list[Offset] = []
    with pytest.raises(DiskFullError):
        log.flush(sync=True, on_part=told.append)
    log.abandon_staged()
    assert told == [4]
    assert log.durable_end == log.log_end_offset == 4


def test_without_syncs_or_a_callback_there_are_no_parts() -> None:
    disk = SimDisk()
    log = open_log(disk, PLAIN)
    told: list[Offset] = []
    for _ in range(10):
        append(log, batch(1, QUARTER))
    assert log.flush(sync=False, on_part=told.append) == 10
    for _ in range(10):
        append(log, batch(1, QUARTER))
    assert log.flush(sync=True) == 20
    assert told == []
