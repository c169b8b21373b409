"""The offsets of an edge's partitions that are done, as ranges. Pure."""

from bisect import bisect_right
from collections.abc import Iterable, Mapping

import msgspec

Range = tuple[int, int]
"""The first offset, and the one after the last."""


class Done(msgspec.Struct, frozen=True):
    """Ranges of offsets by `TOPIC/PARTITION`, sorted and not adjacent."""

    ranges: dict[str, tuple[Range, ...]] = {}

    def has(self, place: str, offset: int) -> bool:
        """Whether the record is done."""
        found = self.ranges.get(place, ())
        at = bisect_right(found, offset, key=lambda one: one[0]) - 1
        return at >= 0 and offset < found[at][1]

    def plus(self, other: "Done") -> "Done":
        """The union of both."""
        places = {**self.ranges, **other.ranges}
        return Done({place: _merged((*self.ranges.get(place, ()), *other.ranges.get(place, ()))) for place in places})


def done_of(offsets: Mapping[str, Iterable[int]]) -> Done:
    """Make ranges of single offsets by place.

    >>> done_of({"_p.e/0": [4, 5, 7]}).ranges
    {'_p.e/0': ((4, 6), (7, 8))}
    """
    return Done({place: _merged((offset, offset + 1) for offset in some) for place, some in offsets.items()})


def _merged(ranges: Iterable[Range]) -> tuple[Range, ...]:
    merged: list[Range] = []
    for first, end in sorted(ranges):
        if merged and first <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((first, end))
    return tuple(merged)
