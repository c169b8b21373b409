"""Appending to a partition's log: offsets, segments, epochs, duplicates, and what is staged and taken back."""

from collections.abc import Sequence

import pytest
from tests.support.logs import DIRECTORY, SMALL, append, batch, filled, open_log, read_batches

from logboom.base.errors import (
    OutOfOrderSequenceError,
    RecordListTooLargeError,
)
from logboom.base.ids import Epoch, Offset
from logboom.base.ports import Bytes
from logboom.base.units import DAY_MS
from logboom.records import Codec, iter_batches
from logboom.sim.disk import Always, SimDisk, SimFile
from logboom.storage import LogConfig
from logboom.storage.checkpoint import load as load_checkpoint


def test_what_is_appended_is_read_back_with_offset_and_epoch() -> None:
    log = open_log(SimDisk())
    first, second = batch(3), batch(2, codec=Codec.ZSTD)
    assert append(log, first, leader_epoch=5).base_offset == 0
    placed = append(log, second, leader_epoch=5)
    assert (placed.base_offset, placed.last_offset, placed.duplicate) == (3, 4, False)
    assert (log.log_end_offset, log.written_end, log.durable_end) == (5, 0, 0)
    assert log.flush(sync=False) == 5
    assert (log.written_end, log.durable_end) == (5, 0)
    assert log.flush(sync=True) == 5
    data = log.reader.read(Offset(0), 10_000, ceiling=Offset(5))
    assert data is not None
    assert bytes(data) == bytes(first + second)
    assert [(h.base_offset, h.leader_epoch) for _, h in iter_batches(data)] == [(0, 5), (3, 5)]
    assert log.size_bytes == len(data)


def test_a_batch_may_lie_anywhere_in_the_requests_buffer() -> None:
    log = open_log(SimDisk())
    record_batch = batch(2)
    request = bytearray(b"head" + record_batch + b"tail")
    view = memoryview(request)[4 : 4 + len(record_batch)]
    log.append(view, list(iter_batches(view)), leader_epoch=Epoch(1), now_ms=0)
    log.flush(sync=True)
    assert log.reader.read(Offset(0), 1, ceiling=Offset(2)) == bytes(view)
    assert (bytes(request[:4]), bytes(request[-4:])) == (b"head", b"tail")


def test_segments_roll_by_size() -> None:
    log, batches = filled(SimDisk())
    size = len(batches[0])
    assert all(segment.size_bytes <= SMALL.segment_bytes for segment in log.segments)
    assert log.segments[0].size_bytes > SMALL.segment_bytes - size
    assert [s.base for s in log.segments[1:]] == [s.end for s in log.segments[:-1]]


def test_segments_roll_by_age() -> None:
    log = open_log(SimDisk(), LogConfig(segment_ms=DAY_MS))
    for now_ms in (1000, 1000 + DAY_MS - 1, 1000 + DAY_MS, 1000 + 2 * DAY_MS - 1):
        append(log, batch(), now_ms=now_ms)
    log.flush(sync=True)
    assert [segment.base for segment in log.segments] == [0, 2]


def test_several_rolls_in_one_flush() -> None:
    disk = SimDisk()
    log = open_log(disk)
    batches = [batch(3, 300) for _ in range(20)]
    for buffer in batches:
        append(log, buffer)
    log.flush(sync=True)
    assert len(log.segments) > 4
    assert [read_batches(log, 3 * n, 1)[0] for n in range(20)] == batches
    again = open_log(disk.copy())
    assert again.log_end_offset == 60


def test_a_batch_larger_than_a_segment_is_refused() -> None:
    log = open_log(SimDisk())
    with pytest.raises(RecordListTooLargeError):
        append(log, batch(1, 5000))
    assert log.log_end_offset == 0


def test_a_duplicate_answers_with_the_first_offsets_and_is_not_written() -> None:
    log = open_log(SimDisk())
    append(log, batch(4))
    append(log, batch(2, producer=1, epoch=0, sequence=0))
    again = append(log, batch(2, producer=1, epoch=0, sequence=0))
    assert (again.base_offset, again.last_offset, again.duplicate) == (4, 5, True)
    with pytest.raises(OutOfOrderSequenceError):
        append(log, batch(2, producer=1, epoch=0, sequence=5))
    assert log.log_end_offset == 6


def test_abandoning_staged_batches_restores_offsets_producers_and_epochs() -> None:
    log = open_log(SimDisk())
    append(log, batch(2, producer=1, epoch=0, sequence=0), leader_epoch=1)
    log.flush(sync=True)
    known = list(log.producers)
    append(log, batch(2, producer=1, epoch=0, sequence=2), leader_epoch=1)
    append(log, batch(2, producer=2, epoch=0, sequence=0), leader_epoch=1)
    append(log, batch(2), leader_epoch=2)
    log.abandon_staged()
    assert (log.log_end_offset, list(log.producers)) == (2, known)
    assert log.epochs.entries == ((1, 0),)
    assert append(log, batch(2, producer=1, epoch=0, sequence=2), leader_epoch=1).base_offset == 2
    log.flush(sync=True)
    assert len(read_batches(log, 0)) == 2


def test_an_epoch_is_known_even_if_nothing_was_written_in_it() -> None:
    log, _ = filled(SimDisk(), 4)
    log.epochs.begin(Epoch(3), log.log_end_offset)
    assert log.epochs.end_of(Epoch(3), log.log_end_offset) == (3, 12)
    assert log.epochs.end_of(Epoch(0), log.log_end_offset) == (0, 12)
    append(log, batch(), leader_epoch=3)
    assert log.epochs.end_of(Epoch(3), log.log_end_offset) == (3, 13)
    assert log.epochs.end_of(Epoch(2), log.log_end_offset) == (0, 12)


def test_writes_on_the_loop_leave_every_sync_to_the_flusher(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also that of the checkpoint, which is synced every so many bytes."""

    def write_nowait(self: SimFile, offset: int, buffers: Sequence[Bytes]) -> bool:
        self.write(offset, buffers)
        return True

    monkeypatch.setattr(SimFile, "write_nowait", write_nowait)
    disk = SimDisk()
    log = open_log(disk, LogConfig(checkpoint_bytes=5_000))
    syncs: list[str] = []

    def watch(operation: str, path: str) -> None:
        if operation in ("sync", "sync_dir"):
            syncs.append(path)

    disk.fault = watch
    inline = 0
    for count in range(1, 60):
        append(log, batch(1, 1000))
        syncs.clear()
        file = log.inline.write(100_000)
        if file is None:
            log.flush(sync=True)
        else:
            file.sync()
            syncs.clear()
            assert log.inline.synced() == count
            inline += 1
            assert syncs == []
        noted = load_checkpoint(disk.power_cut(Always(survives=False)), DIRECTORY)
        assert count - (0 if noted is None else noted.durable_end) < 8
    assert inline > 30


def test_the_note_of_a_durable_end_never_makes_the_loop_wait() -> None:
    disk = SimDisk()
    log = open_log(disk, LogConfig())
    append(log, batch())
    log.flush(sync=True)
    done: list[str] = []
    refused: list[str] = []

    def watch(operation: str, path: str) -> None:
        done.append(operation)
        if operation == "write_nowait" and path in refused:
            raise BlockingIOError

    def round_on_the_loop() -> None:
        append(log, batch())
        file = log.inline.write(100_000)
        assert file is not None
        file.sync()
        done.clear()
        assert log.inline.synced() == log.log_end_offset

    def noted() -> int:
        found = load_checkpoint(disk, DIRECTORY)
        return -1 if found is None else found.durable_end

    disk.fault = watch
    round_on_the_loop()
    assert set(done) == {"write_nowait"}
    assert noted() == 2
    refused.append(f"{DIRECTORY}/durable-end")
    round_on_the_loop()
    assert noted() == 2, "the old note stays"
    append(log, batch())
    assert log.inline.write(100_000) is None, "the flusher's thread writes the note that the loop could not"
    log.flush(sync=True)
    assert noted() == 4
    round_on_the_loop()
    log.abandon()
    assert open_log(disk.power_cut(Always(survives=False)), LogConfig()).log_end_offset == 5


def test_an_epoch_that_begins_during_a_sync_is_noted_by_the_flusher() -> None:
    disk = SimDisk()
    log = open_log(disk, LogConfig())
    append(log, batch())
    log.flush(sync=True)
    append(log, batch())
    file = log.inline.write(100_000)
    assert file is not None
    append(log, batch(), leader_epoch=1)
    file.sync()
    done: list[str] = []
    disk.fault = lambda operation, path: done.append(operation)
    assert log.inline.synced() == 2
    assert set(done) <= {"write_nowait"}
    log.flush(sync=True)
    assert open_log(disk.power_cut(Always(survives=False)), LogConfig()).epochs.entries == ((0, 0), (1, 2))
