"""The index up to which the state machine was given the log, the index up to which it has applied it, and the bound on
what is in between."""

from logboom.raft.messages import Index


class Applying:
    """Always `applied <= applying`. At most `max_bytes` of entries are in between, or one entry that is larger."""

    __slots__ = ("_max_bytes", "_out_bytes", "applied", "applying", "is_paused")

    def __init__(self, applied: Index, max_bytes: int) -> None:
        self.applied = applied
        self.applying = applied
        self.is_paused = False
        """Whether nothing more is handed out until something is acknowledged."""

        self._max_bytes = max_bytes
        self._out_bytes = 0

    @property
    def budget_bytes(self) -> int:
        """How many more bytes may be given out."""
        return self._max_bytes - self._out_bytes

    @property
    def page_bytes(self) -> int:
        """How much of the log may be read at a time."""
        return self._max_bytes

    def accept(self, last: Index, size_bytes: int, appliable: Index) -> None:
        """Entries up to `last` were handed out. Where `appliable` is further, the bound has cut them off."""
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
