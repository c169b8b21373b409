"""A log's life on a disk that fails: steps are played, what was acked is remembered, what survives is held against it.

What must be true of any survivor, whatever failed and wherever it was cut:

- every acked batch is there, byte for byte; every other one is there wholly or not at all, and none stands between;
- the log ends where a batch ends, never below what was told to be durable, and nothing is reported as damage;
- what an idempotent producer is remembered for are its last batches, deleted ones included;
- the log can be written, closed and opened again.
"""

import errno
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from tests.support.logs import Reports, append, batch, open_log, read_batches

from logboom.base.errors import OffsetOutOfRangeError, RetriableStorageError, StorageError
from logboom.base.ids import Epoch, Offset
from logboom.records import read_header
from logboom.sim.disk import Always, Chance, Decisions, SimDisk, every_decision
from logboom.storage import LogConfig, Notice, PartitionLog, UnknownStart

Step = tuple[Any, ...]
"""A name and its arguments; see `Life.play`."""

NEEDING_ROOM = ("write", "begin_write_out", "write_out", "sync", "allocate", "rename", "sync_dir", "make_dir")
CHANGING = (*NEEDING_ROOM, "truncate", "unlink")
ALL_MASKS_UP_TO = 3
MASKS = 4
PRODUCER = 7


class PowerFailureError(Exception):
    """The machine stops here: no code of the log runs any more."""


@dataclass
class Fault:
    """What happens at the nth operation of a disk, and whether it goes on happening until the disk is mended."""

    at: int
    code: int | None
    """The errno; None for a machine that stops there."""
    lasting: bool = False
    count: int = 0
    happened: str | None = None
    paths: set[str] = field(default_factory=set)
    """Files it struck."""

    def install(self, disk: SimDisk) -> None:
        self._disk = disk
        disk.fault = self

    def __call__(self, operation: str, path: str) -> None:
        at, self.count = self.count, self.count + 1
        if at < self.at or (at > self.at and not self.lasting) or not self._fits(operation, path):
            return
        self.happened = self.happened or f"{operation} of {path}"
        self.paths.add(path)
        if self.code is None:
            raise PowerFailureError(self.happened)
        raise OSError(self.code, errno.errorcode[self.code], path)

    def _fits(self, operation: str, path: str) -> bool:
        creates = operation == "open" and path not in self._disk.nodes
        match self.code:
            case None:
                return operation in CHANGING or creates
            case errno.EMFILE:
                return operation in ("open", "sync_dir")
            case errno.ENOSPC:
                return creates or operation in NEEDING_ROOM
        return operation != "list"


@dataclass
class Told:
    """What the log told, and what of that may not be true any more."""

    end: int = 0
    """Acked below here."""
    start: int = 0
    starts_asked: set[int] = field(default_factory=set)
    """Starts that were asked for; each is in force or it is not."""
    now: dict[int, bytes] = field(default_factory=dict)
    """What lies at each base offset as far as the log knows."""
    ever: dict[int, list[bytes]] = field(default_factory=dict)
    """All that ever lay there and was not taken away for good."""
    snapshots_lost: bool = False
    """Whether a snapshot could not be read once: producers of deleted records may be forgotten."""


class Life:
    """One log on one disk. `play` steps; then look at `survivors`."""

    def __init__(self, disk: SimDisk, config: LogConfig, told: Told | None = None) -> None:
        self.disk = disk
        self.config = config
        self.told = told or Told()
        self.log: PartitionLog | None = None
        self.leader_epoch = 0
        self.checkpoint_lost = False
        """Whether the note of the start could not be read: records that were deleted may be back."""

    def play(self, steps: Iterable[Step]) -> None:
        """Play until the end, or until the log takes no more writes. PowerFailureError comes through."""
        for name, *arguments in steps:
            try:
                getattr(self, name)(*arguments)
            except RetriableStorageError:
                if self.log is None:
                    return
                self._forget_staged()
            except StorageError:
                self._learn()
                return
            self._learn()

    def _learn(self) -> None:
        """Whatever the log calls durable may have been acked."""
        if self.log is not None:
            self.told.end = max(self.told.end, self.log.durable_end)
            self.told.start = max(self.told.start, self.log.log_start_offset)

    def _forget_staged(self) -> None:
        assert self.log is not None
        self.log.abandon_staged()
        self.told.now = {base: data for base, data in self.told.now.items() if base < self.log.log_end_offset}

    # --- steps --------------------------------------------------------------------------------------------------

    def open(self) -> None:
        reports = Reports()
        self.log = None
        self.log = open_log(self.disk, self.config, reports=reports)
        assert not reports.damage, reports.damage
        self.leader_epoch = self.log.epochs.latest + 1
        self.log.epochs.begin(Epoch(self.leader_epoch), self.log.durable_end)
        try:
            self.log.epochs.try_save()
        except OSError as error:
            self.log = None
            raise StorageError(str(error)) from error
        end = self.log.log_end_offset
        self.told.now = {base: data for base, data in self.told.now.items() if base < end}

    def append(self, count: int, size_bytes: int, idempotent: bool = True) -> None:
        assert self.log is not None
        base = self.log.log_end_offset
        producer, epoch, sequence = -1, -1, -1
        if idempotent:
            state = next((state for known, state in self.log.producers if known == PRODUCER), None)
            producer, epoch = PRODUCER, 0
            sequence = int(base) if state is None else state.batches[-1].last_sequence + 1
        # Each is unlike any other that ever lay there.
        size_bytes += 7 * len(self.told.ever.get(base, ()))
        buffer = batch(count, size_bytes, timestamp_ms=1000 + base, producer=producer, epoch=epoch, sequence=sequence)
        placed = append(self.log, buffer, leader_epoch=self.leader_epoch)
        assert not placed.duplicate
        self.told.now[placed.base_offset] = bytes(buffer)
        self.told.ever.setdefault(placed.base_offset, []).append(bytes(buffer))

    def flush(self, sync: bool = True) -> None:
        assert self.log is not None
        end = self.log.flush(sync=sync)
        assert end == self.log.log_end_offset

    def roll(self) -> None:
        assert self.log is not None
        self.log.roll()

    def lead(self) -> None:
        assert self.log is not None
        self.leader_epoch += 1
        self.log.epochs.begin(Epoch(self.leader_epoch), self.log.log_end_offset)

    def checkpoint(self) -> None:
        assert self.log is not None
        self.log.checkpoint()

    def delete(self, share: float) -> None:
        """Delete records up to the batch at so much of the durable part."""
        assert self.log is not None
        bases = [base for base in sorted(self.told.now) if self.log.log_start_offset <= base <= self.log.durable_end]
        wanted = (*bases, int(self.log.durable_end))[int(share * len(bases))]
        self.told.starts_asked.add(wanted)
        self.log.delete_before(Offset(wanted))

    def truncate(self, share: float) -> None:
        assert self.log is not None
        bases = [base for base in sorted(self.told.now) if self.log.log_start_offset <= base < self.log.written_end]
        if not bases:
            return
        offset = bases[int(share * len(bases))]
        self.told.end = min(self.told.end, offset)  # from now on what is above may be gone
        self.log.truncate(Offset(offset), now_ms=1000)
        for known in (self.told.now, self.told.ever):
            for base in [base for base in known if base >= offset]:
                del known[base]

    def close(self) -> None:
        assert self.log is not None
        log, self.log = self.log, None
        try:
            log.close()
        finally:
            self.told.end = max(self.told.end, log.durable_end)
        self.told.now = {base: data for base, data in self.told.now.items() if base < log.log_end_offset}

    def learn_of(self, fault: Fault) -> None:
        """What a fault may have cost that can only be made again in part."""
        lost = fault.paths if fault.code == errno.EIO else set()
        self.checkpoint_lost = any(path.endswith("durable-end") for path in lost)
        self.told.snapshots_lost |= any(path.endswith(".producers") for path in lost)

    # --- afterwards ---------------------------------------------------------------------------------------------

    def reads_go_on(self) -> None:
        """What is durable is read from the living log, whatever happened to its writing."""
        log = self.log
        if log is None:
            return
        for base in sorted(self.told.now):
            if log.log_start_offset <= base < log.durable_end:
                assert read_batches(log, base, 1) == [self.told.now[base]]

    def survivors(self, random: Random) -> Iterator[tuple[str, SimDisk]]:
        """Disks as they may be found: after the end of the process, and after that of the machine."""
        yield "killed", self.disk.copy()
        yield "restarted", self.disk.restarted()
        asked = Decisions(())
        self.disk.power_cut(asked)
        chances: Iterable[Chance] = every_decision(asked.asked)
        if asked.asked > ALL_MASKS_UP_TO:
            masks = [[random.random() < 0.5 for _ in range(asked.asked)] for _ in range(MASKS)]
            chances = (Always(False), Always(True), *map(Decisions, masks))
        for number, chance in enumerate(chances):
            yield f"power cut {number}", self.disk.power_cut(chance)

    def check(self, disk: SimDisk) -> PartitionLog:
        """Open what survived, hold it against what was told, write to it and open it once more; the log."""
        in_doubt = not disk.is_settled
        log, reports = self._opened(disk)
        self._check_ends(log)
        if in_doubt:
            self._check_told_at_start(log, disk)
        found = dict(all_batches(log))
        self._check_batches(log, found)
        self._check_producers(log, found)
        last = batch(1, 33, timestamp_ms=77)
        base = append(log, last, leader_epoch=log.epochs.latest + 1).base_offset
        assert log.flush(sync=True) == base + 1
        log.close()
        again, reports = self._opened(disk)
        assert all("unreadable" in one.path or self._may_be_told(one) for one in reports.notices), reports.notices
        assert (again.log_start_offset, again.log_end_offset) == (log.log_start_offset, base + 1)
        assert dict(all_batches(again)) == {**found, base: bytes(last)}
        return log

    def _may_be_told(self, notice: Notice) -> bool:
        """A start that became unknown with the checkpoint stays unknown."""
        return self.checkpoint_lost and isinstance(notice, UnknownStart)

    def _check_told_at_start(self, log: PartitionLog, disk: SimDisk) -> None:
        """What the log says once it is open is told to clients: no power failure may take it back. The system may have
        shown it bytes that it never got onto the disk."""
        log.delete_before(log.log_start_offset)  # as retention does: segments below the start go
        reports = Reports()
        after = open_log(disk.power_cut(Always(False)), self.config, reports=reports)
        assert not reports.damage, reports.damage
        assert (after.log_start_offset, after.log_end_offset) == (log.log_start_offset, log.log_end_offset)

    def _opened(self, disk: SimDisk) -> tuple[PartitionLog, Reports]:
        reports = Reports()
        log = open_log(disk, self.config, reports=reports)
        assert not reports.damage, reports.damage
        return log, reports

    def _check_ends(self, log: PartitionLog) -> None:
        told = self.told
        assert log.durable_end == log.written_end == log.log_end_offset
        assert log.log_end_offset >= told.end, f"acked up to {told.end}, found up to {log.log_end_offset}"
        starts = {told.start, *(asked for asked in told.starts_asked if asked > told.start)}
        assert log.log_start_offset in starts or (self.checkpoint_lost and log.log_start_offset <= max(starts))

    def _check_batches(self, log: PartitionLog, found: dict[int, bytes]) -> None:
        for base, data in found.items():
            if base < self.told.start and self.checkpoint_lost:
                continue  # deleted, and back with its start forgotten
            if base < self.told.end:
                assert data == self.told.now[base], f"the batch at {base} is not the one that was acked"
            else:
                assert data in self.told.ever[base], f"the batch at {base} was never written"
        acked = {base for base in self.told.now if log.log_start_offset <= base < self.told.end}
        assert acked <= set(found)

    def _check_producers(self, log: PartitionLog, found: dict[int, bytes]) -> None:
        """The table remembers the last batches of the log, those included whose records were deleted since."""
        deleted = {base: data for base, data in self.told.now.items() if base < min(found, default=log.log_end_offset)}
        written = []
        for _, data in sorted({**deleted, **found}.items()):
            header = read_header(data)
            if header.producer_id == PRODUCER:
                written.append((header.base_sequence, header.last_sequence, header.base_offset))
        state = next((state for producer, state in log.producers if producer == PRODUCER), None)
        remembered = (
            [] if state is None else [(b.first_sequence, b.last_sequence, b.base_offset) for b in state.batches]
        )
        if self.told.snapshots_lost and log.log_start_offset:
            assert remembered == written[len(written) - len(remembered) :]
        else:
            assert remembered == written[-5:]


def all_batches(log: PartitionLog) -> Iterator[tuple[int, bytes]]:
    """Every batch, one behind the other up to the end of the log."""
    offset: int = log.log_start_offset
    while offset < log.log_end_offset:
        (data,) = read_batches(log, offset, 1)
        header = read_header(data)
        assert header.base_offset <= offset < header.next_offset
        yield header.base_offset, data
        offset = header.next_offset
    try:
        log.reader.read(Offset(offset + 1), 1, ceiling=Offset(offset + 10))
    except OffsetOutOfRangeError:
        return
    raise AssertionError("nothing lies behind the end")


def operations_of(config: LogConfig, steps: Sequence[Step]) -> int:
    """How many operations of the disk a history has."""
    disk, fault = SimDisk(), Fault(1 << 40, errno.EIO)
    fault.install(disk)
    Life(disk, config).play(steps)
    return fault.count


def play_with_fault(config: LogConfig, steps: Sequence[Step], fault: Fault) -> Life | None:
    """The life of a log whose disk has this fault; None where it never came to it."""
    disk = SimDisk()
    fault.install(disk)
    life = Life(disk, config)
    try:
        life.play(steps)
    except PowerFailureError:
        life.log = None
    disk.fault = lambda operation, path: None
    life.learn_of(fault)
    return life if fault.happened else None


def hold(life: Life, random: Random, tell: Callable[[str], str]) -> int:
    """Check the living log and all survivors; how many those were. AssertionError with what `tell` makes of a name."""
    count = 0
    name = "alive"
    try:
        life.reads_go_on()
        for name, disk in life.survivors(random):  # noqa: B007 - the name is told where the check fails
            life.check(disk)
            count += 1
    except (AssertionError, StorageError, OSError, KeyError) as error:
        raise AssertionError(f"{tell(name)}: {type(error).__name__}: {error}") from error
    return count
