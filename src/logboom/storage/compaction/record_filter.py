"""Which records of a batch stay, and the batch without the others (Kafka's Cleaner.shouldRetainRecord)."""

from collections.abc import Set
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from logboom.base.errors import LogboomError, StorageError, with_cause
from logboom.base.ids import Offset
from logboom.records import BatchHeader, Codec, KeyedRecord, keyed_records, retain_records, without_records
from logboom.storage.compaction.dirty_section import DirtySection
from logboom.storage.compaction.settings import CompactionSettings
from logboom.storage.compaction.source import Batch, Source, is_compacted_by_key, plain_records

_BEST_LEVELS: Final = {Codec.GZIP: 9, Codec.LZ4: 17, Codec.ZSTD: 22}


class Verdict(Enum):
    """What becomes of a batch that is not rewritten."""

    KEEP = auto()
    """It stays as it is."""
    REMOVE = auto()
    """Nothing of it is needed; its offsets become part of a gap."""


@dataclass(slots=True)
class FilterCounts:
    """What was done so far that is told later on."""

    records: int = 0
    without_key: int = 0
    batches_without_horizon: int = 0
    """Whose tombstones stay for longer, because a delete horizon would have made the batch too large."""
    batches_above_limit: int = 0
    """Rewritten ones, larger than they were and than `max_batch_bytes`, whatever was tried."""

    def add(self, other: "FilterCounts") -> None:
        """Count another filter's work as well."""
        self.records += other.records
        self.without_key += other.without_key
        self.batches_without_horizon += other.batches_without_horizon
        self.batches_above_limit += other.batches_above_limit


class RecordFilter:
    """Decides about one batch after another."""

    def __init__(
        self,
        dirty: DirtySection,
        settings: CompactionSettings,
        *,
        remembered: Set[int],
        now_ms: int,
        max_decompressed_bytes: int,
    ) -> None:
        """`remembered`: base offsets of the batches from which an idempotent producer's state is rebuilt."""
        self.counts = FilterCounts()
        self._dirty = dirty
        self._settings = settings
        self._remembered = remembered
        self._now_ms = now_ms
        self._max_decompressed_bytes = max_decompressed_bytes

    def judge(self, batch: Batch, source: Source) -> Verdict | bytearray:
        """The batch as it is to be, or what becomes of it. StorageError where it cannot be opened."""
        header, dirty = batch[2], self._dirty
        if header.base_offset >= dirty.end or header.is_control or header.is_transactional:
            return Verdict.KEEP
        if not header.records_count:
            return Verdict.KEEP if header.base_offset in self._remembered else Verdict.REMOVE
        if header.base_offset >= dirty.start and header.next_offset <= dirty.end:
            # The first pass knows what becomes of each record, so that most batches need not be opened again.
            superseded = dirty.superseded.count_in(header.base_offset, header.next_offset)
            if not superseded and header.base_offset not in dirty.with_tombstones:
                return Verdict.KEEP
            if superseded == header.records_count and not dirty.has_keyless:
                self.counts.records += superseded
                return self._emptied(header)
        assert is_compacted_by_key(header)
        body = plain_records(batch, source, self._max_decompressed_bytes)
        try:
            retained, has_tombstones = self._retained(body, header)
        except LogboomError as error:
            raise with_cause(
                StorageError(f"The batch at offset {header.base_offset} is wrong: {error}"), error
            ) from error
        removed = header.records_count - len(retained)
        self.counts.records += removed
        if not retained:
            return self._emptied(header)
        # Older records of a tombstone's key are gone after this cleaning, so from now on its time runs (KIP-534).
        starts_horizon = has_tombstones and header.delete_horizon_ms is None and header.next_offset <= dirty.end
        if not removed and not starts_horizon:
            return Verdict.KEEP
        return self._rewritten(header, body, retained, starts_horizon=starts_horizon)

    def _rewritten(
        self, header: BatchHeader, body: bytes, retained: list[KeyedRecord], *, starts_horizon: bool
    ) -> Verdict | bytearray:
        max_bytes = max(header.size_bytes, self._settings.max_batch_bytes)
        if starts_horizon:
            horizon_ms = self._now_ms + self._settings.delete_retention_ms
            rewritten = retain_records(header, body, retained, delete_horizon_ms=horizon_ms)
            if len(rewritten) <= max_bytes:
                return rewritten
            # The timestamps' deltas take more room in such a batch. Without a horizon its tombstones stay for longer.
            self.counts.batches_without_horizon += 1
            if len(retained) == header.records_count:
                return Verdict.KEEP
        rewritten = retain_records(header, body, retained)
        if len(rewritten) > max_bytes:
            # Its producer compressed it harder than is usual. Where even that does not help it is larger, as in Kafka:
            # a batch that kept a superseded record could bring a deleted key back.
            rewritten = retain_records(header, body, retained, level=_BEST_LEVELS.get(header.codec))
            self.counts.batches_above_limit += len(rewritten) > max_bytes
        return rewritten

    def _emptied(self, header: BatchHeader) -> Verdict | bytearray:
        """What becomes of a batch of which no record stays."""
        return without_records(header) if header.base_offset in self._remembered else Verdict.REMOVE

    def _retained(self, body: bytes, header: BatchHeader) -> tuple[list[KeyedRecord], bool]:
        """The records that stay, and whether one of them is a tombstone below the end of the dirty section."""
        dirty, base, horizon_ms = self._dirty, header.base_offset, header.delete_horizon_ms
        keys, superseded, removes_tombstones = dirty.keys, dirty.superseded, False
        if horizon_ms is not None:
            removes_tombstones = horizon_ms <= self._now_ms
        retained: list[KeyedRecord] = []
        has_tombstones = False
        for record in keyed_records(body, header.records_count):
            delta, key, has_value, _, _ = record
            offset = Offset(base + delta)
            if offset < dirty.end:
                if key is None:
                    self.counts.without_key += 1
                    continue
                if offset in superseded if offset >= dirty.start else key in keys:
                    continue
                if not has_value:
                    if removes_tombstones:
                        continue
                    has_tombstones = True
            retained.append(record)
        return retained, has_tombstones
