"""The files of one member of the group: hard state, snapshot, and the log as a `PartitionLog`.

    hard-state       term and vote, and the commit index at that time (`hard_state`)
    snapshot         the latest snapshot; replaced whole
    log-INDEX/       the entries from INDEX on: the record at offset 0 is the entry INDEX. Each entry is a batch of its
                     own, because a log is cut between batches, and an entry that was acknowledged must not be cut with
                     its neighbour; its key holds its term, and the commit index when it was written

A full disk stops no election and none of the first changes after it: the hard state is written over in place, and the
log keeps room in reserve, also while the broker does not run. So a term is not the batch's leader epoch: a log notes
each of those in a file that it replaces, for which there may be no room.

The commit index is durable together with each entry, although Raft itself could do without. A member counts with the
configuration of the last change that it knows to be committed. A change is proposed only once the one before it is
applied, and its entry comes with the commit index that says so; so whoever has the entry is behind by one change at
most, and majorities of neighbouring configurations overlap. A member that kept the entries of two changes and forgot
that the first was committed would count with the configuration before both, and could elect itself. Once a change of
members is committed, the commit index is made durable without waiting for the next entry (`keep_commit`): a voter that
forgot in a crash that it is the only one would need the vote of one that was stopped since.

What a crash may leave: a hard state or snapshot is the old one or the new one; a torn entry at the end was never
reported as durable and is cut; where entries are replaced, the old ones are cut first, and there may be none for then.
A snapshot of the leader is durable before the log that it replaces goes, and `open` knows a log that does not go with
the snapshot: it lacks the entry at the snapshot's index, or has it with another term.

The commit index in the hard state is at most the last entry that is durable. So a log that ends before it was lost,
with all of its files or with some.

A lost hard state, or a damaged or lost snapshot or log, cannot be made good from here: the member might vote twice or
forget what it has acknowledged. It does not start. It is removed from the group, and its disk is added as a new
member (`raft.Voter`).
"""

from collections.abc import Callable
from itertools import dropwhile
from struct import Struct
from typing import Final

import msgspec

from logboom.base.errors import RetriableStorageError, StorageError
from logboom.base.ids import Epoch, Offset
from logboom.base.ports import Disk
from logboom.base.units import MIB
from logboom.broker.raft import hard_state
from logboom.broker.raft.hard_state import HardStateFile
from logboom.raft import Entry, EntryType, HardState, Index, Persist, Snapshot, Stored, Term
from logboom.records import Record, build_batch, iter_batches, iter_records, read_header
from logboom.storage import (
    Damage,
    EpochHistory,
    LogConfig,
    Notice,
    PartitionLog,
    frame,
    read_whole,
    replace_whole,
    retriable_error_for,
    unframe,
)

SNAPSHOT: Final = "snapshot"
_LOG_PREFIX: Final = "log-"
_DELETED_SUFFIX: Final = ".deleted"
_SNAPSHOT_TAG: Final = b"LBRS"
_VERSION: Final = 1
_KEY: Final = Struct(">QQ")  # term, commit index
_SNAPSHOTS: Final = msgspec.msgpack.Decoder(Snapshot)
_SEGMENT_BYTES: Final = 64 * MIB
# Disk space is reserved ahead, so that metadata can still be changed after the disk has filled up.
_LOG_CONFIG: Final = LogConfig(segment_bytes=_SEGMENT_BYTES, segment_ms=2**62, preallocate_bytes=4 * MIB)
_READ_BYTES: Final = MIB
_NO_TIME: Final = 0
"""Nothing here depends on when an entry was written."""
_ONLY_EPOCH: Final = Epoch(0)

Report = Callable[[Damage | Notice], None]


class RaftFiles:
    """See the module. Not on the loop, one call at a time. After any StorageError but a RetriableStorageError it writes
    nothing more."""

    def __init__(
        self,
        disk: Disk,
        directory: str,
        stored: Stored,
        *,
        hard_state: HardStateFile,
        base: Index,
        log: PartitionLog,
    ) -> None:
        self._disk = disk
        self._directory = directory
        self._hard_state_file = hard_state
        self._hard_state = stored.hard_state
        self._base = base
        self._log = log
        self._terms = EpochHistory()
        """The terms of the entries in the log, by offset."""
        self._note_terms(stored.entries)
        self._failure: StorageError | None = None

    # --- beginning and end ---------------------------------------------------------------------------------------

    @classmethod
    def create(cls, disk: Disk, directory: str, stored: Stored) -> None:
        """Write what a member of a new group starts from (`raft.bootstrap`), or `Stored()` for one that joins.

        Durable on return; a crash before that leaves what `open` takes for nothing. Raises StorageError.
        """
        assert not stored.entries, "a new member has no entries"
        try:
            disk.make_dir(directory)
            disk.sync_dir(_parent(directory))
            _write_snapshot(disk, directory, stored.snapshot)
            HardStateFile.create(disk, directory, stored.hard_state)
        except OSError as error:
            raise _error_for(error, directory) from error

    @staticmethod
    def exist(disk: Disk, directory: str) -> bool:
        """Whether `create` was completed there once. Raises OSError."""
        return disk.exists(_path(directory, hard_state.NAME))

    @classmethod
    def open(cls, disk: Disk, directory: str, report: Report) -> "tuple[RaftFiles, Stored] | None":
        """Recover what is stored; None where `create` has not been completed.

        Raises StorageError where the disk fails or the files are damaged.
        """
        try:
            if not cls.exist(disk, directory):
                if disk.exists(directory) and _log_bases(disk, directory):
                    raise _damaged(directory, "there is a log without a hard state")
                return None
            file = HardStateFile.open(disk, directory)
            if file is None:
                raise _damaged(directory, f"{hard_state.NAME} is garbled, cut or of another version")
            # The process before may have replaced the snapshot and ended before the sync of its name.
            disk.sync_dir(directory)
            snapshot = read_snapshot(disk, directory)
            base, log, (entries, commit) = _open_log(disk, directory, snapshot, report)
        except OSError as error:
            raise _error_for(error, directory) from error
        state = file.state
        if entries and entries[-1].term > state.term:
            raise _damaged(directory, f"the log has entries of term {entries[-1].term}, the hard state is older")
        # Of entries that were written together with a commit index, the last ones may not have got to the disk.
        last = entries[-1].index if entries else snapshot.index
        if state.commit > last:
            raise _damaged(directory, f"entry {state.commit} was committed, and the log ends at {last}")
        commit = min(max(commit, state.commit, snapshot.index), last)
        stored = Stored(HardState(state.term, state.vote, commit), snapshot, entries)
        return cls(disk, directory, stored, hard_state=file, base=base, log=log), stored

    def close(self) -> None:
        """Release the files, and let the next start know what is committed. All writes have ended. Raises StorageError.

        The log is not closed, which would give back the room that it reserved.
        """
        self._log.abandon()
        self._guarded(lambda: self._write_hard_state(self._hard_state))

    def abandon(self) -> None:
        """Write nothing more, and release the files."""
        self._log.abandon()

    def check(self) -> list[str]:
        """Read the snapshot and what is durable of the log from the disk, while they are in use: what is not as it was
        written, upon which the next start would refuse them.

        On a thread that may wait for the disk. OSError for a lack of handles or memory: to be tried again.
        """
        damages = []
        try:
            read_snapshot(self._disk, self._directory)
        except StorageError as error:
            damages.append(str(error))
        except OSError as error:
            if retriable_error_for(error, self._directory) is not None:
                raise
            damages.append(str(_damaged(self._directory, f"{SNAPSHOT} cannot be read: {error}")))
        log = self._log
        scrub, is_last = log.reader.scrub(log.log_start_offset), False
        while not is_last:
            found = scrub.check_next(log.durable_end, _READ_BYTES)
            is_last = found.is_last
            if found.damages and log is self._log:  # else a leader's snapshot has replaced it, and its files are gone
                damages.append(str(_damaged(self._directory, f"in the log below offset {scrub.offset}")))
        return damages

    # --- appending, on the loop ----------------------------------------------------------------------------------

    @property
    def log(self) -> PartitionLog:
        """The log that `stage` appends to, to be flushed by group commit. A snapshot of the leader replaces it."""
        return self._log

    @property
    def log_end(self) -> Offset:
        """The end of all that is staged in the log."""
        return self._log.log_end_offset

    def is_append(self, persist: Persist) -> bool:
        """Whether a write has only new entries after the end of the log, or nothing at all."""
        state, known = persist.hard_state or self._hard_state, self._hard_state
        if persist.snapshot is not None or (state.term, state.vote) != (known.term, known.vote):
            return False
        return not persist.entries or persist.entries[0].index - self._base == self._log.log_end_offset

    def stage(self, persist: Persist) -> int:
        """Stage a write that is `is_append` in the log; how many bytes are to be flushed.

        On the loop, while no other method is under way. Raises StorageError where the files have failed.
        """
        if self._failure is not None:
            raise self._failure.with_traceback(None)
        self._note_commit(persist)
        return self._stage(persist.entries)

    def unstage(self) -> None:
        """Take back what is staged and not written. On the loop, as `stage`."""
        self._log.abandon_staged()
        self._terms.truncate_end(self._log.log_end_offset)

    # --- writing -------------------------------------------------------------------------------------------------

    def write(self, persist: Persist) -> None:
        """Make a write durable. It may be repeated after a RetriableStorageError, which leaves less than all of it.

        The hard state goes first: no entry of a term is on the disk before the term is.
        """
        self._guarded(lambda: self._write(persist))

    def take_snapshot(self, snapshot: Snapshot) -> None:
        """Store a snapshot of the own state machine; the log stays as it is. Durable on return."""
        self._guarded(lambda: _write_snapshot(self._disk, self._directory, snapshot))

    def keep_commit(self) -> None:
        """Make the commit index durable, which otherwise comes with the next entry. Durable on return."""
        self._guarded(lambda: self._write_hard_state(self._hard_state))

    def discard(self, index: Index) -> None:
        """Remove files that hold only entries below `index`, which must be in a snapshot.

        The entry at `index` stays: its term is asked for when the one behind it is sent.
        """
        offset = Offset(index - self._base)
        if offset > self._log.log_start_offset:
            self._guarded(lambda: self._log.delete_before(offset))

    def _write(self, persist: Persist) -> None:
        known, state = self._hard_state, persist.hard_state or self._hard_state
        if (state.term, state.vote) != (known.term, known.vote):
            state = HardState(state.term, state.vote, max(state.commit, known.commit))
            self._write_hard_state(state)
        self._note_commit(persist)
        if persist.snapshot is not None:
            _write_snapshot(self._disk, self._directory, persist.snapshot)
            self._begin_log_after(persist.snapshot)
        if persist.entries:
            self._append(persist.entries)

    def _write_hard_state(self, state: HardState) -> None:
        """With the commit index as far as the log is durable, so that a log that ends before it was lost."""
        durable = Index(self._base + self._log.durable_end - 1)
        self._hard_state_file.write(HardState(state.term, state.vote, min(state.commit, durable)))

    def _note_commit(self, persist: Persist) -> None:
        """The commit index goes into the entries that are written from now on."""
        state = persist.hard_state or self._hard_state
        self._hard_state = HardState(state.term, state.vote, max(state.commit, self._hard_state.commit))

    def _begin_log_after(self, snapshot: Snapshot) -> None:
        """Replace the log by an empty one that begins after a snapshot."""
        self._log.abandon()
        self._base = Index(snapshot.index + 1)
        self._log = _new_log(self._disk, self._directory, self._base, _ignore)
        self._terms = EpochHistory()

    def _append(self, entries: tuple[Entry, ...]) -> None:
        # What is there already stays: it may have been acknowledged, and would be gone between the cut and the write.
        new = tuple(dropwhile(self._has, entries))
        first = Offset((new[0].index if new else entries[-1].index + 1) - self._base)
        if first < self._log.log_end_offset:
            self._log.truncate(first, now_ms=_NO_TIME)
            self._terms.truncate_end(first)
        assert self._log.log_end_offset == first, f"the log ends at {self._log.log_end_offset}, not at {first}"
        self._stage(new)
        try:
            self._log.flush(sync=True)
        except RetriableStorageError:
            self.unstage()
            raise

    def _stage(self, entries: tuple[Entry, ...]) -> int:
        size_bytes = 0
        for entry in entries:
            batch = _batch_of(entry, self._hard_state.commit)
            self._log.append(batch, ((0, read_header(batch)),), leader_epoch=_ONLY_EPOCH, now_ms=_NO_TIME)
            size_bytes += len(batch)
        self._note_terms(entries)
        return size_bytes

    def _note_terms(self, entries: tuple[Entry, ...]) -> None:
        for entry in entries:
            if Epoch(entry.term) != self._terms.latest:
                self._terms.begin(Epoch(entry.term), Offset(entry.index - self._base))

    def _has(self, entry: Entry) -> bool:
        offset = Offset(entry.index - self._base)
        return offset < self._log.log_end_offset and self._terms.at(offset) == Epoch(entry.term)

    def _guarded(self, change: Callable[[], object]) -> None:
        """Run a change; once one has failed for good, no other is tried (rule 10: a failed sync is never repeated)."""
        if self._failure is not None:
            raise self._failure.with_traceback(None)
        try:
            change()
        except OSError as error:
            failure = _error_for(error, self._directory)
            if not _is_retriable(failure):
                self._failure = failure
            raise failure from error
        except StorageError as error:
            if not _is_retriable(error):
                self._failure = error
            raise


# --- the snapshot ----------------------------------------------------------------------------------------------------


def _write_snapshot(disk: Disk, directory: str, snapshot: Snapshot) -> None:
    payload = msgspec.msgpack.encode(snapshot)
    replace_whole(disk, directory, SNAPSHOT, frame(_SNAPSHOT_TAG, _VERSION, payload), sync=True)


def read_snapshot(disk: Disk, directory: str) -> Snapshot:
    """The latest snapshot. Raises StorageError where it is missing or damaged, OSError."""
    data = read_whole(disk, _path(directory, SNAPSHOT))
    payload = None if data is None else unframe(_SNAPSHOT_TAG, _VERSION, data)
    if payload is None:
        reason = "missing" if data is None else "garbled, cut or of another version"
        raise _damaged(directory, f"{SNAPSHOT} is {reason}")
    try:
        return _SNAPSHOTS.decode(payload)
    except msgspec.DecodeError as error:
        raise _damaged(directory, f"{SNAPSHOT} is garbled: {error}") from error


# --- the log ---------------------------------------------------------------------------------------------------------


Entries = tuple[tuple[Entry, ...], Index]
"""The entries of a log, and the highest commit index stored with one."""


def _batch_of(entry: Entry, commit: Index) -> bytearray:
    value = bytes((entry.type,)) + entry.data
    return build_batch([Record(Offset(0), _NO_TIME, _KEY.pack(entry.term, commit), value, ())])


def entry_of(record: Record, base: Index) -> tuple[Entry, Index]:
    """The entry that a record of the log from `base` on holds, and the commit index that came with it."""
    assert record.value, "an entry has at least its type"
    assert record.key is not None, "an entry has its term and a commit index"
    term, commit = _KEY.unpack(record.key)
    index = Index(base + record.offset)
    return Entry(Term(term), index, EntryType(record.value[0]), bytes(record.value[1:])), Index(commit)


def log_path(disk: Disk, directory: str) -> tuple[str, Index]:
    """The path of a member's log, and the index of the entry at its offset 0. Raises StorageError if there is none,
    OSError."""
    bases = _log_bases(disk, directory)
    if not bases:
        raise _damaged(directory, "there is no log")
    return _log_path(directory, bases[-1]), bases[-1]


def _open_log(disk: Disk, directory: str, snapshot: Snapshot, report: Report) -> tuple[Index, PartitionLog, Entries]:
    """The log that continues the snapshot; a new one if there is none, or only one that the snapshot replaced."""
    fresh = Index(snapshot.index + 1)
    bases = _log_bases(disk, directory)
    if bases and bases[-1] > fresh:
        raise _damaged(directory, f"the snapshot ends at {snapshot.index}, the log begins at {bases[-1]}")
    if bases:
        log, found = _recover(disk, directory, bases[-1], report)
        if _goes_with(snapshot, found[0], bases[-1]):
            _remove_logs(disk, directory, keep=bases[-1])
            return bases[-1], log, found
        log.abandon()
    return fresh, _new_log(disk, directory, fresh, report), ((), Index(0))


def _goes_with(snapshot: Snapshot, entries: tuple[Entry, ...], base: Index) -> bool:
    """Whether the log continues the snapshot: it begins after it, or has its last entry."""
    if base == snapshot.index + 1:
        return True
    return any((entry.index, entry.term) == (snapshot.index, snapshot.term) for entry in entries)


def _new_log(disk: Disk, directory: str, base: Index, report: Report) -> PartitionLog:
    _remove_logs(disk, directory, keep=None)
    log = PartitionLog.open(disk, _log_path(directory, base), _LOG_CONFIG, now_ms=_NO_TIME, report=report)
    disk.sync_dir(directory)
    return log


def _remove_logs(disk: Disk, directory: str, *, keep: Index | None) -> None:
    """Renamed first: a log of which only a part was removed would look damaged."""
    _remove_renamed(disk, directory)
    names = [_log_name(base) for base in _log_bases(disk, directory) if base != keep]
    for name in names:
        disk.rename(_path(directory, name), _path(directory, name + _DELETED_SUFFIX))
    if names:
        disk.sync_dir(directory)
        _remove_renamed(disk, directory)


def _remove_renamed(disk: Disk, directory: str) -> None:
    for name in disk.list(directory):
        if name.startswith(_LOG_PREFIX) and name.endswith(_DELETED_SUFFIX):
            disk.remove_tree(_path(directory, name))


def _recover(disk: Disk, directory: str, base: Index, report: Report) -> tuple[PartitionLog, Entries]:
    damages: list[Damage] = []

    def take(found: Damage | Notice) -> None:
        if isinstance(found, Damage):
            damages.append(found)
        report(found)

    log = PartitionLog.open(disk, _log_path(directory, base), _LOG_CONFIG, now_ms=_NO_TIME, report=take)
    try:
        found = _entries_of(log, base)
    except RetriableStorageError:
        log.abandon()
        raise
    except StorageError as error:
        log.abandon()
        raise _damaged(directory, str(error)) from error
    if damages:
        log.abandon()
        raise _damaged(directory, str(damages[0]))
    return log, found


def _entries_of(log: PartitionLog, base: Index) -> Entries:
    entries: list[Entry] = []
    commit = Index(0)
    offset, end = log.log_start_offset, log.durable_end
    while offset < end:
        data = log.reader.read(offset, _READ_BYTES, ceiling=end)
        assert data is not None, "the disk is waited for here"
        for position, header in iter_batches(data):
            for record in iter_records(data, position, header, _SEGMENT_BYTES):
                entry, known = entry_of(record, base)
                commit = max(commit, known)
                entries.append(entry)
            offset = Offset(header.next_offset)
    return tuple(entries), commit


def _log_bases(disk: Disk, directory: str) -> list[Index]:
    names = [name.removeprefix(_LOG_PREFIX) for name in disk.list(directory) if name.startswith(_LOG_PREFIX)]
    return sorted(Index(int(name)) for name in names if name.isdigit())


# --- names and errors ------------------------------------------------------------------------------------------------


def _path(directory: str, name: str) -> str:
    return name if directory == "." else f"{directory}/{name}"


def _log_path(directory: str, base: Index) -> str:
    return _path(directory, _log_name(base))


def _log_name(base: Index) -> str:
    return f"{_LOG_PREFIX}{base:020d}"


def _parent(directory: str) -> str:
    return directory.rpartition("/")[0] or "."


def _ignore(found: Damage | Notice) -> None:
    """A new log has nothing to report."""


def _damaged(directory: str, reason: str) -> StorageError:
    return StorageError(
        f"The cluster's log in {directory} is damaged: {reason.rstrip('.')}. This broker must not vote again: remove "
        "it from its cluster, empty its data directory, and let it join again. A broker that is alone needs its "
        "metadata directory from a backup."
    )


def _error_for(error: OSError, directory: str) -> StorageError:
    return retriable_error_for(error, directory) or StorageError(f"The cluster's log in {directory} failed: {error}.")


def _is_retriable(error: StorageError) -> bool:
    return isinstance(error, RetriableStorageError)
