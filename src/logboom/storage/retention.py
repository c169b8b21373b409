"""Which old segments retention lets a log delete. Pure; `PartitionLog.delete_before` deletes them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from logboom.base.ids import Offset


class SegmentFacts(Protocol):
    """What retention needs to know of one segment."""

    @property
    def base(self) -> Offset:
        """Its first offset."""

    @property
    def end(self) -> Offset | None:
        """First offset after it; None for the one still written to."""

    @property
    def size_bytes(self) -> int:
        """Bytes of its batches."""

    @property
    def max_timestamp(self) -> int:
        """Its newest time, negative where no record has one. May read the disk, so it is asked last."""


@dataclass(frozen=True, slots=True)
class Retention:
    """How long records are kept, at least; None for ever."""

    ms: int | None = None
    bytes: int | None = None
    messages: int | None = None

    @property
    def is_limited(self) -> bool:
        """Whether there is anything to do at all."""
        return (self.ms, self.bytes, self.messages) != (None, None, None)


def retained_from(
    segments: Sequence[SegmentFacts], retention: Retention, *, now_ms: int, start: Offset, high_watermark: Offset
) -> Offset:
    """The log start offset that retention asks for, at least `start`.

    Whole segments are deleted, oldest first, as long as each is too old or the rest of the log without it is still
    large enough. The last segment stays, and so does any segment that reaches above the high-water mark.
    """
    left = sum(segment.size_bytes for segment in segments)
    for at, segment in enumerate(segments):
        end = segment.end
        if end is None or end > high_watermark:
            break
        too_much = retention.bytes is not None and left - segment.size_bytes >= retention.bytes
        too_many = retention.messages is not None and high_watermark - end >= retention.messages
        # What lies below the start already waits for nothing but its removal.
        if not (end <= start or too_much or too_many or _too_old(segments[at:], retention, now_ms)):
            break
        left -= segment.size_bytes
        start = max(start, end)
    return start


def _too_old(segments: Sequence[SegmentFacts], retention: Retention, now_ms: int) -> bool:
    """Whether the first of them is; where none of its records has a time it is as old as what follows it."""
    if retention.ms is None:
        return False
    newest = next((time for segment in segments if (time := segment.max_timestamp) >= 0), now_ms)
    return newest < now_ms - retention.ms


def expired_to_the_end(last: SegmentFacts, retention: Retention, *, now_ms: int, start: Offset, end: Offset) -> bool:
    """Whether even the active segment, which ends at `end`, holds nothing that is to be kept. It is then to be ended,
    so that it can be deleted: otherwise a stream without new records would keep its last segment for ever."""
    if not last.size_bytes:
        return False
    return start >= end or retention.bytes == 0 or retention.messages == 0 or _too_old((last,), retention, now_ms)
