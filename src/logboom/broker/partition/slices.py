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


def read_slice_at(reader: SliceReader, at: Offset, ceiling: Offset) -> tuple[bytes | memoryview, Offset]:
    """The batches from the one that holds `at` on, and the offset to read on from. `at` is below `ceiling`, up to which
    the log is written. Raises LogboomError where it cannot be read."""
    found = reader.read_with_next_offset(at, SLICE_BYTES, ceiling=ceiling)
    assert found is not None, "only a read of what is in memory alone gives nothing"
    assert found[1] > at, "a batch holds each offset below the ceiling"
    return found
