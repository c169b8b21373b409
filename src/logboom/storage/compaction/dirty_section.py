"""The first pass of a cleaning: reading the dirty section of a log, to know which of its records are superseded."""

from bisect import bisect_left
from dataclasses import dataclass, field
from typing import Final

from logboom.base.errors import LogboomError, StorageError, with_cause
from logboom.base.ids import Offset
from logboom.base.ports import File
from logboom.base.units import MIB
from logboom.records import HEADER_BYTES, LENGTH_PREFIX_BYTES, BatchHeader, key_columns, lone_key
from logboom.storage.compaction.key_map import KeyMap, OffsetSet
from logboom.storage.compaction.source import NOT_LONE, Source, Step, checked_reads, is_compacted_by_key, plain_records
from logboom.storage.segment import EpochAt

_SETS_SHARE: Final = 16
"""One part in this many of the memory is for sets of offsets, the others are for the keys."""

_NOTED_BYTES: Final = MIB
"""After this many bytes of records their keys are noted, so that the next ones need no more memory beside the map. A
read may have as many, or many more where they are compressed."""


class DirtySection:
    """The keys and offsets of the records from `start` up to below `end`."""

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
        start = self.start
        for batches in checked_reads(source, file, start, epoch_at, step):
            found = _Keys()
            for batch in batches:
                data, at, header = batch
                base, length, _, _, _, attributes, last_delta, _, _, _, _, _, count = header
                if count == 1 and not last_delta and base >= start and not attributes & NOT_LONE:
                    lone = lone_key(data, at + HEADER_BYTES, at + LENGTH_PREFIX_BYTES + length)
                    if lone is not None:
                        key, has_value = lone
                        found.keys.append(key)
                        found.offsets.append(base)
                        if not has_value:
                            found.with_tombstones.append(base)
                        continue  # its bytes are those of the read, whose size is bounded
                if is_compacted_by_key(header):
                    body = plain_records(batch, source, max_decompressed_bytes)
                    try:
                        self._look_into(body, header, found)
                    except LogboomError as error:
                        raise with_cause(
                            StorageError(f"The batch at offset {header.base_offset} is wrong: {error}"), error
                        ) from error
                    if found.looked_into_bytes >= _NOTED_BYTES:
                        if not self._note(found, header.next_offset):
                            return False
                        found = _Keys()
            if batches and not self._note(found, batches[-1][2].next_offset):
                return False
        return True

    def _look_into(self, body: bytes, header: BatchHeader, found: "_Keys") -> None:
        """Add the keys of a batch to those that were found."""
        found.looked_into_bytes += len(body)
        base, start, columns = header.base_offset, self.start, key_columns(body, header.records_count)
        keys, offsets = columns.keys, [base + delta for delta in columns.deltas]
        if base < start:
            first = bisect_left(offsets, start)
            keys, offsets = keys[first:], offsets[first:]
        if None in keys:
            found.keyless += [offset for key, offset in zip(keys, offsets, strict=True) if key is None]
            offsets = [offset for key, offset in zip(keys, offsets, strict=True) if key is not None]
        found.keys += [key for key in keys if key is not None]
        found.offsets += offsets
        if columns.tombstones:
            found.with_tombstones.append(base)

    def _note(self, found: "_Keys", end: Offset) -> bool:
        """Add the keys of all batches up to `end` to the map; returns False if this part of the log ends, with these
        batches or before one for which there was no room."""
        self.superseded.add(found.keyless)
        self.has_keyless |= bool(found.keyless)
        self.with_tombstones.add(found.with_tombstones)
        count, before = self.keys.put(found.keys, found.offsets)
        self.superseded.add(before)
        if count < len(found.keys):
            self.end = Offset(found.offsets[count])
            return False
        self.end = end
        return self.superseded.size_bytes + self.with_tombstones.size_bytes <= self._max_set_bytes


@dataclass(slots=True)
class _Keys:
    """Of some batches, one after the other: each record's key and offset, and what stands out."""

    keys: list[bytes] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)
    keyless: list[int] = field(default_factory=list)
    """Offsets of records without a key."""
    with_tombstones: list[int] = field(default_factory=list)
    """Base offsets of batches."""
    looked_into_bytes: int = 0
    """Of all their records."""
