"""A follower's log: it takes its leader's batches as they are, and is cut back where the two differ."""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.logs import Reports, append, batch, open_log, read_batches

from logboom.base.errors import InvalidRecordError, StorageError
from logboom.base.ids import Offset
from logboom.records import iter_batches
from logboom.sim.disk import SimDisk
from logboom.storage import LogConfig, PartitionLog

CONFIG = LogConfig(segment_bytes=900, index_interval_bytes=200, recovery_point_bytes=300, preallocate_bytes=0)


def follow(follower: PartitionLog, leader: PartitionLog, max_bytes: int = 500) -> None:
    """Fetch until there is nothing more."""
    while (start := follower.log_end_offset) < leader.durable_end:
        data = leader.reader.read(start, max_bytes, ceiling=leader.durable_end)
        assert data is not None
        buffer = bytearray(data)
        end = follower.append_replicated(buffer, list(iter_batches(buffer)), now_ms=1000)
        assert bytes(buffer) == bytes(data), "nothing is put into the leader's batches"
        assert follower.flush(sync=True) == end


def known(log: PartitionLog) -> object:
    """Everything that must be alike in two replicas."""
    producers = [(producer, state.epoch, state.batches) for producer, state in log.producers]
    return log.log_end_offset, log.epochs.entries, producers, read_batches(log, log.log_start_offset)


def led(steps: list[tuple[int, int]], log: PartitionLog) -> PartitionLog:
    """A leader's log: each step is a batch of so many records in so many epochs more."""
    epoch = 0
    for number, (count, later) in enumerate(steps):
        epoch += later
        sequence = sum(counts for counts, _ in steps[:number])
        append(log, batch(count, 90, producer=4, epoch=0, sequence=sequence), leader_epoch=epoch)
        log.flush(sync=True)
    return log


@given(
    steps=st.lists(st.tuples(st.integers(1, 3), st.sampled_from([0, 0, 1])), min_size=1, max_size=25),
    max_bytes=st.integers(1, 2000),
    cut=st.floats(0, 1),
    random=st.randoms(use_true_random=False),
)
@settings(max_examples=60, deadline=None)
def test_a_follower_equals_its_leader_before_and_after_a_truncation(
    steps: list[tuple[int, int]], max_bytes: int, cut: float, random: Random
) -> None:
    leader, disk = led(steps, open_log(SimDisk(), CONFIG)), SimDisk()
    follower = open_log(disk, CONFIG)
    follow(follower, leader, max_bytes)
    assert known(follower) == known(leader)
    end = follower.truncate(Offset(int(cut * leader.log_end_offset)), now_ms=1000)
    assert end == follower.log_end_offset
    assert end <= int(cut * leader.log_end_offset)
    reports = Reports()
    follower = open_log(disk.power_cut(random), CONFIG, reports=reports)
    follow(follower, leader, max_bytes)
    assert known(follower) == known(leader)
    assert not reports.damage


def test_batches_that_do_not_continue_the_log_are_refused_whole() -> None:
    leader = led([(2, 0), (2, 1), (2, 0)], open_log(SimDisk()))
    data = leader.reader.read(Offset(0), 10_000, ceiling=leader.durable_end)
    assert data is not None
    batches = list(iter_batches(data))
    follower = open_log(SimDisk())
    for wrong in (batches[1:], [batches[0], batches[2]]):
        with pytest.raises(InvalidRecordError, match="must follow"):
            follower.append_replicated(bytearray(data), wrong, now_ms=1000)
    follower.append_replicated(bytearray(data), batches[:2], now_ms=1000)
    stale = open_log(SimDisk())
    for _ in range(3):
        append(stale, batch(2, 90), leader_epoch=0)
    stale.flush(sync=True)
    old = stale.reader.read(Offset(4), 10_000, ceiling=stale.durable_end)
    assert old is not None
    with pytest.raises(InvalidRecordError, match="leader epoch 0, after one of 1"):
        follower.append_replicated(bytearray(old), list(iter_batches(old)), now_ms=1000)
    assert follower.log_end_offset == 4
    assert follower.epochs.entries == ((0, 0), (1, 2))


def test_nothing_is_appended_while_a_log_is_truncated() -> None:
    disk = SimDisk()
    log = led([(2, 0)] * 10, open_log(disk))
    refused = []

    def append_meanwhile(operation: str, path: str) -> None:
        if operation == "truncate":
            try:
                append(log, batch(1, 10), leader_epoch=1)
            except StorageError as error:
                refused.append(str(error))

    disk.fault = append_meanwhile
    assert log.truncate(Offset(7), now_ms=1000) == 6
    disk.fault = lambda operation, path: None
    assert refused
    assert all("is being truncated" in reason for reason in refused)
    assert append(log, batch(1, 10), leader_epoch=1).base_offset == 6


@given(
    steps=st.lists(st.tuples(st.integers(1, 3), st.sampled_from([0, 0, 1])), min_size=1, max_size=15),
    begin=st.integers(0, 60),
    random=st.randoms(use_true_random=False),
    cut_at=st.integers(0, 30),
)
@settings(max_examples=40, deadline=None)
def test_a_log_that_begins_anew_is_empty_or_has_some_of_its_records_after_a_power_cut(
    steps: list[tuple[int, int]], begin: int, random: Random, cut_at: int
) -> None:
    disk = SimDisk()
    log = led(steps, open_log(disk, CONFIG))
    log.flush(sync=True)
    batches, seen = read_batches(log, Offset(0)), list[SimDisk]()

    def cut(operation: str, path: str) -> None:
        nonlocal cut_at
        cut_at -= 1
        if cut_at == 0:
            seen.append(disk.power_cut(random))

    disk.fault = cut
    assert log.truncate(Offset(begin), now_ms=1000, discard_all=True) == begin
    disk.fault = lambda operation, path: None
    empty: object = (begin, (), [], [])
    assert known(log) == empty
    assert (log.log_start_offset, log.durable_end) == (begin, begin)
    for found in seen:
        reports = Reports()
        left = open_log(found, CONFIG, reports=reports)
        assert not reports.damage
        assert left.log_start_offset in (0, begin)
        assert read_batches(left, left.log_start_offset) == batches[: len(read_batches(left, left.log_start_offset))]
    again = open_log(disk.power_cut(random), CONFIG, reports=Reports())
    assert known(again) == empty
    assert append(again, batch(1, 10), leader_epoch=9).base_offset == begin
    assert again.flush(sync=True) == begin + 1
