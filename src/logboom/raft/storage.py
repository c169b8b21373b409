"""What a node reads of its own stable log, and the copy of it in memory from which it reads.

The log of a metadata group is short, because snapshots shorten it; so all of it is kept in memory, as etcd does, and
the files after it are only written while the node runs. `MemoryStorage` is filled from the files before the start;
then each write to the files is followed by the same write here.
"""

from collections.abc import Sequence
from typing import Protocol

from logboom.raft.errors import CompactedError, SnapshotOutOfDateError, UnavailableError
from logboom.raft.messages import ConfState, Entry, HardState, Index, Snapshot, Term, limit_size


class Storage(Protocol):
    """The stable log. Nothing of it changes while the core runs a step."""

    def initial_state(self) -> tuple[HardState, ConfState]:
        """What was stored before the start; empty if nothing was."""

    def entries(self, low: Index, high: Index, max_bytes: int) -> tuple[Entry, ...]:
        """Entries from `low` to before `high`, cut after `max_bytes` but never to nothing.

        Raises CompactedError, and UnavailableError if only the snapshot is left.
        """

    def term(self, index: Index) -> Term:
        """Term of an entry, also of the one before the first. Raises CompactedError or UnavailableError."""

    def first_index(self) -> Index:
        """Index of the first entry that is kept, which is the one after the compacted part."""

    def last_index(self) -> Index:
        """Index of the last entry, or of the compacted part where none is kept."""

    def snapshot(self) -> Snapshot:
        """The latest snapshot, empty if there is none. Raises SnapshotTemporarilyUnavailableError."""


class MemoryStorage:
    """`Storage` in memory. An entry of term 0 and index 0, or the last compacted one, stands before the first."""

    def __init__(self) -> None:
        self.hard_state = HardState()
        self.latest_snapshot = Snapshot()
        self._entries: list[Entry] = []
        self._compacted = Index(0)
        self._compacted_term = Term(0)

    def initial_state(self) -> tuple[HardState, ConfState]:
        """`Storage`."""
        return self.hard_state, self.latest_snapshot.conf_state

    def entries(self, low: Index, high: Index, max_bytes: int) -> tuple[Entry, ...]:
        """`Storage`."""
        if low <= self._compacted:
            raise CompactedError
        assert high <= self.last_index() + 1, f"entry {high} is behind the last one, {self.last_index()}"
        if not self._entries:
            raise UnavailableError
        first = self._compacted + 1
        return limit_size((self._entries[index - first] for index in range(low, high)), max_bytes)

    def term(self, index: Index) -> Term:
        """`Storage`."""
        if index < self._compacted:
            raise CompactedError
        if index > self.last_index():
            raise UnavailableError
        if index == self._compacted:
            return self._compacted_term
        return self._entries[index - self._compacted - 1].term

    def first_index(self) -> Index:
        """`Storage`."""
        return Index(self._compacted + 1)

    def last_index(self) -> Index:
        """`Storage`."""
        return Index(self._compacted + len(self._entries))

    def snapshot(self) -> Snapshot:
        """`Storage`."""
        return self.latest_snapshot

    def load(self, snapshot: Snapshot, entries: tuple[Entry, ...]) -> None:
        """Fill it with what the files hold. Entries that a snapshot of another log has replaced are left out."""
        self.latest_snapshot = snapshot
        self._compacted, self._compacted_term = snapshot.index, snapshot.term
        self._entries = []
        if not entries or entries[-1].index < snapshot.index:
            return
        first = entries[0]
        assert first.index <= snapshot.index + 1, f"entries from {snapshot.index + 1} to {first.index - 1} are missing"
        if first.index == snapshot.index + 1:
            self._entries = list(entries)
        elif entries[snapshot.index - first.index].term == snapshot.term:
            self._compacted, self._compacted_term = first.index, first.term
            self._entries = list(entries[1:])

    def append(self, entries: Sequence[Entry]) -> None:
        """Add entries; those that stood at their indexes and after are gone. Compacted ones are skipped."""
        new = [entry for entry in entries if entry.index > self._compacted]
        if not new:
            return
        kept = new[0].index - self._compacted - 1
        assert kept <= len(self._entries), f"entries from {self.last_index() + 1} to {new[0].index - 1} are missing"
        self._entries[kept:] = new

    def apply_snapshot(self, snapshot: Snapshot) -> None:
        """Replace everything by a snapshot of another node. Raises SnapshotOutOfDateError."""
        if self.latest_snapshot.index != 0 and self.latest_snapshot.index >= snapshot.index:
            raise SnapshotOutOfDateError
        self.latest_snapshot = snapshot
        self._compacted, self._compacted_term = snapshot.index, snapshot.term
        self._entries = []

    def create_snapshot(self, index: Index, conf_state: ConfState, data: bytes) -> Snapshot:
        """Keep a snapshot of the own state machine after the entry at `index`. Raises SnapshotOutOfDateError."""
        if index <= self.latest_snapshot.index:
            raise SnapshotOutOfDateError
        self.latest_snapshot = Snapshot(index, self.term(index), conf_state, data)
        return self.latest_snapshot

    def compact(self, index: Index) -> None:
        """Drop the entries up to and with `index`, which must be applied. Raises CompactedError."""
        if index <= self._compacted:
            raise CompactedError
        assert index <= self.last_index(), f"entry {index} is behind the last one, {self.last_index()}"
        self._compacted_term = self.term(index)
        del self._entries[: index - self._compacted]
        self._compacted = index
