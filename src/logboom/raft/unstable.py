"""The end of the log that is not known to be durable: entries and a snapshot that are to be written or being written.

The stable log may hold other entries at the same indexes: what is here replaces them with the next write. Entries stay
here until their write is done *and* nothing under way could still overwrite it (see `stable_to`).
"""

from logboom.raft.messages import Entry, EntryId, Index, Snapshot, Term


class Unstable:
    """`entries[i]` has index `offset + i`; those before `offset_in_progress` are being written."""

    __slots__ = ("entries", "offset", "offset_in_progress", "snapshot", "snapshot_in_progress")

    def __init__(self, offset: Index) -> None:
        self.snapshot: Snapshot | None = None
        self.snapshot_in_progress = False
        self.entries: tuple[Entry, ...] = ()
        self.offset = offset
        self.offset_in_progress = offset

    def first_index(self) -> Index | None:
        """The first index of the log if a snapshot decides that."""
        return None if self.snapshot is None else Index(self.snapshot.index + 1)

    def last_index(self) -> Index | None:
        """The last index of the log if anything here decides that."""
        if self.entries:
            return Index(self.offset + len(self.entries) - 1)
        return None if self.snapshot is None else self.snapshot.index

    def term(self, index: Index) -> Term | None:
        """Term of the entry at `index`, or of the snapshot that ends there."""
        if index < self.offset:
            if self.snapshot is not None and self.snapshot.index == index:
                return self.snapshot.term
            return None
        position = index - self.offset
        return self.entries[position].term if position < len(self.entries) else None

    def next_entries(self) -> tuple[Entry, ...]:
        """Entries whose writing has not begun."""
        return self.entries[self.offset_in_progress - self.offset :]

    def next_snapshot(self) -> Snapshot | None:
        """The snapshot if its writing has not begun."""
        return None if self.snapshot_in_progress else self.snapshot

    def accept_in_progress(self) -> None:
        """The writing of everything here has begun."""
        if self.entries:
            self.offset_in_progress = Index(self.entries[-1].index + 1)
        if self.snapshot is not None:
            self.snapshot_in_progress = True

    def stable_to(self, last: EntryId) -> None:
        """The entries up to `last` are durable and nothing under way overwrites them; drop them.

        Ignored where `last` is not here: it was replaced meanwhile, or a snapshot took its place.
        """
        if last.index < self.offset or self.term(last.index) != last.term:
            return
        self.entries = self.entries[last.index + 1 - self.offset :]
        self.offset = Index(last.index + 1)
        self.offset_in_progress = max(self.offset_in_progress, self.offset)

    def stable_snapshot_to(self, index: Index) -> None:
        """The snapshot of that index is durable and the state machine has it; drop it."""
        if self.snapshot is not None and self.snapshot.index == index:
            self.snapshot = None
            self.snapshot_in_progress = False

    def restore(self, snapshot: Snapshot) -> None:
        """The whole log is this snapshot."""
        self.offset = self.offset_in_progress = Index(snapshot.index + 1)
        self.entries = ()
        self.snapshot = snapshot
        self.snapshot_in_progress = False

    def truncate_and_append(self, entries: tuple[Entry, ...]) -> None:
        """Add entries in place of all from the first one's index on."""
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
        """Entries from `low` to before `high`, all of which are here."""
        assert self.offset <= low <= high <= self.offset + len(self.entries), f"[{low}, {high}) is not all unstable"
        return self.entries[low - self.offset : high - self.offset]
