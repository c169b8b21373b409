"""The sparse index of one segment: every few KiB of log, where a batch begins and the newest time before it.

It is auxiliary and never trusted: a reader checks the batch that it finds at an entry's place, and the index can be
made again from the log. On disk each entry carries its own CRC, so a garbled or half-written one is seen.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from struct import Struct
from typing import Final

from crc32c import crc32c

from logboom.base.ids import Offset
from logboom.base.ports import Disk

_ENTRY: Final = Struct(">qqq")
_CRC: Final = Struct(">I")
_ENTRY_AND_CRC: Final = Struct(">qqqI")
_ENTRY_BYTES: Final = _ENTRY.size + _CRC.size
_NEAR_END_ENTRIES: Final = 512

NO_TIME: Final = -(2**63)
"""Older than any record."""


class SparseIndex:
    """Rising offsets, positions and times of one segment, in memory.

    One thread adds, any thread reads: an entry is there once its offset is, which is added last.
    """

    __slots__ = (
        "cut_short",
        "end",
        "interval_bytes",
        "max_timestamp",
        "offsets",
        "positions",
        "saved",
        "times",
        "unread",
        "upto",
    )

    def __init__(self, interval_bytes: int) -> None:
        self.interval_bytes = interval_bytes
        self.positions = array("q")
        self.times = array("q")
        self.offsets = array("q")
        self.upto = 0
        """Position after the last batch that was added."""
        self.max_timestamp = NO_TIME
        """Newest time of all batches added."""
        self.saved = 0
        """Entries that are in the index file."""
        self.unread = 0
        """Entries at the beginning of the index file that are not in here."""
        self.cut_short = False
        """Whether the file had entries of bytes that are no longer there."""
        self.end: Offset | None = None
        """The offset after the last batch, where the index was made or completed from the log and nothing was added."""

    def add(self, offset: Offset, position: int, size_bytes: int, max_timestamp: int) -> None:
        """Take note of the next batch of the segment."""
        positions = self.positions
        if not positions or position - positions[-1] >= self.interval_bytes:
            self._add_entry(offset, position)
        self.upto = position + size_bytes
        if max_timestamp > self.max_timestamp:
            self.max_timestamp = max_timestamp

    def add_run(self, batches: Sequence[tuple[Offset, int, int]], position: int) -> int:
        """`add` for batches (offset, bytes, newest time) that follow each other from `position` on; where they end."""
        due = self.positions[-1] + self.interval_bytes if self.positions else 0
        for offset, size_bytes, max_timestamp in batches:
            if position >= due:
                self._add_entry(offset, position)
                due = position + self.interval_bytes
            position += size_bytes
            if max_timestamp > self.max_timestamp:
                self.max_timestamp = max_timestamp
        self.upto = position
        return position

    def seal(self, end: Offset) -> None:
        """Add the entry of the segment's end, which keeps its newest time."""
        if self.positions and self.positions[-1] != self.upto:
            self._add_entry(end, self.upto)

    def _add_entry(self, offset: Offset, position: int) -> None:
        self.positions.append(position)
        self.times.append(self.max_timestamp)
        self.offsets.append(offset)

    def floor(self, offset: Offset) -> tuple[Offset, int] | None:
        """Offset and position of the last entry at or below `offset`."""
        at = bisect_right(self.offsets, offset) - 1
        return (Offset(self.offsets[at]), self.positions[at]) if at >= 0 else None

    def after(self, position: int) -> tuple[Offset, int] | None:
        """Offset and position of the first entry above `position`."""
        at = bisect_right(self.positions, position, 0, len(self.offsets))
        return (Offset(self.offsets[at]), self.positions[at]) if at < len(self.offsets) else None

    def floor_time(self, timestamp_ms: int) -> tuple[Offset, int] | None:
        """The last entry before which every record is older than `timestamp_ms`."""
        at = bisect_left(self.times, timestamp_ms, 0, len(self.offsets)) - 1
        return (Offset(self.offsets[at]), self.positions[at]) if at >= 0 else None

    def time_before(self, offset: Offset) -> int:
        """Newest time before the last entry at or below `offset`."""
        at = bisect_right(self.offsets, offset) - 1
        return self.times[at] if at >= 0 else NO_TIME

    def pending_bytes(self) -> tuple[int, bytes, int]:
        """Where in the index file the entries belong that are not in it, their bytes, and what `saved` is with them."""
        start, end = self.saved, self.unread + len(self.offsets)
        parts = []
        for at in range(start - self.unread, end - self.unread):
            body = _ENTRY.pack(self.offsets[at], self.positions[at], self.times[at])
            parts.append(body + _CRC.pack(crc32c(body)))
        return start * _ENTRY_BYTES, b"".join(parts), end

    @classmethod
    def at_end_of(cls, disk: Disk, path: str, interval_bytes: int) -> "SparseIndex | None":
        """The last entry of an index file, to continue after it; None where there is none or it is not whole."""
        try:
            count, data = _last_entry(disk, path)
        except OSError:
            return None  # the full load reports it
        if not _is_whole(data):
            return None
        index = cls(interval_bytes)
        offset, position, time = _ENTRY.unpack_from(data)
        index.positions.append(position)
        index.times.append(time)
        index.offsets.append(offset)
        index.upto, index.max_timestamp = position, time
        index.unread, index.saved = count - 1, count
        return index

    @classmethod
    def load(cls, data: bytes, interval_bytes: int, base: Offset, end_position: int) -> "SparseIndex | None":
        """The index in a file's bytes up to the first entry above `end_position`; None where any entry is wrong.

        `upto` and `max_timestamp` are those before the last entry: the log from there on is to be added again.
        """
        index = cls(interval_bytes)
        offsets, positions, times = index.offsets, index.positions, index.times
        whole = memoryview(data)[: len(data) - len(data) % _ENTRY_BYTES]
        last_offset, last_position, last_time = base - 1, -1, NO_TIME
        start = 0
        for offset, position, time, crc in _ENTRY_AND_CRC.iter_unpack(whole):
            rises = offset > last_offset and position > last_position and time >= last_time
            if not rises or crc32c(whole[start : start + _ENTRY.size]) != crc:
                return None
            if position > end_position:
                index.cut_short = True
                break
            positions.append(position)
            times.append(time)
            offsets.append(offset)
            last_offset, last_position, last_time = offset, position, time
            start += _ENTRY_BYTES
        if offsets:
            index.upto, index.max_timestamp = last_position, last_time
        if index.offsets and (index.offsets[0], index.positions[0]) != (base, 0):
            return None
        index.saved = len(index.offsets)
        return index


def last_entry(disk: Disk, path: str) -> tuple[Offset, int, int] | None:
    """Offset, position and time of the last entry of an index file; None where there is none, or it is not whole."""
    try:
        _, data = _last_entry(disk, path)
    except OSError:
        return None  # whoever needs the index reports it
    if not _is_whole(data):
        return None
    offset, position, time = _ENTRY.unpack_from(data)
    return Offset(offset), position, time


def sealed_newest(disk: Disk, path: str, end: Offset, end_position: int) -> int | None:
    """The newest time of a whole segment from the last entry of its index file; None where that is not its seal."""
    last = last_entry(disk, path)
    return last[2] if last is not None and last[:2] == (end, end_position) else None


def floor_near_end(disk: Disk, path: str, offset: Offset) -> tuple[Offset, int] | None:
    """The last entry at or below `offset`, if it is among the last few hundred of an index file and is whole."""
    try:
        file = disk.open(path)
    except OSError:
        return None  # the full load reports it
    try:
        count = file.size() // _ENTRY_BYTES
        first = max(count - _NEAR_END_ENTRIES, 0)
        data = file.read(first * _ENTRY_BYTES, (count - first) * _ENTRY_BYTES)
    except OSError:
        return None
    finally:
        file.close()
    entries = range(len(data) // _ENTRY_BYTES)
    at = bisect_right(entries, offset, key=lambda n: _ENTRY.unpack_from(data, n * _ENTRY_BYTES)[0]) - 1
    if at < 0:
        return None
    body = data[at * _ENTRY_BYTES :][: _ENTRY.size]
    if _CRC.unpack_from(data, at * _ENTRY_BYTES + _ENTRY.size)[0] != crc32c(body):
        return None
    base, position, _ = _ENTRY.unpack(body)
    return Offset(base), position


def ends_within(disk: Disk, path: str, end_position: int) -> bool:
    """Whether the last entry of an index file is whole and not above `end_position`, or there is no entry at all."""
    try:
        count, data = _last_entry(disk, path)
    except FileNotFoundError:
        return True
    except OSError:
        return False  # the full load says why
    return not count or (_is_whole(data) and _ENTRY.unpack_from(data)[1] <= end_position)


def _last_entry(disk: Disk, path: str) -> tuple[int, bytes]:
    """How many whole entries an index file has, and the bytes of the last one; none where there is none."""
    file = disk.open(path)
    try:
        count = file.size() // _ENTRY_BYTES
        return count, file.read((count - 1) * _ENTRY_BYTES, _ENTRY_BYTES) if count else b""
    finally:
        file.close()


def _is_whole(entry: bytes) -> bool:
    return len(entry) == _ENTRY_BYTES and bool(_CRC.unpack_from(entry, _ENTRY.size)[0] == crc32c(entry[: _ENTRY.size]))
