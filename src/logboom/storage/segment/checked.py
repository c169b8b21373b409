"""A segment's file read from one batch to the next with everything checked, also past damage.

`logboom log verify` and the scrub of a running broker both go by this, so that what one of them finds the other finds.
Knows one open file and where its batches must end; not which log it belongs to.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

from logboom.base.ids import Offset
from logboom.base.ports import File
from logboom.base.units import MIB
from logboom.records import HEADER_BYTES, BatchHeader, read_header
from logboom.storage.config import Damage
from logboom.storage.segment.scan import EpochAt, batch_fault, salvage
from logboom.storage.segment.walker import SALVAGE_BYTES


@dataclass(frozen=True, slots=True)
class CheckedBatch:
    """One valid batch and its position in the file."""

    position: int
    header: BatchHeader
    data: bytes


Checked: TypeAlias = CheckedBatch | Damage


class SegmentCheck:
    """The batches of one file up to the byte `end`, the last of which ends at the offset `limit`. Reads `window_bytes`
    at a time. Every method raises OSError as the file does."""

    def __init__(
        self, file: File, path: str, *, end: int, limit: Offset, epoch_at: EpochAt, window_bytes: int = MIB
    ) -> None:
        self._file = file
        self._path = path
        self._end = end
        self._limit = limit
        self._epoch_at = epoch_at
        self._window_bytes = window_bytes
        self._window, self._window_start = b"", 0

    def walk(self, position: int, expected: Offset) -> Iterator[Checked]:
        """Every valid batch from the one at `position` on, whose offset must be `expected`, and each stretch of damage
        between them. Offsets that are missing at the end are damage, too."""
        while position < self._end:
            found = self.batch_at(position, expected)
            if isinstance(found, CheckedBatch):
                yield found
                position, expected = position + found.header.size_bytes, found.header.next_offset
                continue
            good = self._next_good(position, expected)
            rest = "nothing good follows in this file" if good is None else f"good again at byte {good[0]}"
            yield Damage(self._path, position, expected, f"{found}; {rest}")
            if good is None:
                return
            position, expected = good
        if expected < self._limit:
            yield Damage(self._path, self._end, expected, f"the offsets from here to {self._limit} are missing")

    def batch_at(self, position: int, expected: Offset) -> CheckedBatch | str:
        """The valid batch at `position`, or why there is none."""
        room = self._end - position
        data = self._read(position, HEADER_BYTES) if room >= HEADER_BYTES else b""
        if len(data) < HEADER_BYTES:  # a running broker may have cut preallocated space since the size was read
            return "the file ends inside a batch"
        header = read_header(data)
        size = header.size_bytes if HEADER_BYTES <= header.size_bytes <= room else HEADER_BYTES
        data = self._read(position, size)
        fault = batch_fault(data, 0, header, expected, room, self._epoch_at)
        return CheckedBatch(position, header, data) if fault is None else fault

    def _next_good(self, position: int, expected: Offset) -> tuple[int, Offset] | None:
        start = position
        while start < self._end:
            data = self._file.read(start, min(SALVAGE_BYTES, self._end - start))
            for at, header in salvage(data, expected, self._limit, self._epoch_at):
                return start + at, header.base_offset
            if len(data) < SALVAGE_BYTES:
                return None
            # By half, so that a batch across the border of one look lies whole within the next.
            start += SALVAGE_BYTES // 2
        return None

    def _read(self, position: int, length: int) -> bytes:
        at = position - self._window_start
        if at < 0 or at + length > len(self._window):
            wanted = min(max(length, self._window_bytes), self._end - position)
            self._window, self._window_start = self._file.read(position, wanted), position
            at = 0
        return self._window[at : at + length]
