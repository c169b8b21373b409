"""The durable-end checkpoint: the offset below which every byte of the log was fsynced, and where that is.

It is overwritten without a sync after every successful fdatasync of the log: exact after kill -9, older (never newer)
after a power failure. Less than a sector, so it is never half old; the CRC tells if it is anything else.
"""

from dataclasses import dataclass
from struct import Struct
from typing import Final

from logboom.base.ids import Offset
from logboom.base.ports import Disk, File
from logboom.storage.small_files import frame, read_whole, unframe

NAME: Final = "durable-end"
_TAG: Final = b"LBDE"
_VERSION: Final = 1
_BODY: Final = Struct(">qqqq")


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Durable end, the segment it lies in, the byte there, and the log start offset of that moment."""

    durable_end: Offset
    segment: Offset
    position: int
    log_start: Offset


def load(disk: Disk, directory: str) -> Checkpoint | None:
    """The checkpoint, None where it is missing or garbled."""
    data = read_whole(disk, f"{directory}/{NAME}")
    payload = None if data is None else unframe(_TAG, _VERSION, data)
    if payload is None or len(payload) != _BODY.size:
        return None
    end, segment, position, log_start = _BODY.unpack(payload)
    if not 0 <= segment <= end or position < 0 or not 0 <= log_start <= end:
        return None
    return Checkpoint(Offset(end), Offset(segment), position, Offset(log_start))


class CheckpointFile:
    """The file of a checkpoint, opened by the first write. One writer at a time."""

    __slots__ = ("_disk", "_file", "_path")

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._path = f"{directory}/{NAME}"
        self._file: File | None = None

    def write(self, checkpoint: Checkpoint, *, sync: bool) -> None:
        file = self._file
        if file is None:
            file = self._file = self._disk.open(self._path, create=True)
        body = _BODY.pack(checkpoint.durable_end, checkpoint.segment, checkpoint.position, checkpoint.log_start)
        file.write(0, [frame(_TAG, _VERSION, body)])
        if sync:
            file.sync()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
