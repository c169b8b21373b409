"""Looking into a log without touching it: damage is found wherever it is, and nothing else is called so."""

from random import Random

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.logs import DIRECTORY, PLAIN, SMALL, Reports, append, batch, open_log

from logboom.base.errors import StorageError
from logboom.base.ids import Epoch, Offset
from logboom.sim.disk import SimDisk
from logboom.storage import Damage, LogConfig, LogTotals, LogView, Notice, PartitionLog, verify


def filled(config: LogConfig = SMALL, count: int = 60) -> tuple[SimDisk, PartitionLog]:
    disk = SimDisk()
    log = open_log(disk, config)
    for n in range(count):
        if n == count // 2:
            log.epochs.begin(Epoch(1), log.log_end_offset)
        append(log, batch(3, 40, timestamp_ms=1000 + n), leader_epoch=2 * n // count)
        log.flush(sync=True)
    return disk, log


def looked(disk: SimDisk) -> tuple[LogTotals, list[Damage], list[Notice]]:
    def nothing_is_changed(operation: str, path: str) -> None:
        assert operation in ("read", "open", "list", "size"), operation

    found: list[Damage | Notice] = []
    disk.fault = nothing_is_changed
    totals = verify(LogView(disk, DIRECTORY), found.append)
    disk.fault = lambda operation, path: None
    return (
        totals,
        [one for one in found if isinstance(one, Damage)],
        [one for one in found if isinstance(one, Notice)],
    )


@pytest.mark.parametrize("config", [SMALL, PLAIN, LogConfig(segment_bytes=4000)])
@pytest.mark.parametrize("closed", [True, False])
def test_verify_accepts_a_good_log(config: LogConfig, closed: bool) -> None:
    disk, log = filled(config)
    if closed:
        log.close()
    totals, damage, notices = looked(disk)
    assert (totals.records, totals.batches, totals.tail_records) == (180, 60, 0)
    assert (totals.start, totals.durable_end, totals.size_bytes) == (0, 180, log.size_bytes)
    assert not damage
    assert not notices


def test_the_tail_is_no_part_of_what_is_promised() -> None:
    disk, log = filled()
    append(log, batch(2), leader_epoch=1)
    log.flush(sync=False)
    totals, damage, _ = looked(disk)
    assert (totals.durable_end, totals.records, totals.tail_records) == (180, 180, 2)
    disk.nodes[log.segments[-1].path].data[-1] ^= 1
    totals, damage, _ = looked(disk)
    assert (totals.tail_records, damage) == (0, [])


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 10**9), st.integers(1, 255), st.booleans())
def test_no_changed_byte_is_overlooked(where: int, change: int, closed: bool) -> None:
    disk, log = filled()
    if closed:
        log.close()
    files = [disk.nodes[segment.path] for segment in log.segments]
    at = where % log.size_bytes
    for node, segment in zip(files, log.segments, strict=True):
        if at < segment.size_bytes:
            node.data[at] ^= change
            path = segment.path
            break
        at -= segment.size_bytes
    _, damage, _ = looked(disk)
    assert [one.path for one in damage] == [path], "one place, told once"
    assert damage[0].position <= at < damage[0].position + len(batch(3, 40))
    assert "good again" in damage[0].reason or "nothing good" in damage[0].reason


@settings(max_examples=60, deadline=None)
@given(st.randoms(use_true_random=False), st.integers(1, 300))
def test_what_a_log_cannot_read_is_damage_and_the_rest_is_not(random: Random, length: int) -> None:
    disk, log = filled()
    segment = random.choice(log.segments)
    at = random.randrange(segment.size_bytes)
    node = disk.nodes[segment.path]
    node.data[at : at + length] = random.randbytes(min(length, segment.size_bytes - at))
    totals, damage, _ = looked(disk)
    again = open_log(disk, reports=Reports())
    good = {found.header.base_offset for found in LogView(disk, DIRECTORY).batches() if not isinstance(found, Damage)}
    assert totals.batches == len(good)
    for base in range(0, 180, 3):
        try:
            again.reader.read(Offset(base), 1, ceiling=Offset(180))
        except Exception:  # noqa: BLE001 - whatever it says, it cannot be read
            assert base not in good
        else:
            assert base in good
    assert bool(damage) == (len(good) < 60)


def test_missing_and_cut_files_are_damage() -> None:
    disk, log = filled()
    paths = [segment.path for segment in log.segments]
    assert len(paths) > 3
    for gone, position, offset in ((paths[0], 0, 0), (paths[1], None, log.segments[1].base)):
        copy = disk.copy()
        del copy.nodes[gone]
        _, damage, _ = looked(copy)
        assert damage[0].offset == offset
        assert "missing" in damage[0].reason
        assert position is None or damage[0].position == position
    copy = disk.copy()
    del copy.nodes[paths[-1]]
    assert any("is missing" in one.reason for one in looked(copy)[1])
    copy = disk.copy()
    del copy.nodes[paths[-1]].data[-10:]
    assert any("ends before its durable end" in one.reason for one in looked(copy)[1])
    copy = disk.copy()
    del copy.nodes[paths[0]].data[-10:]
    assert [one.path for one in looked(copy)[1]] == [paths[0]]


def test_damaged_auxiliary_files_are_notices_and_no_damage() -> None:
    disk, log = filled()
    log.close()
    for name in list(disk.nodes):
        if not name.endswith(".log"):
            copy = disk.copy()
            copy.nodes[name].data[7] ^= 255
            totals, damage, notices = looked(copy)
            assert not damage, name
            if name.endswith("leader-epochs"):
                assert totals.records == 180
            assert notices or name == log.segments[-1].index.path, name
    disk.open(f"{DIRECTORY}/holiday.jpg", create=True)
    assert [notice.path for notice in looked(disk)[2]] == [f"{DIRECTORY}/holiday.jpg"]


def test_an_index_that_names_other_places_is_noted() -> None:
    disk, log = filled()
    log.close()
    entry_bytes = 28
    data = disk.nodes[log.segments[0].index.path].data
    assert len(data) > 3 * entry_bytes
    body = bytearray(data[entry_bytes : 2 * entry_bytes - 4])
    body[15] += 1  # the position
    data[entry_bytes : 2 * entry_bytes] = body + crc32c(bytes(body)).to_bytes(4, "big")
    (notice,) = looked(disk)[2]
    assert notice.path == log.segments[0].index.path
    assert "1 wrong entries" in notice.message


@pytest.mark.parametrize("start", [0, 1, 47, 100, 179])
def test_batches_from_an_offset(start: int) -> None:
    disk, log = filled()
    log.close()
    found = list(LogView(disk, DIRECTORY).batches(Offset(start)))
    assert [one.header.base_offset for one in found if not isinstance(one, Damage)] == list(
        range(start - start % 3, 180, 3)
    )


def test_segments_that_are_deleted_after_their_names_were_read_are_not_missed() -> None:
    disk, log = filled(LogConfig(segment_bytes=1000))
    first = sorted(name for name in disk.list(DIRECTORY) if name.endswith(".log"))[0]

    def delete(operation: str, path: str) -> None:
        if operation == "size" and path.endswith(first):
            disk.fault = lambda operation, path: None
            log.delete_before(Offset(100))

    disk.fault = delete
    found: list[Damage | Notice] = []
    view = LogView(disk, DIRECTORY)
    assert view.start == 0
    verify(view, found.append)
    assert not [one for one in found if isinstance(one, Damage)]


def test_deleted_records_are_not_missed() -> None:
    disk, log = filled()
    log.delete_before(Offset(100))
    totals, damage, notices = looked(disk)
    assert (totals.start, damage, notices) == (100, [], [])


def test_segments_that_go_under_way_are_no_damage() -> None:
    disk, log = filled()
    view = LogView(disk, DIRECTORY)
    log.delete_before(Offset(150))
    found: list[Damage | Notice] = []
    totals = verify(view, found.append)
    assert not found
    assert 0 < totals.records < 180


@pytest.mark.parametrize("fill", [0, 1, 2, 255])
def test_a_changed_base_offset_which_no_crc_covers_is_detected(fill: int) -> None:
    """Damage that reaches into the next batch's base offset: the good batch behind both is still found."""
    disk, log = filled()
    segment = log.segments[-1]
    second = log.reader.read(Offset(segment.base), 1, ceiling=Offset(180))
    assert second is not None
    reach = len(second) + 2
    disk.nodes[segment.path].data[7:reach] = bytes([fill]) * (reach - 7)
    again = open_log(disk, reports=Reports())
    with pytest.raises(StorageError):
        again.reader.read(segment.base, 1, ceiling=Offset(180))
    assert again.reader.read(Offset(segment.base + 6), 1, ceiling=Offset(180))
