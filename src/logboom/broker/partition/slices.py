"""Reading a part of a log in slices that are short enough for a reader thread: what the scans of a partition share."""

from typing import Final, Protocol

from logboom.base.ids import Offset
from logboom.base.units import MIB

SLICE_BYTES: Final = MIB


class SliceReader(Protocol):
    """The part of a `storage.LogReader` that a scan uses. All of it may wait for the disk."""

    def read_with_next_offset(
        self, offset: Offset, max_bytes: int, *, ceiling: Offset
    ) -> tuple[bytes | memoryview, Offset] | None: ...

    def bytes_between(self, start: Offset, end: Offset) -> int: ...
