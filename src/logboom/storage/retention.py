"""Which old segments a log no longer owes to anybody. Pure; `PartitionLog.delete_before` does it."""

from collections.abc import Sequence
from dataclasses import dataclass

from logboom.base.ids import Offset


@dataclass(frozen=True, slots=True)
class SegmentFacts:
    """What retention must know of one segment."""

    base: Offset
    end: Offset | None
    """First offset behind it; None for the one still written to."""
    size_bytes: int
    max_timestamp: int


@dataclass(frozen=True, slots=True)
class Retention:
    """How long records are kept, at least; None for ever."""

    ms: int | None = None
    bytes: int | None = None


def retained_from(
    segments: Sequence[SegmentFacts], retention: Retention, *, now_ms: int, start: Offset, high_watermark: Offset
) -> Offset:
    """The log start offset that retention asks for, at least `start`.

    Whole segments go, oldest first, while each is too old or what is left without it is still large enough. The last
    segment stays, and so does any that reaches above the high-water mark.
    """
    left = sum(segment.size_bytes for segment in segments)
    for segment in segments:
        if segment.end is None or segment.end > high_watermark:
            break
        too_old = retention.ms is not None and segment.max_timestamp < now_ms - retention.ms
        too_much = retention.bytes is not None and left - segment.size_bytes >= retention.bytes
        if not (too_old or too_much):
            break
        left -= segment.size_bytes
        start = max(start, segment.end)
    return start
