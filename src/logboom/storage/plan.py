"""Where the next segment and the next recovery point are due, as the loop decides it for batches not yet written."""

from typing import Final

from logboom.base.ids import Offset
from logboom.base.units import MIB
from logboom.storage.config import LogConfig

_MAX_SEGMENT_OFFSETS: Final = 2**31 - 1
_FIRST_RECOVERY_POINT_BYTES: Final = MIB


class SegmentPlan:
    """The active segment as it will be once everything staged is written."""

    __slots__ = ("_recovery_point_due_bytes", "base", "bytes", "config", "since_ms")

    def __init__(self, config: LogConfig) -> None:
        self.config = config
        self.restart(Offset(0), 0, None)

    def restart(self, base: Offset, size_bytes: int, since_ms: int | None) -> None:
        """Start from an active segment with this many bytes on disk, whose first batch arrived at `since_ms`."""
        self.base = base
        self.bytes = size_bytes
        self.since_ms = since_ms if size_bytes else None
        # How far behind the last recovery point lies is not known here, so one is due with the next append.
        self._recovery_point_due_bytes = max(size_bytes, self._next_recovery_point(0))

    def rolls(self, size_bytes: int, end: Offset, now_ms: int) -> bool:
        """Whether `size_bytes` more at the log end offset `end` begin a new segment, by size, age or count of
        offsets."""
        if self.bytes == 0:
            return False
        return (
            self.bytes + size_bytes > self.config.segment_bytes
            or (self.since_ms is not None and now_ms - self.since_ms >= self.config.segment_ms)
            or end - self.base > _MAX_SEGMENT_OFFSETS
        )

    def roll(self, base: Offset) -> None:
        """A new segment begins at `base`."""
        self.base, self.bytes, self.since_ms = base, 0, None
        self._recovery_point_due_bytes = self._next_recovery_point(0)

    def add(self, size_bytes: int, now_ms: int) -> bool:
        """Count `size_bytes` as staged; returns whether a recovery point is due after them."""
        if self.since_ms is None:
            self.since_ms = now_ms
        self.bytes += size_bytes
        is_due = self.bytes >= self._recovery_point_due_bytes
        if is_due:
            self._recovery_point_due_bytes = self._next_recovery_point(self.bytes)
        return is_due

    def _next_recovery_point(self, position: int) -> int:
        """Often in a small segment, so that a thousand partitions with a little data each recover fast, too."""
        return position + min(max(position // 8, _FIRST_RECOVERY_POINT_BYTES), self.config.recovery_point_bytes)
