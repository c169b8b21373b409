"""The files of a member of the group: every fault at every operation of the disk, power failures, flipped bits.

What was reported as durable is there; of a write that was under way there is nothing, all, or a part that no reader can
take for anything else; what is damaged is refused.
"""

import contextlib
import errno
from collections.abc import Iterator
from dataclasses import replace
from random import Random

import pytest
from tests.support.disk_lives import Fault, PowerFailureError

from logboom.base.errors import RetriableStorageError, StorageError
from logboom.broker.raft import RaftFiles
from logboom.raft import (
    ConfState,
    Entry,
    EntryType,
    HardState,
    Index,
    NodeId,
    Persist,
    Snapshot,
    Stored,
    Term,
    bootstrap,
)
from logboom.sim.disk import Always, Decisions, SimDisk
from logboom.storage import Damage, Notice

DIRECTORY = "raft"
START = bootstrap((NodeId(1), NodeId(2), NodeId(3)))

Change = Persist | Snapshot | Index
"""A write, a snapshot of the own state machine, or the index up to which the log is not needed."""


def entries(first: int, *terms: int) -> tuple[Entry, ...]:
    return tuple(
        Entry(Term(term), Index(first + number), EntryType(term % 2), b"%d/%d" % (term, first + number) * 9)
        for number, term in enumerate(terms)
    )


def persist(
    *written: Entry, term: int = 0, vote: int = 0, commit: int = 0, snapshot: Snapshot | None = None
) -> Persist:
    state = HardState(Term(term), NodeId(vote), Index(commit)) if term else None
    return Persist(1, state, written, snapshot, must_sync=True)


def snapshot_at(index: int, term: int) -> Snapshot:
    return Snapshot(Index(index), Term(term), ConfState(voters=(NodeId(1), NodeId(2))), b"state at %d" % index)


LEADS: list[Change] = [
    persist(term=1, vote=1),
    persist(*entries(2, 1)),
    persist(*entries(3, 1, 1), term=1, vote=1, commit=2),
]
HISTORIES: dict[str, list[Change]] = {
    "a term and entries": [*LEADS, persist(*entries(5, 1), term=2, vote=3, commit=4)],
    "entries replaced": [*LEADS, persist(term=2, vote=2), persist(*entries(3, 2)), persist(*entries(4, 2, 2))],
    "replaced and replaced again": [
        *LEADS,
        persist(*entries(4, 2), term=2),
        persist(*entries(3, 3, 3), term=3),
        persist(*entries(4, 3, 3)),
    ],
    "shortened": [
        *LEADS,
        persist(*entries(5, 1, 1, 1, 1)),
        snapshot_at(6, 1),
        Index(4),
        persist(*entries(9, 1)),
        snapshot_at(9, 1),
        Index(9),
    ],
    "a snapshot of the leader": [
        *LEADS,
        persist(term=2, vote=2),
        persist(snapshot=snapshot_at(9, 2), term=2, vote=2, commit=9),
        persist(*entries(10, 2, 2)),
    ],
    "a snapshot in the middle of the log": [
        *LEADS,
        persist(snapshot=snapshot_at(3, 2), term=2),
        persist(*entries(4, 2)),
    ],
}


def after(stored: Stored, change: Change) -> Stored:
    """What the files hold once a change is done."""
    if isinstance(change, Snapshot):
        return replace(stored, snapshot=change)
    if not isinstance(change, Persist):
        return replace(stored, entries=tuple(entry for entry in stored.entries if entry.index >= change))
    state = change.hard_state or stored.hard_state
    state = HardState(state.term, state.vote, max(state.commit, stored.hard_state.commit))
    snapshot, kept = stored.snapshot, stored.entries
    if change.snapshot is not None:
        snapshot, kept = change.snapshot, ()
    if change.entries:
        kept = tuple(entry for entry in kept if entry.index < change.entries[0].index) + change.entries
    return Stored(state, snapshot, kept)


def perform(files: RaftFiles, change: Change) -> None:
    if isinstance(change, Persist):
        files.write(change)
    elif isinstance(change, Snapshot):
        files.take_snapshot(change)
    else:
        files.discard(change)


def opened(disk: SimDisk) -> tuple[RaftFiles, Stored]:
    damages: list[Damage | Notice] = []
    found = RaftFiles.open(disk, DIRECTORY, damages.append)
    assert found is not None
    assert not [each for each in damages if isinstance(each, Damage)]
    return found


def begun() -> SimDisk:
    disk = SimDisk()
    RaftFiles.create(disk, DIRECTORY, START)
    return disk


class Life:
    """Changes on one disk: `stored` is what was reported as durable, `pending` the change that was not."""

    def __init__(self, disk: SimDisk) -> None:
        self.disk = disk
        self.stored = START
        self.pending: Change | None = None
        self.is_created = False

    def run(self, history: list[Change], fault: Fault) -> None:
        """Until the end, or until the files take no more writes. PowerFailureError comes through."""
        fault.install(self.disk)
        files = self._started()
        for change in history:
            self.pending = change
            try:
                perform(files, change)
            except RetriableStorageError:
                perform(files, change)  # room is there again
            self.stored, self.pending = after(self.stored, change), None
        files.close()

    def _started(self) -> RaftFiles:
        def start() -> RaftFiles:
            RaftFiles.create(self.disk, DIRECTORY, START)
            self.is_created = True
            return opened(self.disk)[0]

        try:
            return start()
        except RetriableStorageError:
            return start()


def operations_of(history: list[Change]) -> int:
    fault = Fault(1 << 40, errno.EIO)
    Life(SimDisk()).run(history, fault)
    return fault.count


def survivors(disk: SimDisk, random: Random) -> Iterator[SimDisk]:
    """After the end of the process, and after power failures that spare some unsynced writes and not others."""
    yield disk.copy()
    yield disk.restarted()
    yield disk.power_cut(Always(False))
    yield disk.power_cut(Always(True))
    asked = Decisions(())
    disk.power_cut(asked)
    for _ in range(2):
        yield disk.power_cut(Decisions([random.random() < 0.5 for _ in range(asked.asked)]))


def hold(life: Life, disk: SimDisk) -> None:
    """Open what survived, hold it against what was reported, write to it and open it again."""
    found = RaftFiles.open(disk, DIRECTORY, lambda each: None)
    if found is None:
        assert not life.is_created
        return
    files, stored = found
    before = life.stored
    done = before if life.pending is None else after(before, life.pending)
    done = as_found(done)
    before = as_found(before)
    votes = {(each.hard_state.term, each.hard_state.vote) for each in (before, done)}
    assert (stored.hard_state.term, stored.hard_state.vote) in votes
    assert before.hard_state.commit <= stored.hard_state.commit <= done.hard_state.commit
    assert stored.snapshot in (before.snapshot, done.snapshot)
    assert_entries(stored, before, done)
    last = stored.entries[-1].index if stored.entries else stored.snapshot.index
    term = stored.hard_state.term + 1
    change = persist(*entries(last + 1, term, term), term=term)
    perform(files, change)
    files.close()
    assert opened(disk)[1] == as_found(after(stored, change))


def as_found(stored: Stored) -> Stored:
    """What is in a snapshot is committed."""
    state = stored.hard_state
    return replace(stored, hard_state=HardState(state.term, state.vote, max(state.commit, stored.snapshot.index)))


def assert_entries(stored: Stored, before: Stored, done: Stored) -> None:
    """All that was durable and is not being replaced, and behind it a part of the old end or of the new one."""
    if stored.snapshot != before.snapshot and done.entries == ():
        assert stored.entries == ()
        return
    common = [entry for entry in before.entries if entry in done.entries]
    assert [entry for entry in stored.entries if entry in common] == common
    ends = [[entry for entry in each.entries if entry not in common] for each in (before, done)]
    end = [entry for entry in stored.entries if entry not in common]
    assert any(end == each[: len(end)] or end == each[-len(end) :] for each in ends), (end, ends)


FAULTS = {"crash": None, "EIO": errno.EIO, "full once": errno.ENOSPC, "no handle once": errno.EMFILE}


@pytest.mark.in_turn(3)
@pytest.mark.parametrize("history", HISTORIES)
@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=[pytest.mark.slow] if kind == "no handle once" else []) for kind in FAULTS]
)
def test_every_fault_at_every_operation(history: str, kind: str) -> None:
    happened = 0
    for at in range(operations_of(HISTORIES[history])):
        disk = SimDisk()
        life, fault = Life(disk), Fault(at, FAULTS[kind])
        with contextlib.suppress(PowerFailureError, StorageError):
            life.run(HISTORIES[history], fault)
        if fault.happened is None:
            continue
        happened += 1
        disk.fault = lambda operation, path: None
        for number, survivor in enumerate(survivors(disk, Random(at))):
            try:
                hold(life, survivor)
            except (AssertionError, StorageError) as error:
                error.add_note(f"{history}, {kind} at {at} ({fault.happened}), survivor {number}")
                raise
    assert happened


def test_what_is_written_is_found_again() -> None:
    for history in HISTORIES.values():
        disk = begun()
        files, expected = opened(disk)
        assert expected == as_found(START)
        for change in history:
            perform(files, change)
            expected = after(expected, change)
        files.close()
        assert opened(disk)[1] == as_found(expected)


def test_the_commit_index_is_as_durable_as_the_entries_that_came_with_it() -> None:
    """Else a member could forget that a change of members was committed, and keep the entry of the next one."""
    disk = begun()
    files, _ = opened(disk)
    for change in (*LEADS, persist(term=1, vote=1, commit=4), persist(*entries(5, 1))):
        perform(files, change)
    assert opened(disk.power_cut(Always(False)))[1].hard_state == HardState(Term(1), NodeId(1), Index(4))


def test_a_member_that_was_never_created_is_none() -> None:
    assert RaftFiles.open(SimDisk(), DIRECTORY, lambda each: None) is None


def test_after_a_failed_sync_nothing_more_is_written() -> None:
    disk = begun()
    files, _ = opened(disk)
    perform(files, LEADS[0])

    def fail(operation: str, path: str) -> None:
        if operation == "sync" and "log-" in path:
            raise OSError(errno.EIO, "EIO", path)

    disk.fault = fail
    with pytest.raises(StorageError):
        perform(files, LEADS[1])
    disk.fault = lambda operation, path: None
    for change in (LEADS[1], snapshot_at(2, 1), persist(term=5)):
        with pytest.raises(StorageError):
            perform(files, change)


def flipped(disk: SimDisk, path: str, position: int) -> SimDisk:
    copy = disk.copy()
    file = copy.open(path)
    byte = file.read(position, 1)
    file.write(position, [bytes((byte[0] ^ 0x40,))])
    file.sync()
    return copy


@pytest.mark.parametrize("name", ["snapshot", "log"])
def test_flipped_bits_are_found_and_never_taken_for_content(name: str) -> None:
    disk = begun()
    files, expected = opened(disk)
    for change in LEADS:
        perform(files, change)
        expected = after(expected, change)
    path = f"{DIRECTORY}/{name}"
    if name == "log":
        (directory,) = (each for each in disk.list(DIRECTORY) if each.startswith("log-"))
        (segment,) = (each for each in disk.list(f"{DIRECTORY}/{directory}") if each.endswith(".log"))
        path = f"{DIRECTORY}/{directory}/{segment}"
    size = len(disk.open(path).read(0, disk.size(path)).rstrip(b"\0"))  # behind that there is only reserved room
    refused = 0
    for position in range(size):
        try:
            found = opened_quietly(flipped(disk, path, position))
        except StorageError as error:
            refused += "remove it from its cluster" in str(error)
        else:
            assert found == as_found(expected), position
    assert refused == size


def test_flipped_bits_in_one_copy_of_the_hard_state_are_made_good() -> None:
    disk = begun()
    files, expected = opened(disk)
    for change in (*LEADS, persist(term=7, vote=2, commit=3)):
        perform(files, change)
        expected = after(expected, change)
    path = f"{DIRECTORY}/hard-state"
    for position in range(0, disk.size(path), 3):
        bad = flipped(disk, path, position)
        assert opened_quietly(bad) == as_found(expected), position
        file = bad.open(path)
        assert file.read(0, 48) == file.read(4096, 48), "there are two again"


def test_a_hard_state_without_a_whole_copy_is_damage() -> None:
    disk = begun()
    files, _ = opened(disk)
    files.close()
    for position in (20, 4096 + 20):
        disk = flipped(disk, f"{DIRECTORY}/hard-state", position)
    with pytest.raises(StorageError, match="hard-state is garbled"):
        opened(disk)


def test_a_member_votes_and_leads_on_a_disk_that_is_full_also_after_a_restart() -> None:
    disk = begun()
    files, _ = opened(disk)
    for change in LEADS:
        perform(files, change)
    disk.capacity_bytes = sum(len(node.data) for node in disk.nodes.values())
    for term in (4, 5):
        for each in (disk, disk.restarted(), disk.power_cut(Always(True))):
            again, stored = opened(each)
            last = stored.entries[-1].index
            perform(again, persist(term=term, vote=1))
            perform(again, persist(*entries(last + 1, term)))
            again.close()
            _, written = opened(each)
            assert (written.hard_state.term, written.hard_state.vote) == (term, 1)
            assert written.entries[-1].index == last + 1
        disk = each


def opened_quietly(disk: SimDisk) -> Stored:
    found = RaftFiles.open(disk, DIRECTORY, lambda each: None)
    assert found is not None
    return found[1]


@pytest.mark.parametrize("name", ["hard-state", "snapshot"])
def test_a_missing_file_is_damage(name: str) -> None:
    disk = begun()
    files, _ = opened(disk)
    for change in LEADS:
        perform(files, change)
    files.close()
    disk.unlink(f"{DIRECTORY}/{name}")
    with pytest.raises(StorageError, match="damaged"):
        opened(disk)


@pytest.mark.parametrize("ends", [True, False], ids=["stopped", "killed"])
def test_a_log_without_committed_entries_was_lost(ends: bool) -> None:
    """With all of its files, and not with a part that looks damaged: it would begin anew behind the snapshot, and the
    member might vote for one that lacks what it has acknowledged."""
    disk = begun()
    files, _ = opened(disk)
    for change in (*LEADS, persist(term=1, vote=1, commit=4)):
        perform(files, change)
    if ends:
        files.close()
    else:
        files.keep_commit()
        files.abandon()
    (log,) = [name for name in disk.directories if name.startswith(f"{DIRECTORY}/log-")]
    disk.remove_tree(log)
    with pytest.raises(StorageError, match=r"entry 4 was committed, and the log ends at \d"):
        opened(disk)


def test_a_commit_index_of_entries_that_the_power_failure_took_is_not_missed() -> None:
    """It came with them, and with a new term, which is written first."""
    for survives in (True, False):
        disk = begun()
        files, _ = opened(disk)

        def fail(operation: str, path: str) -> None:
            if "log-" in path and operation in {"write", "sync"}:
                raise OSError(errno.EIO, "EIO", path)

        disk.fault = fail
        with pytest.raises(StorageError):
            perform(files, persist(*entries(2, 3, 3), term=3, vote=2, commit=3))
        disk.fault = lambda operation, path: None
        found = opened_quietly(disk.power_cut(Always(survives)))
        assert found.hard_state == HardState(Term(3), NodeId(2), Index(1))
