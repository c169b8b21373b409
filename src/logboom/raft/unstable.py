"""The end of the log that is not durable yet: entries and a snapshot that wait to be written or are being written.

The stable log may have other entries at the same indexes; the next write replaces them. Entries stay here until their
write is done *and* no write in progress can overwrite them (see `stable_to`).
"""

from logboom.raft.messages import Entry, EntryId, Index, Snapshot, Term


class Unstable:
    """`entries[i]` has index `offset + i`. Entries before `offset_in_progress` are being written."""

    __slots__ = ("entries", "offset", "offset_in_progress", "snapshot", "snapshot_in_progress")

    def __init__(self, offset: Index) -> None:
        self.snapshot: Snapshot | None = None
        self.snapshot_in_progress = False
        self.entries: tuple[Entry, ...] = ()
        self.offset = offset
        self.offset_in_progress = offset

    def first_index(self) -> Index | None:
        """The first index of the log if there is an unstable snapshot, otherwise None."""
        return None if self.snapshot is None else Index(self.snapshot.index + 1)

    def last_index(self) -> Index | None:
        """The last index of the log if there are unstable entries or an unstable snapshot, otherwise None."""
        if self.entries:
            return Index(self.offset + len(self.entries) - 1)
        return None if self.snapshot is None else self.snapshot.index

    def term(self, index: Index) -> Term | None:
        """Term of the unstable entry at `index`, or of a snapshot at that index; None if there is neither."""
        if index < self.offset:
            if self.snapshot is not None and self.snapshot.index == index:
                return self.snapshot.term
            return None
        position = index - self.offset
        return self.entries[position].term if position < len(self.entries) else None

    def next_entries(self) -> tuple[Entry, ...]:
        """Entries whose write has not begun."""
        return self.entries[self.offset_in_progress - self.offset :]

    def next_snapshot(self) -> Snapshot | None:
        """The snapshot if its write has not begun."""
        return None if self.snapshot_in_progress else self.snapshot

    def accept_in_progress(self) -> None:
        """Mark everything as being written."""
        if self.entries:
            self.offset_in_progress = Index(self.entries[-1].index + 1)
        if self.snapshot is not None:
            self.snapshot_in_progress = True

    def stable_to(self, last: EntryId) -> None:
        """Drop the entries up to `last`, which are durable and will not be overwritten by a write in progress.

        Ignored if `last` is not here: it was replaced by another entry or by a snapshot.
        """
        if last.index < self.offset or self.term(last.index) != last.term:
            return
        self.entries = self.entries[last.index + 1 - self.offset :]
        self.offset = Index(last.index + 1)
        self.offset_in_progress = max(self.offset_in_progress, self.offset)

    def stable_snapshot_to(self, index: Index) -> None:
        """Drop the snapshot of that index, which is durable and was restored by the state machine."""
        if self.snapshot is not None and self.snapshot.index == index:
            self.snapshot = None
            self.snapshot_in_progress = False

    def restore(self, snapshot: Snapshot) -> None:
        """Replace the whole log by this snapshot."""
        self.offset = self.offset_in_progress = Index(snapshot.index + 1)
        self.entries = ()
        self.snapshot = snapshot
        self.snapshot_in_progress = False

    def truncate_and_append(self, entries: tuple[Entry, ...]) -> None:
        """Append entries, replacing all from the first one's index on."""
        first = entries[0].index
        if first == self.offset + len(self.entries):
            self.entries += entries
        elif first <= self.offset:
            self.entries = entries
            self.offset = self.offset_in_progress = first
        else:
            self.entries = self.slice(self.offset, first) + entries
            self.offset_in_progress = min(self.offset_in_progress, first)

    def slice(self, low: Index, high: Index) -> tuple[Entry, ...]:
        """Entries from `low` to `high` - 1, which must all be unstable."""
        assert self.offset <= low <= high <= self.offset + len(self.entries), f"[{low}, {high}) is not all unstable"
        return self.entries[low - self.offset : high - self.offset]
