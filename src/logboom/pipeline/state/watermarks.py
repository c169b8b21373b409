"""Up to where the times of events have come, over partitions that are behind one another.

The mark is the lowest, over all partitions of origin, of the highest time seen in each, as in Flink (Akidau et al., The
Dataflow Model, VLDB 2015): a partition that is still being caught up with holds it back, so that its events are not
late. A partition without events would hold it for ever; its time therefore goes on with the time of day from when it
was last seen. A time that lies ahead of the time of day counts as the time of day: one wrong clock closes no window.

Times of day are those that are pinned to batches. Pure.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

_US_IN_MS: Final = 1_000
_FORGET_MS: Final = 86_400_000
"""A partition that was silent for a day is no longer looked at: it may not exist any more."""


class Watermarks(msgspec.Struct, frozen=True):
    """How far times have come behind one batch."""

    mark_us: int | None = None
    """Microseconds since 1970; it never goes back. None before the first event."""
    partitions: dict[str, tuple[int, int]] = {}
    """By partition of origin: the highest time in microseconds, and the batch's time of day in ms when it was seen."""

    def advanced(self, seen: Mapping[str, int], wall_ms: int) -> "Watermarks":
        """Behind a batch of this time of day. `seen`: by partition of origin, the highest time in the batch."""
        partitions = {name: found for name, found in self.partitions.items() if wall_ms - found[1] < _FORGET_MS}
        if not partitions and self.partitions and not seen:
            last = max(self.partitions, key=lambda name: self.partitions[name][1])
            partitions = {last: self.partitions[last]}
        for name, highest in seen.items():
            before = partitions.get(name, (highest, wall_ms))[0]
            partitions[name] = (max(before, min(highest, wall_ms * _US_IN_MS)), wall_ms)
        if not partitions:
            return self
        lowest = min(highest + (wall_ms - at) * _US_IN_MS for highest, at in partitions.values())
        mark = min(lowest, wall_ms * _US_IN_MS)
        return Watermarks(mark if self.mark_us is None else max(mark, self.mark_us), partitions)
