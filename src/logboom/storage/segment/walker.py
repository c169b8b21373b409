"""Walking the batches of one segment file past damage, and reporting each damaged place once."""

import errno
from collections.abc import Callable, Iterator
from typing import Final

from logboom.base.errors import StorageError
from logboom.base.ids import Offset
from logboom.base.units import MIB
from logboom.records import HEADER_BYTES, BatchHeader, read_header
from logboom.storage.config import Damage, Notice
from logboom.storage.segment.file import SegmentFile
from logboom.storage.segment.scan import BadBatchError, EpochAt, header_fault, salvage, walk

SALVAGE_BYTES: Final = 32 * MIB
"""Bytes that a search for good batches after damage looks at together. Above the largest batch, by far."""

UNREADABLE: Final = (errno.EIO, errno.EBADMSG, errno.EUCLEAN)
"""What Linux says of bytes that a disk does not give back, or that the checksums of a file system do not match."""


class SegmentWalker:
    """Any thread. `epoch_at` is the log's: the leader epoch that a batch at an offset must carry."""

    __slots__ = ("_cuts", "_file", "_report", "_reported", "epoch_at")

    def __init__(self, file: SegmentFile, epoch_at: EpochAt, report: Callable[[Damage | Notice], None]) -> None:
        self._file = file
        self._report = report
        self._reported: set[int] = set()
        self._cuts = 0
        """How often the file was cut back."""
        self.epoch_at = epoch_at

    def walk_past_damage(self, position: int, expected: Offset, end_position: int) -> Iterator[tuple[int, BatchHeader]]:
        """Position and header of every batch that can be found; damage is reported and left out. Where the file is cut
        back meanwhile, this ends there: what it meets after the cut is no damage, and nobody keeps what was found."""
        cuts = self._cuts
        while position < end_position:
            suspect = position, expected
            try:
                for at, header in walk(self._file.handle, position, expected, end_position):
                    yield at, header
                    suspect = at, header.base_offset
                    position, expected = at + header.size_bytes, header.next_offset
                return
            except BadBatchError as bad:
                if cuts != self._cuts or end_position > self._file.size_bytes:
                    return
                self.damaged(bad.position, bad.offset, bad.reason)
            found = self._next_good(suspect, position, end_position)
            if found is None:
                return
            position, expected = found

    def _next_good(self, suspect: tuple[int, Offset], position: int, end_position: int) -> tuple[int, Offset] | None:
        """Position and offset of the first good batch at or after `position`.

        The walk goes by headers alone, so the batch before the bad one, `suspect`, is looked at again: a wrong length
        in its header may be what led to the wrong place.
        """
        start, expected = suspect
        while start < end_position:
            data = self._file.handle.read(start, min(SALVAGE_BYTES, end_position - start))
            for at, header in salvage(data, expected, self._file.limit, self.epoch_at):
                if start + at >= position:
                    return start + at, header.base_offset
            if len(data) < SALVAGE_BYTES:
                return None
            # By half, so that a batch across the border of one look lies whole within the next.
            start += SALVAGE_BYTES // 2
        return None

    def is_batch(self, offset: Offset, position: int, end_position: int) -> bool:
        """Whether the batch at `offset` begins at `position`, by its header."""
        data = self._file.handle.read(position, HEADER_BYTES)
        return len(data) == HEADER_BYTES and header_fault(read_header(data), offset, end_position - position) is None

    def damaged(self, position: int, offset: Offset, reason: str) -> Damage:
        """The damage at `position`, which is reported when it is met first."""
        damage = Damage(self._file.path, position, offset, reason)
        if position not in self._reported:
            self._reported.add(position)
            self._report(damage)
        return damage

    def forget_damage(self, position: int) -> None:
        """The file is cut back to `position`: what is damaged after it from now on is to be reported."""
        self._cuts += 1
        self._reported = {at for at in self._reported if at < position}

    def damage_error(self, position: int, offset: Offset, reason: str) -> StorageError:
        """The answer to a read of damaged bytes."""
        return StorageError(str(self.damaged(position, offset, reason)))

    def unreadable(self, error: OSError, offset: Offset) -> StorageError | None:
        """The answer to a read at `offset` whose bytes the disk does not give back, which is damage like any other.

        None where `error` says nothing of the bytes, or where another file has taken this one's place.
        """
        file = self._file
        if error.errno not in UNREADABLE or file.retired:
            return None
        _, position = (None if file.cached_index is None else file.cached_index.floor(offset)) or (file.base, 0)
        return self.damage_error(position, offset, f"it cannot be read: {error}")
