"""The files of a member of the group as they are, for `logboom log`: nothing is written, repaired or locked.

The broker may be running meanwhile, or may have been killed.
"""

from collections.abc import Iterator
from typing import Final

from logboom.base.errors import StorageError
from logboom.base.ports import Disk
from logboom.broker.raft.files import entry_of, log_path, read_snapshot
from logboom.broker.raft.hard_state import HardStateFile
from logboom.raft import Entry, Snapshot
from logboom.records import iter_records
from logboom.storage import BatchView, Damage, LogView

_ENTRY_BYTES_MAX: Final = 1 << 26
_ATTEMPTS: Final = 10


class MemberView:
    """A member in a directory. Raises StorageError where its files are damaged, OSError."""

    def __init__(self, disk: Disk, directory: str) -> None:
        state = HardStateFile.read(disk, directory)
        if state is None:
            raise StorageError(f"no copy of the hard state in {directory} can be read")
        self.snapshot: Snapshot = read_snapshot(disk, directory)
        self.path, self._base = log_path(disk, directory)
        """Where the log lies."""
        for _ in range(_ATTEMPTS):  # a running broker may have taken a snapshot meanwhile, and shortened the log
            if self._base + LogView(disk, self.path).start <= self.snapshot.index + 1:
                break
            self.snapshot = read_snapshot(disk, directory)
            self.path, self._base = log_path(disk, directory)
        self._disk = disk
        self._commit = max(state.commit, self.snapshot.index)

    def entries(self) -> Iterator[tuple[Entry, BatchView] | Damage]:
        """The entries in the log, each with its batch; those in front of the snapshot too."""
        view = LogView(self._disk, self.path)
        for found in view.batches():
            if isinstance(found, Damage):
                yield found
                continue
            for record in iter_records(found.data, 0, found.header, _ENTRY_BYTES_MAX):
                entry, commit = entry_of(record, self._base)
                self._commit = max(self._commit, commit)
                yield entry, found

    def committed(self) -> list[Entry]:
        """The entries behind the snapshot that are known to be committed. Raises StorageError where one is damaged.

        What a voter that is alone has made durable is committed.
        """
        entries = []
        for found in self.entries():
            if isinstance(found, Damage):
                raise StorageError(str(found))
            entries.append(found[0])
        alone = len(self.snapshot.conf_state.voters) == 1 and not self.snapshot.conf_state.voters_outgoing
        return [
            entry for entry in entries if entry.index > self.snapshot.index and (alone or entry.index <= self._commit)
        ]
