"""Short lives of a log of keys that is cleaned, each with every fault at every single operation of its disk.

Whatever survives holds each key's latest record, no record that was superseded by a deletion, and nothing that was not
written. It can be cleaned, closed and opened again.
"""

import contextlib
import errno
from collections.abc import Iterator
from random import Random

import pytest
from tests.support.compaction import Pair, Table, clean, pairs_batch
from tests.support.disk_lives import ALL_MASKS_UP_TO, Fault, PowerFailureError, Step
from tests.support.logs import DIRECTORY, Reports, append, open_log
from tests.support.thoroughness import part

from logboom.base.errors import CompactionCancelledError, RetriableStorageError, StorageError
from logboom.base.ids import Offset
from logboom.sim.disk import Always, Chance, Decisions, SimDisk, every_decision
from logboom.storage import CompactionSettings, LogConfig, LogView, PartitionLog, verify

CONFIG = LogConfig(segment_bytes=600, index_interval_bytes=100, recovery_point_bytes=300, preallocate_bytes=0)
SETTINGS = CompactionSettings(delete_retention_ms=100, map_bytes=1 << 16)
TIGHT = CompactionSettings(delete_retention_ms=100, map_bytes=1)
HOUR_MS = 3_600_000

OPEN: Step = ("open",)
ROLL: Step = ("roll",)
CLOSE: Step = ("close",)
CLEAN: Step = ("clean",)
LATER: Step = ("clean", HOUR_MS)
OLD: Step = ("put", ("a", "1"), ("b", "1"), ("c", "1"))
NEW: Step = ("put", ("a", "2"), ("b", None))
NEWER: Step = ("put", ("a", "3"), ("d", "1"))
GONE: Step = ("put", ("a", None), ("c", None), ("d", None))

HISTORIES: dict[str, list[Step]] = {
    "one segment": [OPEN, OLD, NEW, ROLL, NEWER, CLEAN, NEWER],
    "a group": [OPEN, OLD, ROLL, NEW, ROLL, OLD, ROLL, NEWER, CLEAN, ROLL, OLD],
    "two cleanings": [OPEN, OLD, ROLL, NEW, ROLL, CLEAN, NEWER, ROLL, CLEAN, CLOSE, OPEN, NEW],
    "tombstones go": [OPEN, OLD, NEWER, ROLL, GONE, ROLL, CLEAN, OLD, ROLL, LATER, ROLL, NEW],
    "a small map": [OPEN, OLD, NEW, ROLL, OLD, NEW, ROLL, ("clean", 0, True), ("clean", 1, True), CLEAN, NEWER],
    "deleted": [OPEN, OLD, ROLL, NEW, ROLL, OLD, ROLL, CLEAN, ("delete", 6), NEW, ROLL, CLEAN],
    # Only what is committed is cleaned, up to 5 here, and nothing committed is truncated.
    "truncated": [OPEN, OLD, ROLL, NEW, ROLL, OLD, ROLL, ("clean", 1, False, 5), ("truncate", 5), NEWER, ROLL, CLEAN],
    "killed": [OPEN, OLD, ROLL, NEW, ROLL, CLEAN, OPEN, NEWER, ROLL, OPEN, LATER, CLOSE],
}

FAULTS: dict[str, tuple[int | None, bool]] = {
    "crash": (None, False),
    "EIO": (errno.EIO, False),
    "full once": (errno.ENOSPC, False),
    "full": (errno.ENOSPC, True),
    "no handle once": (errno.EMFILE, False),
    "no handles": (errno.EMFILE, True),
}
BRIEF = ("crash", "full once")


class Life:
    """One log of keys on one disk."""

    def __init__(self, disk: SimDisk) -> None:
        self.disk = disk
        self.table = Table()
        self.log: PartitionLog | None = None
        self.now_ms = 1000
        self.starts = {0}
        """Log starts that were asked for."""
        self.sequence = 0
        self.acked = 0
        """The log may not end below here."""

    def play(self, steps: list[Step]) -> None:
        for name, *arguments in steps:
            try:
                getattr(self, name)(*arguments)
                self.acked = max(self.acked, 0 if self.log is None else self.log.durable_end)
            except (RetriableStorageError, CompactionCancelledError):
                if self.log is None:
                    return
                self.log.abandon_staged()
                self.table.truncate(self.log.log_end_offset)
            except StorageError:
                return

    def open(self) -> None:
        self.log = None
        self.log = opened(self.disk)

    def put(self, *pairs: Pair) -> None:
        assert self.log is not None
        self.now_ms += 10
        buffer = pairs_batch(pairs, timestamp_ms=self.now_ms, producer=(7, 0, self.sequence))
        placed = append(self.log, buffer, now_ms=self.now_ms)
        assert not placed.duplicate
        self.table.put(placed.base_offset, pairs)
        self.log.flush(sync=True)
        self.sequence += len(pairs)

    def roll(self) -> None:
        assert self.log is not None
        self.log.roll()
        self.log.flush(sync=True)

    def clean(self, later_ms: int = 1, tight: bool = False, stable_end: int | None = None) -> None:
        assert self.log is not None
        self.now_ms += later_ms
        clean(self.log, TIGHT if tight else SETTINGS, now_ms=self.now_ms, stable_end=stable_end)

    def delete(self, offset: int) -> None:
        assert self.log is not None
        offset = min(offset, self.log.durable_end)
        self.starts.add(offset)
        self.log.delete_before(Offset(offset))

    def truncate(self, offset: int) -> None:
        assert self.log is not None
        self.acked = min(self.acked, offset)
        try:
            assert self.log.truncate(Offset(offset), now_ms=self.now_ms) <= offset
        except RetriableStorageError:
            self.take_end(self.log)  # it may be cut already: a lack of room at the very end is told, too
            raise
        self.take_end(self.log)

    def take_end(self, log: PartitionLog) -> None:
        end = log.log_end_offset
        self.acked = min(self.acked, end)
        self.table.truncate(end)
        state = next((state for _, state in log.producers), None)
        self.sequence = 0 if state is None else state.batches[-1].last_sequence + 1

    def close(self) -> None:
        assert self.log is not None
        log, self.log = self.log, None
        log.close()

    def survivors(self, random: Random) -> Iterator[tuple[str, SimDisk]]:
        yield "killed", self.disk.copy()
        yield "restarted", self.disk.restarted()
        asked = Decisions(())
        self.disk.power_cut(asked)
        chances: tuple[Chance, ...] = tuple(every_decision(asked.asked)) if asked.asked <= ALL_MASKS_UP_TO else ()
        masks = [[random.random() < 0.5 for _ in range(asked.asked)] for _ in range(4)]
        for chance in chances or (Always(False), Always(True), *map(Decisions, masks)):
            yield "power cut", self.disk.power_cut(chance)

    def check(self, disk: SimDisk) -> None:
        """Open what survived, hold it against the table, clean it, and hold it again."""
        log = opened(disk)
        assert log.log_start_offset in self.starts
        table = Table()
        # A batch whose append or flush failed, or that a truncation was removing, may be there or not.
        table.appended = {at: pair for at, pair in self.table.appended.items() if at < log.log_end_offset}
        assert log.log_end_offset >= self.acked
        table.hold(log)
        assert damage_in(disk) == []
        log.roll()
        log.flush(sync=True)
        clean(log, SETTINGS, now_ms=self.now_ms + 1)
        clean(log, SETTINGS, now_ms=self.now_ms + 2 * HOUR_MS)
        table.hold(log)
        log.close()
        assert damage_in(disk) == []
        table.hold(opened(disk))


def opened(disk: SimDisk) -> PartitionLog:
    reports = Reports()
    log = open_log(disk, CONFIG, reports=reports)
    assert not reports.damage, reports.damage
    return log


def damage_in(disk: SimDisk) -> list[object]:
    reports = Reports()
    verify(LogView(disk, DIRECTORY), reports)
    return list(reports.damage)


def play(history: str, kind: str, at: int) -> int:
    """Play one case; how many survivors were checked."""
    code, lasting = FAULTS[kind]
    disk, fault = SimDisk(), Fault(at, code, lasting)
    fault.install(disk)
    life = Life(disk)
    with contextlib.suppress(PowerFailureError):
        life.play(HISTORIES[history])
    if fault.happened is None:
        return 0
    disk.fault = lambda operation, path: None
    checked = 0
    for name, survivor in life.survivors(Random(at)):
        try:
            life.check(survivor)
        except Exception as error:
            raise AssertionError(f"play({history!r}, {kind!r}, {at}), {fault.happened}, {name}: {error}") from error
        checked += 1
    return checked


@pytest.mark.in_turn(3)
@pytest.mark.parametrize("kind", BRIEF)
@pytest.mark.parametrize("history", HISTORIES)
def test_every_fault_at_every_operation(history: str, kind: str) -> None:
    """A quick run has one of the faults at each operation."""
    play_all(history, kind, BRIEF.index(kind), len(BRIEF))


@pytest.mark.slow
@pytest.mark.parametrize("kind", sorted(FAULTS.keys() - BRIEF))
@pytest.mark.parametrize("history", HISTORIES)
def test_every_other_fault_at_every_operation(history: str, kind: str) -> None:
    """As above, with the other kinds of faults: `play_all` checks the log after each."""
    play_all(history, kind)


def play_all(history: str, kind: str, turn: int = 0, turns: int = 1) -> None:
    """Play a history without a fault, then with one at each of its operations, or at those whose turn it is."""
    disk, fault = SimDisk(), Fault(1 << 40, errno.EIO)
    fault.install(disk)
    life = Life(disk)
    life.play(HISTORIES[history])
    disk.fault = lambda operation, path: None
    life.check(disk.copy())
    assert sum(play(history, kind, at) for at in part(fault.count, turn, turns))
