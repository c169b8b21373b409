"""Scrubbing a log that is in use: everything durable in it is read and checked, one stretch at a time.

Damage is reported as if a reader had found it. Only offsets below the high-water mark are checked, since bytes that are
being truncated look like damaged ones. Changes by retention, by compaction or by the rebuild of a copy are not mistaken
for damage either: the segment no longer belongs to the log then.
"""

from dataclasses import dataclass

from logboom.base.ids import Offset
from logboom.base.ports import File
from logboom.storage.config import Damage
from logboom.storage.segment import UNREADABLE, CheckedBatch, Segment, SegmentCheck
from logboom.storage.state import LogState


@dataclass(frozen=True, slots=True)
class Scrubbed:
    """One stretch."""

    size_bytes: int
    """How much of it was read."""
    damages: int
    """How many damaged places were in it."""
    is_last: bool
    """Whether nothing is left below the ceiling."""


class Scrub:
    """One pass over one log. Any thread that may wait, one call at a time; keeps no file open between two calls."""

    def __init__(self, state: LogState, start: Offset) -> None:
        self.offset = start
        """Everything in the log below it was checked in this pass, or in the one that got so far before."""
        self._state = state
        self._segment: Segment | None = None
        self._position = 0

    @property
    def next_bytes(self) -> int:
        """How much is left of the segment that is read next."""
        segment = self._state.segment_of(max(self.offset, self._state.log_start_offset))
        return segment.size_bytes - (self._position if segment is self._segment else 0)

    def check_next(self, ceiling: Offset, max_bytes: int) -> Scrubbed:
        """Check about `max_bytes` more, at least one batch, of what lies below `ceiling` and is durable.

        OSError for a lack of handles or memory: to be tried again.
        """
        state = self._state
        ceiling = min(ceiling, state.durable_end)
        if max(self.offset, state.log_start_offset) >= ceiling:
            return Scrubbed(0, 0, is_last=True)
        cuts = state.truncation_count
        segment = state.segment_of(max(self.offset, state.log_start_offset))
        if segment is not self._segment:
            self._segment, self._position, self.offset = segment, 0, segment.base
        stretch = _Stretch(segment, self._position, self.offset, ceiling)
        stretch.check(max_bytes)
        if stretch.damages and not self._is_in_place(segment, cuts):
            self._segment = None  # what was read is not the log any more; what took its place is read from its start
            return Scrubbed(stretch.size_bytes, 0, is_last=False)
        for damage in stretch.damages:
            offset = segment.base if damage.offset is None else damage.offset
            segment.walker.damaged(damage.position, offset, damage.reason)
        self._position, self.offset = stretch.position, stretch.offset
        return Scrubbed(stretch.size_bytes, len(stretch.damages), is_last=self.offset >= ceiling)

    def _is_in_place(self, segment: Segment, cuts: int) -> bool:
        state = self._state
        return segment in state.segments and not segment.file.retired and state.truncation_count == cuts


class _Stretch:
    """What one call reads of one segment: from `position` and `offset` on, which then are where the next one begins."""

    def __init__(self, segment: Segment, position: int, offset: Offset, ceiling: Offset) -> None:
        self.position = position
        self.offset = offset
        self.size_bytes = 0
        self.damages: list[Damage] = []
        self._segment = segment
        end = segment.end  # asked for before the size: a segment that has ended does not grow any more
        self._limit = ceiling if end is None else end
        self._ceiling = min(ceiling, self._limit)
        self._end = segment.size_bytes

    def check(self, max_bytes: int) -> None:
        """Read. A file that is missing, or that the disk does not give back, is damaged."""
        try:
            file = self._segment.file.open_apart()
        except FileNotFoundError:
            self._give_up("the file is missing")
            return
        try:
            self._read(file, max_bytes)
        except OSError as error:
            if error.errno not in UNREADABLE:
                raise
            self._give_up(f"it cannot be read: {error}")
        finally:
            file.close()

    def _give_up(self, reason: str) -> None:
        self.damages.append(Damage(self._segment.path, self.position, self.offset, reason))
        self.position, self.offset = self._end, self._limit

    def _read(self, file: File, max_bytes: int) -> None:
        begin, segment = self.position, self._segment
        # Memory may still have what the disk has lost; and readers need what they have there more than this does.
        file.forget(begin, min(max_bytes, self._end - begin))
        check = SegmentCheck(
            file,
            segment.path,
            end=self._end,
            limit=self._limit,
            epoch_at=segment.walker.epoch_at,
            window_bytes=max_bytes,
        )
        for found in check.walk(begin, self.offset):
            if isinstance(found, CheckedBatch):
                self.position = found.position + found.header.size_bytes
                self.offset = found.header.next_offset
                if self.position - begin >= max_bytes or self.offset >= self._ceiling:
                    break
            else:
                self.damages.append(found)
        else:
            self.position, self.offset = self._end, self._limit
        self.size_bytes = self.position - begin
        file.forget(begin, self.size_bytes)
