"""A node's log: joins the stable part in `Storage` and the unstable end, and tracks what is committed and applied.

compacted | stable ............. | unstable ............ |
          first_index            unstable.offset     last_index
               applied <= applying <= committed <= last_index
"""

from collections.abc import Iterator, Sequence

from logboom.raft.applying import Applying
from logboom.raft.errors import CompactedError, LogLostError, UnavailableError
from logboom.raft.messages import NO_LIMIT, Entry, EntryId, Index, Snapshot, Term, entries_size, limit_size
from logboom.raft.storage import Storage
from logboom.raft.unstable import Unstable


class RaftLog:
    """The log of one node. `max_applying_bytes` limits the entries that the state machine has and has not
    acknowledged."""

    def __init__(self, storage: Storage, max_applying_bytes: int) -> None:
        self._storage = storage
        compacted = Index(storage.first_index() - 1)
        self.unstable = Unstable(Index(storage.last_index() + 1))
        self.committed = compacted
        self.applying = Applying(compacted, max_applying_bytes)

    # --- where it begins and ends ----------------------------------------------------------------------------

    def first_index(self) -> Index:
        """Index of the first entry that is kept."""
        first = self.unstable.first_index()
        return self._storage.first_index() if first is None else first

    def last_index(self) -> Index:
        """Index of the last entry."""
        last = self.unstable.last_index()
        return self._storage.last_index() if last is None else last

    def last_id(self) -> EntryId:
        """Term and index of the last entry."""
        last = self.last_index()
        return EntryId(self.term(last), last)

    def term(self, index: Index) -> Term:
        """Term of an entry, also of the last compacted one. Raises CompactedError or UnavailableError."""
        term = self.unstable.term(index)
        if term is not None:
            return term
        if index + 1 < self.first_index():
            raise CompactedError
        if index > self.last_index():
            raise UnavailableError
        return self._storage.term(index)

    def known_term(self, index: Index) -> Term | None:
        """Same as `term`, but None if this log does not have the entry."""
        try:
            return self.term(index)
        except (CompactedError, UnavailableError):
            return None

    def matches(self, entry: EntryId) -> bool:
        """Whether this log has that entry. Then all earlier entries are the same, too (log matching, section 3.5)."""
        return self.known_term(entry.index) == entry.term

    def is_up_to_date(self, theirs: EntryId) -> bool:
        """Whether a log with that last entry is at least as up-to-date as this one (section 3.6.1)."""
        ours = self.last_id()
        return (theirs.term, theirs.index) >= (ours.term, ours.index)

    # --- entries -----------------------------------------------------------------------------------------------

    def entries(self, low: Index, max_bytes: int) -> tuple[Entry, ...]:
        """Entries from `low` on, at most `max_bytes` but at least one entry. Raises CompactedError."""
        if low > self.last_index():
            return ()
        return self.slice(low, Index(self.last_index() + 1), max_bytes)

    def slice(self, low: Index, high: Index, max_bytes: int = NO_LIMIT) -> tuple[Entry, ...]:
        """Entries from `low` to `high` - 1, limited as in `entries`. Raises CompactedError."""
        assert low <= high <= self.last_index() + 1, f"[{low}, {high}) reaches beyond {self.last_index()}"
        if low < self.first_index():
            raise CompactedError
        if low == high:
            return ()
        offset = self.unstable.offset
        if low >= offset:
            return limit_size(self.unstable.slice(low, high), max_bytes)
        stable = self._storage.entries(low, min(high, offset), max_bytes)
        if high <= offset or len(stable) < offset - low:
            return stable
        size = entries_size(stable)
        if size >= max_bytes:
            return stable
        unstable = limit_size(self.unstable.slice(offset, high), max_bytes - size)
        if len(unstable) == 1 and size + entries_size(unstable) > max_bytes:
            return stable  # `limit_size` returns at least one entry; here it is not needed and does not fit
        return stable + unstable

    def pages(self, low: Index, high: Index, max_bytes: int) -> Iterator[tuple[Entry, ...]]:
        """All entries from `low` to `high` - 1, in pages of about `max_bytes`."""
        while low < high:
            page = self.slice(low, high, max_bytes)
            yield page
            low = Index(low + len(page))

    def append(self, entries: tuple[Entry, ...]) -> Index:
        """Append entries, replacing all from the first one's index on. Returns the last index."""
        if entries:
            assert entries[0].index > self.committed, f"entry {entries[0].index} is committed up to {self.committed}"
            self.unstable.truncate_and_append(entries)
        return self.last_index()

    def maybe_append(self, before: EntryId, entries: tuple[Entry, ...], committed: Index) -> Index | None:
        """Append a leader's entries, which follow `before`. Returns the last one's index, or None if this log lacks
        `before`.

        Removes only entries that conflict: a delayed message must not remove entries that later messages have added.
        """
        if not self.matches(before):
            return None
        last_new = Index(before.index + len(entries))
        conflict = self._find_conflict(entries)
        if conflict is not None:
            assert conflict > self.committed, f"entry {conflict} conflicts with a committed one"
            self.append(entries[conflict - before.index - 1 :])
        self.commit_to(min(committed, last_new))
        return last_new

    def _find_conflict(self, entries: Sequence[Entry]) -> Index | None:
        """Index of the first of `entries` that this log lacks or has with another term."""
        return next((entry.index for entry in entries if not self.matches(entry.id)), None)

    def find_conflict_by_term(self, index: Index, term: Term) -> tuple[Index, Term]:
        """The last position up to `index` at which this log may agree with another log that has `term` at `index`.

        That is the last entry whose term is at most `term`, or whose term is not known here (term 0 is returned then).
        Terms never decrease within a log, so the logs cannot agree after it. With this, a leader needs one message per
        term, not one per entry, to find where the logs diverge.
        """
        while index > 0:
            ours = self.known_term(index)
            if ours is None:
                return index, Term(0)
            if ours <= term:
                return index, ours
            index = Index(index - 1)
        return Index(0), Term(0)

    # --- committing and applying -------------------------------------------------------------------------------

    def commit_to(self, index: Index) -> None:
        """Raise the commit index to `index`; it never goes back. Raises LogLostError."""
        if index <= self.committed:
            return
        if index > self.last_index():
            raise LogLostError(
                f"entry {index} is committed and this node has acknowledged it, but its log ends at "
                f"{self.last_index()}: the log was lost or damaged. Remove this voter and add it again as a new one."
            )
        self.committed = index

    def maybe_commit(self, at: EntryId) -> bool:
        """Commit up to entry `at`, which a majority has. The caller passes its own term: only such entries are
        committed by counting (section 3.6.2). Returns whether the commit index has changed."""
        if at.index <= self.committed or not self.matches(at):
            return False
        self.commit_to(at.index)
        return True

    def appliable_index(self, *, allow_unstable: bool) -> Index:
        """The last entry that may be applied: committed and, unless `allow_unstable`, durable here."""
        return self.committed if allow_unstable else min(self.committed, Index(self.unstable.offset - 1))

    def has_next_committed(self, *, allow_unstable: bool) -> bool:
        """Whether `next_committed` has entries. False while a snapshot must be applied first or too much is being
        applied."""
        if self.applying.is_paused or self.unstable.snapshot is not None:
            return False
        return self.applying.applying < self.appliable_index(allow_unstable=allow_unstable)

    def next_committed(self, *, allow_unstable: bool) -> tuple[Entry, ...]:
        """The entries to apply next."""
        if not self.has_next_committed(allow_unstable=allow_unstable):
            return ()
        high = Index(self.appliable_index(allow_unstable=allow_unstable) + 1)
        return self.slice(Index(self.applying.applying + 1), high, self.applying.budget_bytes)

    def accept_applying(self, last: Index, size_bytes: int, *, allow_unstable: bool) -> None:
        """Entries up to `last` were passed to the state machine."""
        assert last <= self.committed, f"applying {last}, committed up to {self.committed}"
        self.applying.accept(last, size_bytes, self.appliable_index(allow_unstable=allow_unstable))

    def applied_to(self, index: Index, size_bytes: int) -> None:
        """The state machine has applied everything up to `index`."""
        assert index <= self.committed, f"applied {index}, committed up to {self.committed}"
        self.applying.applied_to(index, size_bytes)

    # --- snapshots -------------------------------------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        """The latest snapshot. Raises SnapshotTemporarilyUnavailableError."""
        return self._storage.snapshot() if self.unstable.snapshot is None else self.unstable.snapshot

    def restore(self, snapshot: Snapshot) -> None:
        """Replace the whole log by a snapshot."""
        self.committed = snapshot.index
        self.unstable.restore(snapshot)
