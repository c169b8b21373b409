"""Index, epoch file, checkpoint, producer snapshot: whatever lies in their place, the log opens, gives out what was
written and nothing else, tells what it found, and makes the file again.
"""

import errno
from collections.abc import Callable, Iterator
from random import Random

import pytest
from tests.support.logs import DIRECTORY, Reports, append, batch, open_log, read_one
from tests.support.thoroughness import part

from logboom.base.ids import Epoch, Offset
from logboom.sim.disk import SimDisk, settled
from logboom.storage import LogConfig, LogView, PartitionLog, verify

CONFIG = LogConfig(segment_bytes=1_200, index_interval_bytes=150, recovery_point_bytes=500, preallocate_bytes=0)
KINDS = ("durable-end", "leader-epochs", ".index", ".producers")
BATCHES = 24


def written(disk: SimDisk, batches: int = BATCHES, *, closed: bool = True) -> dict[int, bytes]:
    """A log of several segments, epochs and producers; what lies where."""
    found: dict[int, bytes] = {}
    log = open_log(disk, CONFIG)
    for number in range(batches):
        if number % 7 == 0:
            log.epochs.begin(Epoch(number // 7), log.durable_end)
        buffer = batch(2, 60, timestamp_ms=1000 + 2 * number, producer=number % 3, epoch=0, sequence=2 * (number // 3))
        base = append(log, buffer, leader_epoch=number // 7).base_offset
        found[base] = bytes(buffer)
        log.flush(sync=True)
    if closed:
        log.close()
    return found


def helps(disk: SimDisk, kind: str) -> list[str]:
    return sorted(name for name in disk.nodes if name.endswith(kind))


def told_of(reports: Reports, path: str) -> bool:
    return any(notice.path == path for notice in reports.notices)


def check(disk: SimDisk, batches: dict[int, bytes]) -> tuple[PartitionLog, Reports]:
    """Open, read everything, write, close, open again: all is there and the second opening has nothing to tell."""
    verify(LogView(disk, DIRECTORY), lambda found: None)
    reports = Reports()
    log = open_log(disk, CONFIG, reports=reports)
    assert not reports.damage
    assert log.log_end_offset == log.durable_end == 2 * len(batches)
    for base, data in batches.items():
        assert read_one(log, base) == data
        found = log.reader.offset_for_time(1000 + base, ceiling=log.durable_end)
        assert found is not None
        assert found.offset == base
    assert not reports.damage
    seen = list(reports.seen)
    expected = {(n, 2 * m, 6 * m + 2 * n) for n in range(3) for m in range(BATCHES // 3)}
    for producer, state in log.producers:
        for one in state.batches:
            assert (producer, one.first_sequence, one.base_offset) in expected
    assert [state.batches[-1].last_sequence for _, state in sorted(log.producers)] == [BATCHES // 3 * 2 - 1] * 3
    assert log.epochs.latest == (len(batches) - 1) // 7
    log.epochs.begin(Epoch(50), log.durable_end)
    append(log, batch(1, 5), leader_epoch=50)
    log.flush(sync=True)
    log.close()
    again = Reports()
    assert open_log(disk, CONFIG, reports=again).log_end_offset == log.log_end_offset
    assert all(notice.path.endswith(".unreadable") for notice in again.notices), again.notices
    reports.seen = seen
    return log, reports


def changes(data: bytes, random: Random, turn: int) -> Iterator[bytes]:
    """Cut at every length, one bit turned in every byte, and worse. In a quick run the two turns share the lengths
    and the bytes."""
    yield from (data[:length] for length in part(len(data), turn, 2))
    for at in part(len(data), turn, 2):
        yield data[:at] + bytes([data[at] ^ 1 << random.randrange(8)]) + data[at + 1 :]
    yield from (bytes(len(data)), random.randbytes(len(data)), random.randbytes(500), data + data, data[::-1])


@pytest.mark.in_turn(3)
@pytest.mark.parametrize("closed", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_cut_anywhere_and_turned_anywhere(kind: str, closed: bool) -> None:
    disk = SimDisk()
    batches = written(disk, closed=closed)
    random = Random(f"{kind} {closed}")
    for name in helps(disk, kind)[-2:]:
        for data in changes(bytes(disk.nodes[name].data), random, int(closed)):
            after = disk.copy()
            after.nodes[name] = settled(data)
            try:
                check(after, batches)
            except AssertionError as error:
                raise AssertionError(f"{name} is {data.hex()}: {error}") from error


@pytest.mark.parametrize("kind", KINDS)
def test_garbage_is_told(kind: str) -> None:
    disk = SimDisk()
    batches = written(disk)
    for name in helps(disk, kind)[-1:]:
        disk.nodes[name] = settled(b"something else entirely, long enough for any of them")
        _, reports = check(disk, batches)
        assert told_of(reports, name), reports.seen


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_that_is_gone_is_made_again(kind: str) -> None:
    disk = SimDisk()
    batches = written(disk)
    for name in helps(disk, kind):
        del disk.nodes[name]
    check(disk, batches)


@pytest.mark.parametrize("kind", KINDS)
def test_a_directory_in_its_place_is_moved_aside_with_what_it_holds(kind: str) -> None:
    disk = SimDisk()
    batches = written(disk)
    for name in helps(disk, kind)[-1:]:
        del disk.nodes[name]
        disk.make_dir(name)
        disk.nodes[f"{name}/mine"] = settled(b"keep me")
        _, reports = check(disk, batches)
        assert told_of(reports, name)
        assert bytes(disk.nodes[f"{name}.unreadable/mine"].data) == b"keep me"


@pytest.mark.parametrize("code", [errno.EIO, errno.EACCES])
@pytest.mark.parametrize("kind", KINDS)
def test_a_file_that_cannot_be_read_is_moved_aside(kind: str, code: int) -> None:
    disk = SimDisk()
    batches = written(disk)
    (name,) = helps(disk, kind)[-1:]

    def refuse(operation: str, path: str) -> None:
        if operation == "open" and path == name and f"{name}.unreadable" not in disk.nodes:
            raise OSError(code, "not for you")

    disk.fault = refuse
    _, reports = check(disk, batches)
    assert told_of(reports, name)
    assert f"{name}.unreadable" in disk.nodes


@pytest.mark.parametrize("kind", KINDS)
def test_a_lack_of_handles_damages_nothing(kind: str) -> None:
    disk = SimDisk()
    batches = written(disk)
    before = {name: bytes(node.data) for name, node in disk.nodes.items()}

    def refuse(operation: str, path: str) -> None:
        if operation == "open" and path.endswith(kind):
            raise OSError(errno.EMFILE, "too many open files")

    after = disk.copy()
    after.fault = refuse
    with pytest.raises(Exception, match="too many open files"):
        open_log(after, CONFIG).reader.offset_for_time(0, ceiling=Offset(1))
    assert {name: bytes(node.data) for name, node in after.nodes.items()} == before
    check(disk, batches)


def older(disk: SimDisk, kind: str) -> Callable[[SimDisk], None]:
    """Puts back the files of a kind as they were when the log was half as long."""
    young = SimDisk()
    written(young, BATCHES // 2)

    def put_back(target: SimDisk) -> None:
        for name in helps(young, kind):
            target.nodes[name] = settled(young.nodes[name].data)

    return put_back


@pytest.mark.parametrize("kind", KINDS)
def test_older_files_put_back_are_seen_through(kind: str) -> None:
    disk = SimDisk()
    batches = written(disk)
    older(disk, kind)(disk)
    _, reports = check(disk, batches)
    if kind == "leader-epochs":
        assert told_of(reports, f"{DIRECTORY}/leader-epochs")


@pytest.mark.parametrize("kind", [".index", ".producers", "leader-epochs"])
def test_files_of_a_longer_log_are_seen_through(kind: str) -> None:
    disk, longer = SimDisk(), SimDisk()
    batches = written(disk)
    written(longer, BATCHES + 6)
    for name in helps(longer, kind):
        disk.nodes[name] = settled(longer.nodes[name].data)
    check(disk, batches)


def test_a_checkpoint_of_a_longer_log_says_that_records_are_missing() -> None:
    disk, longer = SimDisk(), SimDisk()
    batches = written(disk)
    written(longer, BATCHES + 6)
    (name,) = helps(longer, "durable-end")
    disk.nodes[name] = settled(longer.nodes[name].data)
    reports = Reports()
    log = open_log(disk, CONFIG, reports=reports)
    assert reports.damage
    assert log.log_end_offset == 2 * (BATCHES + 6), "no offset that was acked is given again"
    assert [read_one(log, base) for base in batches] == list(batches.values())
    assert read_one(log, 2 * BATCHES) is None


def test_a_checkpoint_without_an_epoch_is_read() -> None:
    """Format 1, written before the epoch was noted."""
    from struct import pack

    from logboom.storage.small_files import frame

    disk = SimDisk()
    batches = written(disk)
    (name,) = helps(disk, "durable-end")
    data = bytes(disk.nodes[name].data)
    disk.nodes[name] = settled(frame(b"LBDE", 1, data[16:48]))
    assert len(data) == len(frame(b"LBDE", 2, pack(">qqqqi", 0, 0, 0, 0, 0)))
    _, reports = check(disk, batches)
    assert not told_of(reports, name)


def test_files_that_are_not_a_logs_are_named_and_left_alone() -> None:
    disk = SimDisk()
    batches = written(disk)
    unknown = {f"{DIRECTORY}/{name}" for name in ("notes.txt", "00000000000000000000.log.bak", "7.log", "core")}
    for name in unknown:
        disk.nodes[name] = settled(b"mine")
    reports = Reports()
    log = open_log(disk, CONFIG, reports=reports)
    assert {notice.path for notice in reports.notices} == unknown
    assert [read_one(log, base) for base in batches] == list(batches.values())
    log.close()
    assert all(bytes(disk.nodes[name].data) == b"mine" for name in unknown)
