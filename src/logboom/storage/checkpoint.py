"""The durable-end checkpoint: the offset below which every byte of the log was fsynced, and where that is.

It is overwritten without a sync after every successful fdatasync of the log: exact after kill -9, older (never newer)
after a power failure. It is smaller than a sector, so a write of it is never torn; the CRC detects anything else.

A change that must be durable before it is visible (a new log start, a truncation) is written as *unsettled* first
and synced. A process that dies in between leaves it in the page cache, where the next one reads it though it may not be
on the disk; a sync that failed leaves the same. Recovery therefore syncs an unsettled checkpoint, and its directory,
before it acts on it.
"""

from dataclasses import dataclass
from struct import Struct
from typing import Final

from logboom.base.ids import NO_EPOCH, Epoch, Offset
from logboom.base.ports import Disk, File
from logboom.storage.open_files import OpenFiles
from logboom.storage.small_files import ReportNotice, frame, read_auxiliary, unframe

NAME: Final = "durable-end"
_TAG: Final = b"LBDE"
_VERSION: Final = 2
_VERSION_UNSETTLED: Final = 3
"""The body of version 2. A program that knows only that one finds no checkpoint, and recovers without."""
_VERSION_UNKNOWN_START: Final = 4
_VERSION_UNSETTLED_UNKNOWN_START: Final = 5
"""The same again. Without a checkpoint an earlier program does not know the start either."""
_FLAGS: Final = {
    _VERSION: (False, True),
    _VERSION_UNSETTLED: (True, True),
    _VERSION_UNKNOWN_START: (False, False),
    _VERSION_UNSETTLED_UNKNOWN_START: (True, False),
}
"""`unsettled` and `start_is_known` by version."""
_VERSIONS: Final = {flags: version for version, flags in _FLAGS.items()}
_BODY: Final = Struct(">qqqqi")
_VERSION_WITHOUT_EPOCH: Final = 1
_BODY_WITHOUT_EPOCH: Final = Struct(">qqqq")


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Durable end, the segment it lies in, the byte there, and the log start offset and epoch of that moment."""

    durable_end: Offset
    segment: Offset
    position: int
    log_start: Offset
    latest_epoch: Epoch
    """The latest that began up to the durable end. It is in the epoch file, or that is an older one put back."""
    unsettled: bool = False
    """Whether it, or the file names that go with it, may not be durable."""
    start_is_known: bool = True
    """Whether what is below the log start is known to have been deleted; else it may be lost."""


def load(disk: Disk, directory: str, report: ReportNotice | None = None) -> Checkpoint | None:
    """The checkpoint, None where it is missing or garbled."""
    return read_auxiliary(disk, f"{directory}/{NAME}", _from_bytes, report)


def _from_bytes(data: bytes) -> Checkpoint | None:
    payload, unsettled, start_is_known = None, False, True
    for version, flags in _FLAGS.items():
        if (payload := unframe(_TAG, version, data)) is not None:
            unsettled, start_is_known = flags
            break
    if payload is None:
        payload = unframe(_TAG, _VERSION_WITHOUT_EPOCH, data)
        if payload is not None and len(payload) == _BODY_WITHOUT_EPOCH.size:
            payload += NO_EPOCH.to_bytes(4, "big", signed=True)
    if payload is None or len(payload) != _BODY.size:
        return None
    end, segment, position, log_start, epoch = _BODY.unpack(payload)
    if not 0 <= segment <= end or position < 0 or not 0 <= log_start <= end:
        return None
    start = Offset(log_start)
    return Checkpoint(Offset(end), Offset(segment), position, start, Epoch(epoch), unsettled, start_is_known)


def _to_bytes(checkpoint: Checkpoint) -> bytes:
    body = _BODY.pack(
        checkpoint.durable_end,
        checkpoint.segment,
        checkpoint.position,
        checkpoint.log_start,
        checkpoint.latest_epoch,
    )
    return frame(_TAG, _VERSIONS[checkpoint.unsettled, checkpoint.start_is_known], body)


class CheckpointFile:
    """The file of a checkpoint, opened by the first write. One writer at a time."""

    __slots__ = ("_disk", "_file", "_open_files", "_path", "_refused", "unsynced", "used")

    def __init__(self, disk: Disk, directory: str, open_files: OpenFiles) -> None:
        self.used = self.unsynced = False  # base: open_files.Holder; a lost note costs a longer recovery
        self._open_files = open_files
        self._disk = disk
        self._path = f"{directory}/{NAME}"
        self._file: File | None = None
        self._refused = False

    @property
    def takes_nowait(self) -> bool:
        """Whether `write_nowait` is to be tried: the file is open, and it was not refused since the last `write`."""
        return self._file is not None and not self._refused

    def write(self, checkpoint: Checkpoint, *, sync: bool) -> None:
        file = self._file
        if file is None:
            file = self._file = self._disk.open(self._path, create=True)
            self._open_files.opened(self)
        self.used = True
        file.write(0, [_to_bytes(checkpoint)])
        self._refused = False
        if sync:
            file.sync()

    def write_nowait(self, checkpoint: Checkpoint) -> None:
        """As `write` without a sync, where that needs no wait for the disk; else nothing. Raises OSError."""
        file = self._file
        if file is None:
            return
        self.used = True
        try:
            self._refused = not file.write_nowait(0, [_to_bytes(checkpoint)])
        except OSError:
            self._refused = True
            raise

    def drop_handle(self) -> None:
        """Base: open_files.Holder."""
        self._file = None

    def close(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            self._open_files.closed(self)
            file.close()
