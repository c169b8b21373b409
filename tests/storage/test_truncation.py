"""Truncation leaves the log as if it had only ever been given the records that stay."""

import errno
from random import Random

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from tests.support.logs import Reports, append, batch, filled, open_log, read_batches, read_one

from logboom.base.errors import OffsetOutOfRangeError, RetriableStorageError, StorageError
from logboom.base.ids import Epoch, Offset
from logboom.records import read_header
from logboom.sim.disk import SimDisk
from logboom.storage import LogConfig, PartitionLog

PRODUCERS = 4
CONFIGS = (
    LogConfig(segment_bytes=700, index_interval_bytes=100, recovery_point_bytes=250, preallocate_bytes=0),
    LogConfig(segment_bytes=1500, recovery_point_bytes=400, preallocate_bytes=900, max_producers=2),
    LogConfig(preallocate_bytes=0, max_producers=3),
)

Sent = tuple[int, int]
"""Producer and number of records of one batch."""


def remembered(log: PartitionLog) -> list[object]:
    """Producers in the order in which they were heard of last: epoch and batches of each."""
    return [(producer, state.epoch, state.batches) for producer, state in log.producers]


def send(log: PartitionLog, sent: Sent) -> None:
    producer, count = sent
    sequence = int(log.log_end_offset)
    if producer < 0:
        append(log, batch(count, 80))
        return
    state = next((state for known, state in log.producers if known == producer), None)
    if state is not None:
        sequence = state.batches[-1].last_sequence + 1
    append(log, batch(count, 80, producer=producer, epoch=0, sequence=sequence))


sends = st.tuples(st.integers(-1, PRODUCERS - 1), st.integers(1, 3))
steps = st.lists(
    st.one_of(sends, sends, sends, st.sampled_from(["flush", "flush", "roll", "delete", "close", "kill"])),
    min_size=15,
    max_size=60,
)


@given(
    config=st.sampled_from(CONFIGS),
    steps=steps,
    deleted=st.floats(0, 1),
    cut=st.floats(0, 1),
    random=st.randoms(use_true_random=False),
)
@settings(max_examples=150, deadline=None, phases=[Phase.generate], suppress_health_check=[HealthCheck.too_slow])
def test_producers_are_those_of_a_log_that_only_ever_got_the_records_that_stay(
    config: LogConfig, steps: list[Sent | str], deleted: float, cut: float, random: Random
) -> None:
    disk = SimDisk()
    log = open_log(disk, config)
    history: dict[Offset, Sent] = {}
    for step in steps:
        match step:
            case "flush":
                log.flush(sync=True)
            case "roll":
                log.roll()
            case "delete":
                log.delete_before(
                    Offset(int(log.log_start_offset + deleted * (log.durable_end - log.log_start_offset)))
                )
            case "close":
                log.close()
                log = open_log(disk, config)
            case "kill":
                log = open_log(disk, config)
                history = {base: sent for base, sent in history.items() if base < log.log_end_offset}
            case (_, _):
                history[log.log_end_offset] = step
                send(log, step)
    bases = [base for base in history if base >= log.log_start_offset]
    offset = [*bases, log.log_end_offset][int(cut * len(bases))]
    log.truncate(offset, now_ms=1000)

    twin = open_log(SimDisk(), config)
    for base, sent in history.items():
        if base < log.log_end_offset:
            assert twin.log_end_offset == base
            send(twin, sent)
    assert log.log_end_offset == min(offset, log.written_end)
    assert remembered(log) == remembered(twin)
    for survivor in (disk.copy(), disk.power_cut(random)):
        reports = Reports()
        assert remembered(open_log(survivor, config, reports=reports)) == remembered(twin)
        assert not reports.damage


def test_producers_of_deleted_records_are_known_after_a_truncation_far_back() -> None:
    """Retention removed all records of producer 1 but not the segment behind them: its retries are still known."""
    config = LogConfig(segment_bytes=700, recovery_point_bytes=100_000, preallocate_bytes=0)
    log = open_log(SimDisk(), config)
    append(log, batch(1, 400, producer=1, epoch=0, sequence=0))
    for _ in range(12):
        append(log, batch(1, 400))
        log.flush(sync=True)
    first_kept = log.segments[2].base
    log.delete_before(first_kept)
    log.truncate(Offset(first_kept + 1), now_ms=1000)
    assert append(log, batch(1, 400, producer=1, epoch=0, sequence=0)).duplicate


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


def test_a_leadership_that_wrote_nothing_goes_with_a_truncation_to_the_end() -> None:
    """Else a replica names its epoch for ever, and a leader that knows nothing of it asks for the same cut again."""
    log, _ = filled(SimDisk(), 3)
    end = log.log_end_offset
    log.epochs.begin(Epoch(log.epochs.latest + 2), end)
    before = log.epochs.entries
    log.truncate(end, now_ms=0)
    assert log.epochs.entries == before[:-1]
    assert log.log_end_offset == end


def test_damage_in_a_log_whose_cut_failed_half_way_is_reported() -> None:
    """It stays for readers, who must not be told for good that it is being cut back."""
    disk, reports = SimDisk(), Reports()
    log = open_log(disk, CONFIGS[2], reports=reports)
    for _ in range(8):
        append(log, batch(1, 80))
    log.flush(sync=True)

    def fails(operation: str, path: str) -> None:
        if operation == "truncate":
            raise OSError(errno.EIO, "no disk", path)

    disk.fault = fails
    with pytest.raises(StorageError):
        log.truncate(Offset(5), now_ms=1000)
    disk.fault = lambda operation, path: None
    name = next(name for name in disk.nodes if name.endswith(".log"))
    disk.nodes[name].flip(8 * 100)
    with pytest.raises(StorageError) as told:
        log.reader.read(Offset(0), 10_000, ceiling=Offset(5))
    assert not isinstance(told.value, RetriableStorageError)
    assert reports.damage


def read_all(log: PartitionLog) -> None:
    """Read as a consumer does, who goes on from where the last read ended."""
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        offset = read_header(read_batches(log, offset, 1)[-1]).next_offset
    assert offset == log.log_end_offset


MOMENTS = ("open", "read", "sync", "write", "truncate", "unlink", "sync_dir", "rename")


@given(
    config=st.sampled_from(CONFIGS),
    sent=st.lists(sends, min_size=8, max_size=30),
    wanted=st.floats(0, 1),
    cut=st.floats(0, 1),
    ask=st.sampled_from(["offset", "time"]),
    skip=st.integers(0, 12),
)
@settings(max_examples=200, deadline=None, phases=[Phase.generate], suppress_health_check=[HealthCheck.too_slow])
@pytest.mark.parametrize("begins", ["before the cut", "in the cut", "after the cut"])
def test_a_read_beside_a_truncation_finds_no_damage(
    begins: str, config: LogConfig, sent: list[Sent], wanted: float, cut: float, ask: str, skip: int
) -> None:
    """A follower's fetch may have been sent to a thread while this broker led, and its log is cut back since."""
    disk, reports = SimDisk(), Reports()
    log = open_log(disk, config, reports=reports)
    for one in sent:
        send(log, one)
    log.flush(sync=True)
    read_all(log)
    end = log.log_end_offset
    offset, until = Offset(int(wanted * end)), Offset(int(cut * end))

    def read() -> None:
        try:
            if ask == "time":
                log.reader.offset_for_time(1, ceiling=end)
            else:
                log.reader.read(offset, 10_000, ceiling=end)
        except (OffsetOutOfRangeError, RetriableStorageError):
            assert begins == "in the cut" or offset > log.log_end_offset

    def truncate() -> None:
        log.truncate(until, now_ms=1000)

    first, other, within = {
        "before the cut": (read, truncate, ("read", "open")),
        "in the cut": (truncate, read, MOMENTS),
        "after the cut": (truncate, read, ()),
    }[begins]
    left = skip

    def meanwhile(operation: str, path: str) -> None:
        nonlocal left
        if operation in within:
            left -= 1
            if left < 0:
                disk.fault = lambda operation, path: None
                other()

    disk.fault = meanwhile
    first()
    disk.fault = lambda operation, path: None
    other()
    send(log, (-1, 2))
    log.flush(sync=True)
    read_all(log)
    assert not reports.damage


def test_old_segments_that_are_removed_late_take_nothing_of_a_log_that_has_begun_again_below() -> None:
    """A thread removes them by their names. The log was emptied meanwhile, and has files of the same names."""
    disk = SimDisk()
    log, _ = filled(disk)
    assert len(log.segments) > 3
    detached = log.detach_before(log.segments[3].base)
    log.truncate(Offset(0), now_ms=1_000, discard_all=True)
    for _ in range(60):
        append(log, batch(2, 60))
    log.flush(sync=True)
    detached.remove()
    assert all(disk.exists(segment.path) for segment in log.segments)
    log.close()
    reports = Reports()
    again = open_log(disk, reports=reports)
    assert (again.log_start_offset, again.log_end_offset, reports.damage) == (0, 120, [])
    assert all(read_one(again, offset) for offset in range(0, 120, 2))


def test_a_log_does_not_begin_again_while_an_old_segment_is_being_removed() -> None:
    disk = SimDisk()
    log, _ = filled(disk)
    detached = log.detach_before(log.segments[3].base)
    refused: list[str] = []

    def emptied(operation: str, path: str) -> None:
        if operation == "unlink" and path.endswith(".log") and not refused:
            with pytest.raises(RetriableStorageError) as caught:
                log.truncate(Offset(0), now_ms=1_000, discard_all=True)
            refused.append(str(caught.value))

    disk.fault = emptied
    detached.remove()
    assert refused == ["Old segments are still being removed."]
    disk.fault = lambda operation, path: None
    assert log.truncate(Offset(0), now_ms=1_000, discard_all=True) == 0
    append(log, batch())
    assert log.flush(sync=True) == 1
