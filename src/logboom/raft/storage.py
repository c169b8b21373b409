"""The interface to a node's stable log, and its implementation in memory.

The log of a metadata group is short, because it is compacted after each snapshot. So the whole log is kept in memory,
as in etcd, and a running node only writes its files, never reads them. `MemoryStorage` is loaded from the files at the
start. Each later write to the files is followed by the same write to it.
"""

from collections.abc import Sequence
from typing import Protocol

from logboom.raft.errors import CompactedError, SnapshotOutOfDateError, UnavailableError
from logboom.raft.messages import ConfState, Entry, HardState, Index, Snapshot, Term, limit_size


class Storage(Protocol):
    """The stable log. It must not change during a step of the core."""

    def initial_state(self) -> tuple[HardState, ConfState]:
        """The stored hard state and configuration; empty values if nothing was stored."""

    def entries(self, low: Index, high: Index, max_bytes: int) -> tuple[Entry, ...]:
        """Entries from `low` to `high` - 1, at most `max_bytes` but at least one entry.

        Raises CompactedError, and UnavailableError if only the snapshot is left.
        """

    def term(self, index: Index) -> Term:
        """Term of an entry, or of the last compacted one. Raises CompactedError or UnavailableError."""

    def first_index(self) -> Index:
        """Index of the first entry after the compacted part."""

    def last_index(self) -> Index:
        """Index of the last entry, or the last compacted index if there are no entries."""

    def snapshot(self) -> Snapshot:
        """The latest snapshot, empty if there is none. Raises SnapshotTemporarilyUnavailableError."""


class MemoryStorage:
    """`Storage` in memory. Index 0 has term 0, as if it were a compacted entry."""

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
        assert high <= self.last_index() + 1, f"entry {high} is beyond the last one, {self.last_index()}"
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
        """Load the content of the files. Entries that a snapshot of a different log has replaced are dropped."""
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
        """Append entries, replacing all from the first one's index on. Compacted ones are skipped."""
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
        """Store a snapshot of this node's state machine at `index`. Raises SnapshotOutOfDateError."""
        if index <= self.latest_snapshot.index:
            raise SnapshotOutOfDateError
        self.latest_snapshot = Snapshot(index, self.term(index), conf_state, data)
        return self.latest_snapshot

    def compact(self, index: Index) -> None:
        """Drop the entries up to and including `index`, which must be applied. Raises CompactedError."""
        if index <= self._compacted:
            raise CompactedError
        assert index <= self.last_index(), f"entry {index} is beyond the last one, {self.last_index()}"
        self._compacted_term = self.term(index)
        del self._entries[: index - self._compacted]
        self._compacted = index
