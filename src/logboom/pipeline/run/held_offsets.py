"""The set of offsets of one partition that an archive has, with at most one bit for each offset.

Files may come in any order. Ranges in which all offsets are present take no memory. Pure except for numpy.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

_RUN: Final = 8_192
_ALL: Final = np.uint8(0xFF)
_NONE: Final = np.zeros(_RUN // 8, np.uint8)


class Missing(NamedTuple):
    """The missing offsets of a range."""

    offsets: int
    first: int
    """Start of the longest gap."""
    behind: int
    """End of the longest gap (exclusive)."""


@dataclass(slots=True)
class HeldOffsets:
    """The set of offsets that were added."""

    whole: set[int] = field(default_factory=set)
    """Numbers of runs of `_RUN` offsets that are complete."""
    bits: dict[int, npt.NDArray[np.uint8]] = field(default_factory=dict)
    """A bit for each offset of the other runs."""

    def add(self, offsets: npt.NDArray[np.int64]) -> None:
        """Add offsets, in any order."""
        ordered = np.sort(offsets)
        runs, firsts = np.unique(ordered // _RUN, return_index=True)
        for run, part in zip(runs.tolist(), np.split(ordered, firsts[1:]), strict=True):
            mask = np.zeros(_RUN, np.bool_)
            mask[part - run * _RUN] = True
            self._add_run(run, np.packbits(mask))

    def update(self, other: "HeldOffsets") -> None:
        """Add all offsets of another set."""
        self.whole |= other.whole
        for run in other.whole:
            self.bits.pop(run, None)
        for run, bits in other.bits.items():
            self._add_run(run, bits)

    def missing(self, first: int, end: int) -> Missing | None:
        """The missing offsets from `first` to before `end`; None if there are none."""
        count, longest, open_from, reached = 0, (0, 0), -1, -1
        for begin, behind in self._absent(first, end):
            count += behind - begin
            open_from = open_from if begin == reached else begin
            reached = behind
            longest = max(longest, (reached - open_from, -open_from))
        length, negative = longest
        return Missing(count, -negative, length - negative) if count else None

    def _add_run(self, run: int, bits: npt.NDArray[np.uint8]) -> None:
        if run in self.whole:
            return
        both = bits | self.bits.get(run, _NONE)
        if (both == _ALL).all():
            self.whole.add(run)
            self.bits.pop(run, None)
        else:
            self.bits[run] = both

    def _absent(self, first: int, end: int) -> Iterator[tuple[int, int]]:
        """The gaps, in order. A gap that continues in the next run is returned as two."""
        for run in range(first // _RUN, -(-end // _RUN)):
            if run in self.whole:
                continue
            base = run * _RUN
            begin, behind = max(first - base, 0), min(end - base, _RUN)
            absent = np.unpackbits(self.bits.get(run, _NONE)) == 0
            places = np.flatnonzero(absent[begin:behind]) + base + begin
            for part in np.split(places, np.flatnonzero(np.diff(places) > 1) + 1):
                if len(part):
                    yield int(part[0]), int(part[-1]) + 1
