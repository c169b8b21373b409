"""Tracks how far the log was passed to the state machine and how far it was applied, and limits the bytes in
between."""

from logboom.raft.messages import Index


class Applying:
    """Always `applied <= applying`. At most `max_bytes` of entries are in between, or one entry that is larger."""

    __slots__ = ("_max_bytes", "_out_bytes", "applied", "applying", "is_paused")

    def __init__(self, applied: Index, max_bytes: int) -> None:
        self.applied = applied
        self.applying = applied
        self.is_paused = False
        """True while no more entries are passed to the state machine, until it acknowledges some."""

        self._max_bytes = max_bytes
        self._out_bytes = 0

    @property
    def budget_bytes(self) -> int:
        """Bytes of entries that may still be passed to the state machine."""
        return self._max_bytes - self._out_bytes

    @property
    def page_bytes(self) -> int:
        """Limit in bytes for one read of the log."""
        return self._max_bytes

    def accept(self, last: Index, size_bytes: int, appliable: Index) -> None:
        """Entries up to `last` were passed to the state machine. If `appliable` is higher, the limit has cut the batch
        short."""
        self.applying = last
        self._out_bytes += size_bytes
        self.is_paused = self._out_bytes >= self._max_bytes or last < appliable

    def applied_to(self, index: Index, size_bytes: int) -> None:
        """The state machine has applied everything up to `index`."""
        assert index >= self.applied, f"applied {index} after {self.applied}"
        self.applied = index
        self.applying = max(self.applying, index)
        self._out_bytes = max(0, self._out_bytes - size_bytes)
        self.is_paused = self._out_bytes >= self._max_bytes
