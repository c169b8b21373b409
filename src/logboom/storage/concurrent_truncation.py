"""Reads of a log that another thread truncates meanwhile: what they find may look like damage without being any.

Such a read may ask for records that are gone when it begins, or find the end of the file, or the bytes of another
batch, where its batch was.
"""

from logboom.base.errors import RetriableStorageError, StorageError
from logboom.storage.segment import BadBatchError
from logboom.storage.state import LogState


class LogStateAtRead:
    """The state of a log when a read began, against which what the read met is judged. Any thread."""

    __slots__ = ("_layout_changes", "_state", "cuts", "is_cutting")

    def __init__(self, state: LogState) -> None:
        self._state = state
        self.is_cutting = state.is_cutting
        self.cuts = state.truncation_count
        self._layout_changes = state.layout_changes

    def has_moved(self) -> bool:
        """Whether others are the log's segments by now."""
        return self._layout_changes != self._state.layout_changes

    def being_cut(self) -> RetriableStorageError | None:
        """The error of a read that failed, while the log is being cut back."""
        state = self._state
        return RetriableStorageError(f"The log {state.directory} is being cut back.") if state.is_cutting else None

    def judge(self, bad: BadBatchError) -> StorageError | None:
        """The error of a read that met a bad batch. Damage is reported. None where the log was cut back since, so that
        the read is to be done again; RetriableStorageError while it is being cut back."""
        state = self._state
        if (cutting := self.being_cut()) is not None:
            return cutting
        if self.is_cutting or self.cuts != state.truncation_count:
            return None
        for segment in state.segments:
            if segment.path == bad.path:
                return segment.walker.damage_error(bad.position, bad.offset, bad.reason)
        return bad
