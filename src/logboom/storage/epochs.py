"""Leader epochs of a partition and the offset at which each began (KIP-101).

One convention: start offsets. The end of an epoch is the start of the next one, or the log end offset.
"""

import itertools
from struct import Struct
from typing import Final

from logboom.base.ids import NO_EPOCH, Epoch, Offset
from logboom.base.ports import Disk
from logboom.storage.faults import retriable_error_for
from logboom.storage.owner import sync_owner
from logboom.storage.small_files import ReportNotice, frame, read_auxiliary, replace_whole, unframe

NAME: Final = "leader-epochs"
_TAG: Final = b"LBLE"
_VERSION: Final = 1
_ENTRY: Final = Struct(">iq")

NO_OFFSET: Final = Offset(-1)


class EpochHistory:
    """Epochs rising, start offsets rising with them.

    The entries are one tuple that is replaced whole, so that any thread may look at it.
    """

    __slots__ = ("entries",)

    def __init__(self, entries: tuple[tuple[Epoch, Offset], ...] = ()) -> None:
        self.entries = entries

    @property
    def latest(self) -> Epoch:
        return self.entries[-1][0] if self.entries else NO_EPOCH

    def begin(self, epoch: Epoch, offset: Offset) -> bool:
        """Record that `epoch` begins at `offset`; returns whether anything changed.

        Epochs that began there or later never had a record and are removed (Kafka's LeaderEpochFileCache).
        """
        if epoch <= self.latest:
            assert epoch == self.latest, f"epoch {epoch} begins after epoch {self.latest}"
            return False
        self.entries = (*(entry for entry in self.entries if entry[1] < offset), (epoch, offset))
        return True

    def at(self, offset: Offset) -> Epoch:
        """The epoch that a record at `offset` was written in, NO_EPOCH below the first."""
        for epoch, start in reversed(self.entries):
            if start <= offset:
                return epoch
        return NO_EPOCH

    def before(self, offset: Offset) -> Epoch:
        """The latest epoch that began below `offset`, NO_EPOCH where none did."""
        return next((epoch for epoch, start in reversed(self.entries) if start < offset), NO_EPOCH)

    def end_of(self, epoch: Epoch, log_end: Offset) -> tuple[Epoch, Offset]:
        """The largest epoch up to `epoch` and where it ends; (-1, -1) where `epoch` is newer than all (KIP-279)."""
        if epoch == NO_EPOCH or epoch > self.latest:
            return NO_EPOCH, NO_OFFSET
        if epoch == self.latest:
            return epoch, log_end
        floor = epoch
        for known, start in self.entries:
            if known > epoch:
                return floor, start
            floor = known
        raise AssertionError("an epoch below the latest has a successor")

    def truncate_end(self, offset: Offset) -> bool:
        """Forget epochs that began at or above `offset`, the new end of the log; returns whether there were any."""
        kept = tuple(entry for entry in self.entries if entry[1] < offset)
        changed = len(kept) != len(self.entries)
        self.entries = kept
        return changed

    def truncate_start(self, offset: Offset) -> bool:
        """Forget epochs that ended at or below `offset`, the new start of the log; returns whether there were any."""
        below = [entry for entry in self.entries if entry[1] < offset]
        if not below:
            return False
        above = self.entries[len(below) :]
        if above and above[0][1] == offset:
            self.entries = above
        else:
            self.entries = ((below[-1][0], offset), *above)
        return True

    def to_bytes(self) -> bytes:
        return frame(_TAG, _VERSION, b"".join([_ENTRY.pack(*entry) for entry in self.entries]))

    @classmethod
    def from_bytes(cls, data: bytes) -> "EpochHistory | None":
        """The history in a file's bytes; None if they do not encode one."""
        payload = unframe(_TAG, _VERSION, data)
        if payload is None or len(payload) % _ENTRY.size:
            return None
        entries = tuple((Epoch(epoch), Offset(start)) for epoch, start in _ENTRY.iter_unpack(payload))
        rising = all(a[0] < b[0] and a[1] < b[1] for a, b in itertools.pairwise(entries))
        return cls(entries) if rising else None


class EpochFile(EpochHistory):
    """The history of one log and the file that keeps it: written before the first batch of an epoch is.

    With the first epoch all that a new log is made of becomes durable, the names in its directory and the owner's mark:
    a log that never has a batch costs no sync.
    """

    __slots__ = ("_directory", "_disk", "saved")

    def __init__(self, disk: Disk, directory: str) -> None:
        super().__init__()
        self._disk = disk
        self._directory = directory
        self.saved = EpochHistory()
        """What the file holds."""

    def save(self) -> None:
        """Replace the file, durably, where it holds anything else. Raises OSError."""
        entries = self.entries
        if entries != self.saved.entries:
            history = EpochHistory(entries)
            if not self.saved.entries:
                sync_owner(self._disk, self._directory)
            replace_whole(self._disk, self._directory, NAME, history.to_bytes(), sync=True)
            self.saved = history

    @property
    def are_saved(self) -> bool:
        """Whether the file holds all of it, so that batches may be written."""
        return self.entries == self.saved.entries

    def try_save(self) -> bool:
        """As `save`; False where there is no room for it now. Every flush tries again before it writes."""
        try:
            self.save()
        except OSError as error:
            if retriable_error_for(error, self._directory) is None:
                raise
            return False
        return True


def load(disk: Disk, directory: str, report: ReportNotice | None = None) -> EpochHistory | None:
    """The history in the epoch file, None where it is missing or garbled."""
    return read_auxiliary(disk, f"{directory}/{NAME}", EpochHistory.from_bytes, report)
