"""The first pass of a cleaning: reading the dirty section of a log, to know which of its records are superseded."""

from typing import Final

from logboom.base.errors import LogboomError, StorageError, with_cause
from logboom.base.ids import Offset
from logboom.base.ports import File
from logboom.records import BatchHeader, keyed_records
from logboom.storage.compaction.key_map import KeyMap, OffsetSet
from logboom.storage.compaction.source import Source, Step, checked_batches, is_compacted_by_key, plain_records
from logboom.storage.segment import EpochAt

_SETS_SHARE: Final = 16
"""One part in so many of the memory is for sets of offsets, the others are for the keys."""


class DirtySection:
    """What is known of the records from `start` up to below `end`."""

    def __init__(self, start: Offset, map_bytes: int) -> None:
        self.start = start
        self.end = start
        self.keys = KeyMap(map_bytes - map_bytes // _SETS_SHARE, start)
        """Each key in here; a record of such a key below `start` is superseded."""
        self.superseded = OffsetSet()
        """Records in here that are not the latest of their key, or have none."""
        self.with_tombstones = OffsetSet()
        """Base offsets of the batches in here that have a record without a value."""
        self.has_keyless = False
        """Whether a record in here has no key."""
        self._max_set_bytes = map_bytes // _SETS_SHARE

    def read(self, source: Source, file: File, epoch_at: EpochAt, step: Step, *, max_decompressed_bytes: int) -> bool:
        """Read the next segment; False where the memory is used up, at which this part ends.

        BadBatchError or StorageError where a batch is damaged or cannot be opened. Raises OSError.
        """
        for batch in checked_batches(source, file, self.start, epoch_at, step):
            header = batch[2]
            if is_compacted_by_key(header):
                body = plain_records(batch, source, max_decompressed_bytes)
                try:
                    if not self._take(body, header):
                        return False
                except LogboomError as error:
                    raise with_cause(
                        StorageError(f"The batch at offset {header.base_offset} is wrong: {error}"), error
                    ) from error
            self.end = header.next_offset
            if self.superseded.size_bytes + self.with_tombstones.size_bytes > self._max_set_bytes:
                return False
        return True

    def _take(self, body: bytes, header: BatchHeader) -> bool:
        """Note the keys of a batch; False where there was no room for one, at which this part ends."""
        base, start = header.base_offset, self.start
        put, supersede = self.keys.put, self.superseded.add
        for delta, key, has_value, _, _ in keyed_records(body, header.records_count):
            offset = Offset(base + delta)
            if offset < start:
                continue
            if key is None:
                supersede(offset)
                self.has_keyless = True
                continue
            before = put(key, offset)
            if before is None:
                self.end = offset
                return False
            if before >= 0:
                supersede(before)
            if not has_value:
                self.with_tombstones.add(base)
        return True
