"""Which offsets of one partition an archive has events of: at most a bit for each of them.

Files come in any order and hold what they like; where all offsets that lie side by side are known, they take no room.
Pure but for numpy.
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
    """What of a range of offsets there is no event of."""

    offsets: int
    first: int
    """Of the longest hole."""
    behind: int
    """The first offset behind that."""


@dataclass(slots=True)
class HeldOffsets:
    """Offsets that were seen."""

    whole: set[int] = field(default_factory=set)
    """Runs of `_RUN` offsets of which all were seen, by their number."""
    bits: dict[int, npt.NDArray[np.uint8]] = field(default_factory=dict)
    """A bit for each offset of the other runs."""

    def add(self, offsets: npt.NDArray[np.int64]) -> None:
        """Sees these, in any order."""
        ordered = np.sort(offsets)
        runs, firsts = np.unique(ordered // _RUN, return_index=True)
        for run, part in zip(runs.tolist(), np.split(ordered, firsts[1:]), strict=True):
            mask = np.zeros(_RUN, np.bool_)
            mask[part - run * _RUN] = True
            self._add_run(run, np.packbits(mask))

    def update(self, other: "HeldOffsets") -> None:
        """Sees all that another has seen."""
        self.whole |= other.whole
        for run in other.whole:
            self.bits.pop(run, None)
        for run, bits in other.bits.items():
            self._add_run(run, bits)

    def missing(self, first: int, end: int) -> Missing | None:
        """What was not seen of the offsets from `first` on and before `end`; None if all were."""
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
        """Ranges without any, in order; one that goes on in the next run comes as two."""
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
