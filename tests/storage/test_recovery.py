"""Whatever happens to the files, a log comes back with every acked byte, and never with a wrong one."""

import errno
from dataclasses import dataclass, field
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support.logs import DIRECTORY, PLAIN, SMALL, Reports, append, batch, open_log, read_one

from logboom.base.errors import StorageError
from logboom.base.ids import Epoch, Offset, ProducerId
from logboom.sim.disk import Always, SimDisk, SimFile
from logboom.storage import LogConfig, PartitionLog
from logboom.storage.checkpoint import load as load_checkpoint
from logboom.storage.segment.sparse_index import SparseIndex
from logboom.storage.snapshots import snapshot_offsets

many = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])

configs = st.sampled_from(
    [
        SMALL,
        LogConfig(segment_bytes=1800, index_interval_bytes=1, recovery_point_bytes=300),
        LogConfig(segment_bytes=100_000, index_interval_bytes=1000, recovery_point_bytes=500, preallocate_bytes=3000),
        LogConfig(),
    ]
)


@dataclass
class History:
    """What was done to a log, by its batches."""

    log: PartitionLog
    batches: dict[int, bytes] = field(default_factory=dict)

    def append(self, count: int, size_bytes: int, leader_epoch: int = 0) -> None:
        sequence = self.log.log_end_offset
        buffer = batch(count, size_bytes, timestamp_ms=1000 + sequence, producer=5, epoch=0, sequence=sequence)
        base = append(self.log, buffer, leader_epoch=leader_epoch).base_offset
        self.batches[base] = bytes(buffer)

    def below(self, offset: int) -> dict[int, bytes]:
        return {base: data for base, data in self.batches.items() if base < offset}

    def producers(self) -> list[object]:
        return [(producer, state.epoch, state.batches) for producer, state in self.log.producers]


@st.composite
def histories(draw: st.DrawFn, *, all_synced: bool = False) -> tuple[SimDisk, History, LogConfig]:
    """A log that took appends and flushes, and may have been closed and opened in between."""
    disk, config = SimDisk(), draw(configs)
    history = History(open_log(disk, config))
    epoch = 0
    for step in draw(
        st.lists(st.sampled_from(["append"] * 4 + ["sync", "sync", "write", "reopen", "epoch"]), max_size=40)
    ):
        match step:
            case "append":
                history.append(draw(st.integers(1, 4)), draw(st.sampled_from([1, 60, 400])), epoch)
            case "sync" | "write":
                history.log.flush(sync=step == "sync")
            case "epoch":
                epoch += 1
            case "reopen":
                history.log.close()
                history.log = open_log(disk, config)
    history.append(1, 10, epoch)
    history.log.flush(sync=all_synced)
    return disk, history, config


def check(log: PartitionLog, history: History, damaged: int = 0) -> None:
    """Every batch below the end is the one that was written, but for so many that answer with an error."""
    errors = 0
    for base, data in history.below(log.log_end_offset).items():
        found = read_one(log, base)
        errors += found is None
        assert found is None or found == data
    assert errors <= damaged


def check_end(log: PartitionLog, history: History) -> None:
    """The end of the log is the end of a batch."""
    assert log.log_end_offset in {0, *history.batches, history.log.log_end_offset}


@given(made=histories(), data=st.data())
@many
def test_a_cut_at_any_byte_leaves_a_prefix_of_whole_batches(
    made: tuple[SimDisk, History, LogConfig], data: st.DataObject
) -> None:
    disk, history, config = made
    durable, position = history.log.durable_end, 0
    active = history.log.segments[-1]
    for base, buffer in history.below(durable).items():
        position += len(buffer) if base >= active.base else 0
    after = disk.copy()
    length = len(after.nodes[active.path].data)
    cut = data.draw(st.integers(0, length))
    del after.nodes[active.path].data[cut:]
    reports = Reports()
    log = open_log(after, config, reports=reports)
    check_end(log, history)
    assert log.log_end_offset >= durable
    if cut >= position:
        assert not reports.damage
        check(log, history)
    else:
        # Below the durable end: told, never silently shortened; the offsets stay taken.
        assert reports.damage
        assert log.log_end_offset == durable
        check(log, history, damaged=len(history.batches))
        kept = sum(len(b) for base, b in history.below(durable).items() if base >= active.base and read_one(log, base))
        assert kept <= cut
    # The producer may have lost its last batches; another one goes on.
    other = batch(2, 30)
    base = append(log, other, leader_epoch=99).base_offset
    assert log.flush(sync=True) == log.log_end_offset == base + 2
    assert read_one(log, base) == bytes(other)


@given(made=histories(), random=st.randoms(use_true_random=False))
@many
def test_a_power_cut_takes_nothing_that_was_acked(made: tuple[SimDisk, History, LogConfig], random: Random) -> None:
    disk, history, config = made
    for _ in range(3):
        durable = history.log.durable_end
        disk = disk.power_cut(random)
        reports = Reports()
        log = open_log(disk, config, reports=reports)
        assert not reports.damage
        assert log.log_end_offset >= durable
        check_end(log, history)
        check(log, history)
        history = History(log, history.below(log.log_end_offset))
        for _ in range(4):
            history.append(2, 100, 50)
            log.flush(sync=random.random() < 0.5)


def test_what_a_failed_sync_left_in_memory_is_written_again_by_the_next_start() -> None:
    """The process is started anew and the machine is not: what a sync failed for is read; no later sync covers it."""
    disk = SimDisk()
    log = open_log(disk, PLAIN)
    kept, doubtful = batch(1, 50), batch(3, 2_000)
    append(log, kept)
    log.flush(sync=True)
    append(log, doubtful)

    def fail(operation: str, path: str) -> None:
        if operation == "sync":
            raise OSError(errno.EIO, "the disk lost it")

    disk.fault = fail
    with pytest.raises(StorageError):
        log.flush(sync=True)
    disk.fault = lambda operation, path: None
    reports = Reports()
    log = open_log(disk, PLAIN, reports=reports)
    assert log.durable_end == 4
    log = open_log(disk.power_cut(Always(False)), PLAIN, reports=reports)
    assert (log.durable_end, reports.damage) == (4, [])
    assert [read_one(log, 0), read_one(log, 1)] == [bytes(kept), bytes(doubtful)]


@given(made=histories())
@many
def test_a_killed_process_loses_nothing_that_was_written(made: tuple[SimDisk, History, LogConfig]) -> None:
    disk, history, config = made
    reports = Reports()
    log = open_log(disk.copy(), config, reports=reports)
    assert log.log_end_offset == history.log.written_end
    assert reports.seen == []
    check(log, history)
    assert [(p, s.epoch, s.batches) for p, s in log.producers] == history.producers()
    assert log.epochs.entries == history.log.epochs.entries


@given(made=histories(all_synced=True), data=st.data())
@many
def test_a_flipped_bit_is_reported_or_harmless(made: tuple[SimDisk, History, LogConfig], data: st.DataObject) -> None:
    disk, history, config = made
    if data.draw(st.booleans()):
        history.log.close()
    after = disk.copy()
    names = sorted(name for name, node in after.nodes.items() if node.data)
    name = data.draw(st.sampled_from(names))
    content = after.nodes[name].data
    limit = len(content)
    for segment in history.log.segments:
        # Bits of reserved room that was never written mean nothing.
        limit = segment.size_bytes if segment.path == name else limit
    bit = data.draw(st.integers(0, 8 * limit - 1))
    content[bit // 8] ^= 1 << bit % 8
    reports = Reports()
    log = open_log(after, config, reports=reports)
    is_log = name.endswith(".log")
    assert log.log_end_offset == history.log.log_end_offset
    check(log, history, damaged=int(is_log))
    assert bool(reports.damage) <= is_log
    if not is_log:
        assert [(p, s.epoch, s.batches) for p, s in log.producers] == history.producers()
        assert log.epochs.entries == history.log.epochs.entries
    elif any(read_one(log, base) is None for base in history.batches):
        assert {damage.path for damage in reports.damage} == {name}


@given(made=histories(all_synced=True), data=st.data())
@many
def test_indexes_are_made_again(made: tuple[SimDisk, History, LogConfig], data: st.DataObject) -> None:
    disk, history, config = made
    if data.draw(st.booleans()):
        history.log.close()
    after = disk.copy()
    for name in sorted(name for name in after.nodes if name.endswith(".index")):
        content = after.nodes[name].data
        match data.draw(st.sampled_from(["gone", "cut", "garbled", "another", "as it was"])):
            case "gone":
                after.unlink(name)
            case "cut":
                del content[data.draw(st.integers(0, len(content))) :]
            case "garbled":
                content[:] = data.draw(st.binary(max_size=200))
            case "another":
                # Right in every byte, but of other bytes than these.
                other = data.draw(st.sampled_from(sorted(n for n in after.nodes if n.endswith(".index"))))
                content[:] = after.nodes[other].data
    reports = Reports()
    log = open_log(after, config, reports=reports)
    assert log.log_end_offset == history.log.log_end_offset
    check(log, history)
    assert not reports.damage
    for offset in range(0, log.log_end_offset, 3):
        found = log.reader.offset_for_time(1000 + offset, ceiling=log.durable_end)
        assert found is not None
        assert found.timestamp_ms >= 1000 + offset
        assert found.offset <= offset


def damaged_log(change: int, at: int) -> tuple[PartitionLog, Reports, list[bytearray]]:
    """Thirty batches in one segment, one byte changed."""
    disk = SimDisk()
    log = open_log(disk, LogConfig())
    batches = [batch(2, 50) for _ in range(30)]
    for buffer in batches:
        append(log, buffer)
    log.flush(sync=True)
    log.close()
    disk.nodes[log.segments[-1].path].data[at] ^= change
    reports = Reports()
    return open_log(disk, LogConfig(), reports=reports), reports, batches


@pytest.mark.parametrize("field_at", [0, 7, 8, 10, 11, 12, 15, 16, 17, 21, 23, 26, 57, 60, 61, 100])
def test_damage_is_reported_with_its_place_and_everything_around_it_is_read(field_at: int) -> None:
    size = len(batch(2, 50))
    log, reports, batches = damaged_log(0x40, 7 * size + field_at)
    assert reports.seen == []
    assert [read_one(log, 2 * n) for n in range(30)] == [None if n == 7 else bytes(b) for n, b in enumerate(batches)]
    assert {(d.path, d.position, d.offset) for d in reports.damage} == {
        (f"{DIRECTORY}/00000000000000000000.log", 7 * size, 14)
    }
    assert "offset 14" in str(reports.damage[0])


def test_a_torn_tail_is_cut_and_reported() -> None:
    disk = SimDisk()
    log = open_log(disk, PLAIN)
    append(log, batch(2, 50))
    log.flush(sync=True)
    append(log, batch(2, 50))
    log.flush(sync=False)
    del disk.nodes[log.segments[-1].path].data[-5:]
    reports = Reports()
    again = open_log(disk, PLAIN, reports=reports)
    assert again.log_end_offset == 2
    assert not reports.damage
    assert ["torn tail" in str(notice) for notice in reports.notices] == [True]
    assert len(disk.nodes[log.segments[-1].path].data) == again.size_bytes


def test_recovery_reads_only_past_the_checkpoint() -> None:
    disk = SimDisk()
    log = open_log(disk, LogConfig(recovery_point_bytes=10_000))
    for _ in range(200):
        append(log, batch(5, 1000))
        log.flush(sync=True)
    after = disk.copy()
    read: list[int] = []

    def watch(operation: str, path: str) -> None:
        if operation == "read" and path.endswith(".log"):
            read.append(1)

    after.fault = watch
    again = open_log(after, LogConfig())
    assert again.log_end_offset == 1000
    # Index and producers know most of it; only the heads since the last hint are read.
    assert len(read) < 30


def test_what_a_power_failure_leaves_to_be_read_again_is_bounded() -> None:
    """The checkpoint is overwritten unsynced at every flush, and synced every so many bytes."""
    disk = SimDisk()
    config = LogConfig(checkpoint_bytes=20_000, preallocate_bytes=0)
    log = open_log(disk, config)
    for count in range(1, 100):
        append(log, batch(1, 1000))
        log.flush(sync=True)
        found = load_checkpoint(disk.power_cut(Always(survives=False)), DIRECTORY)
        noted = 0 if found is None else found.durable_end
        assert (count - noted) * 1000 < 22_000
    assert open_log(disk.power_cut(Always(survives=False)), config).durable_end == 99


def test_a_log_that_was_killed_with_nothing_in_progress_is_opened_without_a_write() -> None:
    """Nor is its index loaded, whose last entries tell where the producers of the last batches begin."""
    disk = SimDisk()
    config = LogConfig(recovery_point_bytes=20_000)
    log = open_log(disk, config)
    for number in range(200):
        append(log, batch(1, 1000, producer=number % 3, epoch=0, sequence=number // 3))
        log.flush(sync=True)
    after = disk.copy()
    calls: list[str] = []

    def watch(operation: str, path: str) -> None:
        if operation in ("write", "sync", "truncate", "sync_dir", "rename", "unlink"):
            calls.append(f"{operation} {path}")

    after.fault = watch
    again = open_log(after, config)
    assert calls == []
    assert again.segments[-1].file.cached_index is None
    assert list(again.producers) == list(log.producers)
    after.fault = lambda operation, path: None
    assert [read_one(again, offset) for offset in range(200)] == [read_one(log, offset) for offset in range(200)]
    append(again, batch(1, 1000))
    assert again.flush(sync=True) == 201
    newest = again.reader.max_timestamp(again.durable_end)
    assert newest is not None
    assert read_one(again, 200) is not None


def test_a_killed_log_of_large_batches_is_opened_by_their_heads(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = SimDisk()
    log = open_log(disk, LogConfig())
    for _ in range(120):
        append(log, batch(1, 40_000))
        log.flush(sync=True)
    expected = log.segments[0].size_bytes
    read_bytes = 0
    whole = SimFile.read

    def read(self: SimFile, offset: int, length: int) -> bytes:
        nonlocal read_bytes
        data = whole(self, offset, length)
        read_bytes += max(0, min(len(data), expected - offset))  # what lies behind is room, and zero
        return data

    monkeypatch.setattr(SimFile, "read", read)
    again = open_log(disk.copy(), LogConfig())
    assert (again.log_end_offset, again.segments[0].size_bytes) == (120, expected)
    assert read_bytes < expected / 20, "notes of index and producers tell the rest"


@pytest.mark.parametrize("lost", ["active", "all"])
def test_segments_that_are_missing_are_told_and_their_offsets_stay_taken(lost: str) -> None:
    disk = SimDisk()
    log = open_log(disk)
    for _ in range(60):
        append(log, batch(2, 50))
    log.flush(sync=True)
    for segment in log.segments if lost == "all" else log.segments[-1:]:
        disk.unlink(segment.path)
    reports = Reports()
    again = open_log(disk, reports=reports)
    assert reports.damage
    assert (again.log_end_offset, again.durable_end) == (120, 120)
    assert append(again, batch()).base_offset == 120
    again.flush(sync=True)
    assert read_one(again, 120) is not None
    assert read_one(again, 119) is None
    if lost == "active":
        assert read_one(again, 0) is not None


_SHORT_SEGMENTS = LogConfig(segment_bytes=900, index_interval_bytes=1, recovery_point_bytes=300)


def of_many_segments(disk: SimDisk) -> PartitionLog:
    log = open_log(disk, _SHORT_SEGMENTS)
    for _ in range(60):
        append(log, batch(2, 50))
    log.flush(sync=True)
    assert len(log.segments) > 4
    return log


@pytest.mark.parametrize("how", ["missing", "empty", "empty, without its index", "shorter"])
@pytest.mark.parametrize("remade", [False, True], ids=["", "its index made again"])
def test_a_hole_in_the_middle_of_a_log_is_told_at_each_start(how: str, remade: bool) -> None:
    """And nothing else is: the rest can be read, and is written to."""
    disk = SimDisk()
    log = of_many_segments(disk)
    before, lost, after = log.segments[1:4]
    log.close()
    match how:
        case "missing":
            disk.unlink(lost.path)
        case "empty" | "empty, without its index":
            disk.open(lost.path).truncate(0)
        case _:
            disk.open(lost.path).truncate(len(batch(2, 50)))
    if how == "empty, without its index":
        disk.unlink(lost.index.path)
    gap = lost if how == "shorter" else before
    if remade:
        disk.unlink(gap.index.path)
        again = open_log(disk, _SHORT_SEGMENTS)
        assert read_one(again, gap.base) is not None
        again.close()
    for _ in range(2):
        reports = Reports()
        again = open_log(disk, _SHORT_SEGMENTS, reports=reports)
        (damage,) = reports.damage
        assert damage.path == gap.path
        shorter = lost.base + 2, len(batch(2, 50))
        assert (damage.offset, damage.position) == (shorter if how == "shorter" else (lost.base, before.size_bytes))
        assert f"to offset {after.base} are missing" in str(damage)
        assert read_one(again, before.base) is not None
        assert read_one(again, after.base - 1) is None
        assert read_one(again, after.base) is not None
        base = append(again, batch()).base_offset
        again.flush(sync=True)
        assert read_one(again, base) is not None
        again.close()


def test_an_index_that_goes_further_than_its_file_is_no_hole() -> None:
    disk = SimDisk()
    log = of_many_segments(disk)
    segment = log.segments[1]
    log.close()
    end, position, interval_bytes = 1 << 40, segment.size_bytes + 1_000, 1
    index = SparseIndex.load(bytes(disk.nodes[segment.index.path].data), interval_bytes, segment.base, position)
    assert index is not None
    index.upto = position
    index.seal(Offset(end))
    place, data, _ = index.pending_bytes()
    disk.open(segment.index.path).write(place, [data])
    reports = Reports()
    again = open_log(disk, _SHORT_SEGMENTS, reports=reports)
    assert reports.damage == []
    assert read_one(again, segment.base) is not None


def test_what_a_deletion_had_not_removed_yet_is_no_part_of_the_log() -> None:
    """Segments go in any order, where the power fails meanwhile. The log was cut back to the end of one before a gap,
    and what was written then was damage."""
    disk = SimDisk()
    log = of_many_segments(disk)
    first, _, third, *_ = log.segments
    saved = {path: bytes(disk.nodes[path].data) for path in (first.path, first.index.path)}
    log.delete_before(third.base)
    log.close()
    for path, data in saved.items():
        disk.open(path, create=True).write(0, [data])
    reports = Reports()
    again = open_log(disk, _SHORT_SEGMENTS, reports=reports)
    assert again.log_start_offset == again.segments[0].base == third.base
    assert not any(disk.exists(path) for path in saved)
    again.truncate(third.base, now_ms=1_000)
    append(again, batch(2, 50))
    again.flush(sync=True)
    assert read_one(again, third.base) is not None
    again.close()
    assert open_log(disk, _SHORT_SEGMENTS, reports=reports).log_end_offset == third.base + 2
    assert reports.damage == []


def test_files_of_an_interrupted_replacement_go() -> None:
    disk = SimDisk()
    log = open_log(disk)
    append(log, batch())
    log.close()
    disk.open(f"{DIRECTORY}/leader-epochs.tmp", create=True)
    disk.open(f"{DIRECTORY}/00000000000000000099.index", create=True)
    assert open_log(disk).log_end_offset == 1
    assert not [name for name in disk.nodes if name.endswith(".tmp") or "99.index" in name]


def test_an_offset_of_a_batch_cut_off_by_power_is_used_again() -> None:
    disk = SimDisk()
    log = open_log(disk)
    append(log, batch(1, 10))
    log.flush(sync=True)
    append(log, batch(1, 10))
    log.flush(sync=False)
    disk.nodes[log.segments[-1].path].data = bytearray(disk.nodes[log.segments[-1].path].durable)
    again = open_log(disk)
    assert append(again, batch(1, 99)).base_offset == Offset(1)


def test_an_epoch_behind_the_durable_end_is_not_held_against_the_epoch_file() -> None:
    """Recovery forgets it with the records before it; were it noted, the next one would cut what is of older epochs."""
    disk = SimDisk()
    log = open_log(disk, PLAIN)
    append(log, batch(1, 10))
    log.flush(sync=True)
    append(log, batch(1, 10))  # staged, not written
    log.epochs.begin(Epoch(1), log.log_end_offset)
    log.checkpoint()
    noted = load_checkpoint(disk, DIRECTORY)
    assert noted is not None
    assert (noted.durable_end, noted.latest_epoch) == (1, 0)
    log.flush(sync=True)
    noted = load_checkpoint(disk, DIRECTORY)
    assert noted is not None
    assert (noted.durable_end, noted.latest_epoch) == (2, 1)


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


def test_with_a_snapshot_producers_are_not_rebuilt_from_the_start() -> None:
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
