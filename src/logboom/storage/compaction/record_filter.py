"""Which records of a batch stay, and the batch without the others (Kafka's Cleaner.shouldRetainRecord)."""

from bisect import bisect_left
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass
from enum import Enum, auto
from itertools import chain
from typing import Final

from logboom.base.errors import LogboomError, StorageError, with_cause
from logboom.records import (
    CODEC_MASK,
    HEADER_BYTES,
    LENGTH_PREFIX_BYTES,
    BatchHeader,
    Codec,
    RecordBounds,
    key_columns,
    lone_key,
    retain_records,
    without_records,
)
from logboom.storage.compaction.dirty_section import DirtySection
from logboom.storage.compaction.settings import CompactionSettings
from logboom.storage.compaction.source import NEVER_BY_KEY, Batch, Source, is_compacted_by_key, plain_records

_BEST_LEVELS: Final = {Codec.GZIP: 9, Codec.LZ4: 17, Codec.ZSTD: 22}


class Verdict(Enum):
    """The fate of a batch that is not rewritten."""

    KEEP = auto()
    """It stays as it is."""
    REMOVE = auto()
    """Nothing of it is needed; its offsets become part of a gap."""


@dataclass(slots=True)
class FilterCounts:
    """Statistics of the compaction so far."""

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
    """Decides about batch after batch."""

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

    def judge(self, batches: Sequence[Batch], source: Source) -> Iterator[Verdict | bytearray]:
        """The outcome for each of some batches, in order: the new batch, or a `Verdict`. Raises StorageError if one
        cannot be opened."""
        fates = self._fates_of_lone(batches)
        for batch in batches:
            yield fates.get(batch[2][0]) or self._judge(batch, source)

    def _fates_of_lone(self, batches: Sequence[Batch]) -> dict[int, Verdict | bytearray]:
        """The fate of batches of one record, by offset, where the key alone decides and all keys can be looked up
        together: opening each batch would take most of the time of a compaction."""
        dirty = self._dirty
        start, end = dirty.start, dirty.end
        known: list[BatchHeader] = []
        old: list[BatchHeader] = []
        keys: list[bytes] = []
        for data, at, header in batches:
            base, length, _, _, _, attributes, last_delta, _, _, _, _, _, count = header
            if count != 1 or last_delta or base >= end or attributes & NEVER_BY_KEY:
                continue
            if base >= start:
                known.append(header)
            elif not attributes & CODEC_MASK:
                lone = lone_key(data, at + HEADER_BYTES, at + LENGTH_PREFIX_BYTES + length)
                if lone is not None and lone[1]:
                    old.append(header)
                    keys.append(lone[0])
        gone = dirty.superseded.holds([header[0] for header in known])
        if dirty.has_keyless or dirty.with_tombstones.size_bytes:
            # Records without a key are counted, tombstones have a time to stay: those are opened.
            left = [
                (header, is_gone)
                for header, is_gone in zip(known, gone, strict=True)
                if not (dirty.has_keyless if is_gone else header[0] in dirty.with_tombstones)
            ]
            known, gone = [header for header, _ in left], [is_gone for _, is_gone in left]
        known += old
        gone += dirty.keys.known(keys)
        self.counts.records += sum(gone)
        remembered = self._remembered
        return {
            header[0]: (without_records(header) if header[0] in remembered else Verdict.REMOVE)
            if is_gone
            else Verdict.KEEP
            for header, is_gone in zip(known, gone, strict=True)
        }

    def _judge(self, batch: Batch, source: Source) -> Verdict | bytearray:
        """The batch as it is to be, or what becomes of it. StorageError where it cannot be opened."""
        header, dirty = batch[2], self._dirty
        base, end = header.base_offset, header.next_offset
        if base >= dirty.end or header.attributes & NEVER_BY_KEY:
            return Verdict.KEEP
        if not header.records_count:
            return Verdict.KEEP if base in self._remembered else Verdict.REMOVE
        if base >= dirty.start and end <= dirty.end:
            # The first pass knows what becomes of each record, so that most batches need not be opened again.
            superseded = dirty.superseded.count_in(base, end)
            if not superseded and base not in dirty.with_tombstones:
                return Verdict.KEEP
            if superseded == header.records_count and not dirty.has_keyless:
                self.counts.records += superseded
                return self._emptied(header)
        assert is_compacted_by_key(header)
        body = plain_records(batch, source, self._max_decompressed_bytes)
        try:
            retained, has_tombstones = self._retained(body, header)
        except LogboomError as error:
            raise with_cause(StorageError(f"The batch at offset {base} is wrong: {error}"), error) from error
        removed = header.records_count - len(retained)
        self.counts.records += removed
        if not retained:
            return self._emptied(header)
        # Older records of a tombstone's key are gone after this cleaning, so from now on its time runs (KIP-534).
        starts_horizon = has_tombstones and header.delete_horizon_ms is None and end <= dirty.end
        if not removed and not starts_horizon:
            return Verdict.KEEP
        return self._rewritten(header, body, retained, starts_horizon=starts_horizon)

    def _rewritten(
        self, header: BatchHeader, body: bytes, retained: list[RecordBounds], *, starts_horizon: bool
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
        """The fate of a batch of which no record is retained."""
        return without_records(header) if header.base_offset in self._remembered else Verdict.REMOVE

    def _retained(self, body: bytes, header: BatchHeader) -> tuple[list[RecordBounds], bool]:
        """The positions of the retained records, and whether one is a tombstone below the end of the dirty section."""
        dirty, base, horizon_ms = self._dirty, header.base_offset, header.delete_horizon_ms
        columns = key_columns(body, header.records_count)
        keys, deltas = columns.keys, columns.deltas
        below_end = len(deltas) if header.next_offset <= dirty.end else bisect_left(deltas, dirty.end - base)
        below_start = 0 if base >= dirty.start else bisect_left(deltas, dirty.start - base, 0, below_end)
        # Those below the start are superseded by any record of their key above it; of the others it is known of each.
        removed = dirty.keys.known([key or b"" for key in keys[:below_start]]) if below_start else []
        if below_start < below_end:
            bits = dirty.superseded.bits_in(base, base + deltas[below_end - 1] + 1)
            removed += [bool(bits >> delta & 1) for delta in deltas[below_start:below_end]]
        if None in keys:
            keyless = [place for place, key in enumerate(keys[:below_end]) if key is None]
            self.counts.without_key += len(keyless)
            for place in keyless:
                removed[place] = True
        tombstones = [place for place in columns.tombstones if place < below_end and not removed[place]]
        if tombstones and horizon_ms is not None and horizon_ms <= self._now_ms:
            for place in tombstones:
                removed[place] = True
            tombstones = []
        kept = [place for place, is_removed in enumerate(removed) if not is_removed]
        bounds = columns.bounds
        retained = [(bounds[place], bounds[place + 1]) for place in chain(kept, range(below_end, len(deltas)))]
        return retained, bool(tombstones)
