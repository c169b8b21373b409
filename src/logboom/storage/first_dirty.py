"""The first dirty offset of a log: below it key compaction has been, and each key has one record at most.

It is kept in a small file beside the segments (Kafka keeps one for all logs of a directory: cleaner-offset-checkpoint).
A lost or older one only makes the next cleaning read more. One that is too high would be wrong: records that were never
cleaned would count as clean, and a deleted key could come back when its tombstone goes. So a truncation lowers it,
durably, before it removes anything.
"""

from struct import Struct
from typing import Final

from logboom.base.ids import Offset
from logboom.base.ports import Disk
from logboom.storage.small_files import ReportNotice, frame, read_auxiliary, replace_whole, unframe

NAME: Final = "first-dirty-offset"
_TAG: Final = b"LBFD"
_VERSION: Final = 1
_BODY: Final = Struct(">q")


def load(disk: Disk, directory: str, report: ReportNotice | None = None) -> Offset | None:
    """The offset in the file; None where it is missing or garbled."""
    return read_auxiliary(disk, f"{directory}/{NAME}", _from_bytes, report)


def save(disk: Disk, directory: str, offset: Offset, *, sync: bool) -> None:
    """Replace the file. Raises OSError."""
    replace_whole(disk, directory, NAME, frame(_TAG, _VERSION, _BODY.pack(offset)), sync=sync)


def _from_bytes(data: bytes) -> Offset | None:
    payload = unframe(_TAG, _VERSION, data)
    if payload is None or len(payload) != _BODY.size:
        return None
    (offset,) = _BODY.unpack(payload)
    return Offset(offset) if offset >= 0 else None
