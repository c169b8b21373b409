"""A disk that turns bits: a read never gives other bytes than were written, and says which batch it is that is gone."""

from random import Random

import pytest
from tests.support.logs import Reports, append, batch, open_log, read_one

from logboom.base.ids import Epoch
from logboom.sim.disk import SimDisk
from logboom.storage import LogConfig, PartitionLog

CONFIG = LogConfig(segment_bytes=700, index_interval_bytes=150, recovery_point_bytes=400, preallocate_bytes=0)


def written(disk: SimDisk, *, closed: bool) -> tuple[PartitionLog, dict[int, bytes]]:
    log = open_log(disk, CONFIG)
    found: dict[int, bytes] = {}
    for number in range(12):
        if number % 5 == 0:
            log.epochs.begin(Epoch(number // 5), log.durable_end)
        buffer = batch(1, 40 + 30 * (number % 3), producer=number % 2, epoch=0, sequence=number // 2)
        base = append(log, buffer, leader_epoch=number // 5).base_offset
        found[base] = bytes(buffer)
        log.flush(sync=True)
    if closed:
        log.close()
    return log, found


def check(disk: SimDisk, name: str, batches: dict[int, bytes], before: PartitionLog) -> None:
    reports = Reports()
    log = open_log(disk, CONFIG, reports=reports)
    assert log.log_end_offset == len(batches)
    found = {base: read_one(log, base) for base in batches}
    wrong = {base: data for base, data in found.items() if data not in (None, batches[base])}
    assert not wrong, f"other bytes than were written at {sorted(wrong)}"
    gone = [base for base, data in found.items() if data is None]
    if name.endswith(".log"):
        assert len(gone) <= 1
        assert bool(gone) == bool(reports.damage)
        assert {damage.path for damage in reports.damage} <= {name}
    else:
        assert not gone
        assert not reports.damage
        assert [state.batches for _, state in log.producers] == [state.batches for _, state in before.producers]
        assert log.epochs.entries == before.epochs.entries


def sweep(closed: bool, bits: tuple[int, ...] | None) -> None:
    """Every byte of every file; one bit of it, drawn, or all that are named."""
    disk = SimDisk()
    before, batches = written(disk, closed=closed)
    random = Random(closed)
    for name in sorted(name for name, node in disk.nodes.items() if node.data):
        for at in range(len(disk.nodes[name].data)):
            for bit in bits or (random.randrange(8),):
                after = disk.copy()
                after.nodes[name].data[at] ^= 1 << bit
                try:
                    check(after, name, batches, before)
                except AssertionError as error:
                    raise AssertionError(f"bit {bit} of byte {at} of {name}, closed={closed}: {error}") from error


@pytest.mark.in_turn(2)
@pytest.mark.parametrize("closed", [True, False])
def test_a_bit_of_every_byte(closed: bool) -> None:
    """`check` asserts of each: other bytes are never read, and what is damaged in a log is named."""
    sweep(closed, None)


@pytest.mark.slow
@pytest.mark.parametrize("closed", [True, False])
def test_every_bit(closed: bool) -> None:
    """As above, all eight bits of every byte."""
    sweep(closed, tuple(range(8)))
