"""The settings of key compaction, and its results."""

from dataclasses import dataclass

from logboom.base.ids import Offset
from logboom.base.units import DAY_MS, MIB


@dataclass(frozen=True, slots=True)
class CompactionSettings:
    """How one log is compacted; the names in brackets are Kafka's."""

    delete_retention_ms: int = DAY_MS
    """How long a tombstone stays after the first cleaning that included it (delete.retention.ms)."""
    min_compaction_lag_ms: int = 0
    """Records younger than this stay as they are (min.compaction.lag.ms)."""
    max_compaction_lag_ms: int | None = None
    """The age of a superseded record from which the log is to be cleaned at once (max.compaction.lag.ms)."""
    max_batch_bytes: int = MIB
    """A rewritten batch is at most this large, or no larger than it was (max.message.bytes)."""
    map_bytes: int = 128 * MIB
    """Memory of one cleaning for the keys it has seen (log.cleaner.dedupe.buffer.size). Where there are more keys, one
    cleaning gets as far as it can, and the next goes on from there."""

    def __post_init__(self) -> None:
        assert self.map_bytes > 0
        assert self.delete_retention_ms >= 0
        assert self.min_compaction_lag_ms >= 0


@dataclass(frozen=True, slots=True)
class Dirt:
    """How much of a log is to be cleaned (Kafka's LogToClean)."""

    clean_bytes: int
    """Bytes of segments that were cleaned."""
    dirty_bytes: int
    """Bytes of segments that were not, and may be cleaned now."""
    first_dirty_offset: Offset
    cleanable_end: Offset
    """Where the first segment begins that must stay as it is: it is written to, young, or reaches above the stable
    end."""
    max_lag_exceeded: bool
    """Whether a record that may be cleaned has waited for longer than `max_compaction_lag_ms`."""

    @property
    def is_cleanable(self) -> bool:
        """Whether there is anything to clean."""
        return self.dirty_bytes > 0

    @property
    def ratio(self) -> float:
        """Dirty bytes as a share of all that a cleaning would read; what min.cleanable.dirty.ratio is held against."""
        total = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total if total else 0.0


@dataclass(frozen=True, slots=True)
class Cleaned:
    """What one cleaning did."""

    first_dirty_offset: Offset
    """From here on the log is to be cleaned the next time."""
    is_complete: bool
    """Whether all was cleaned that could be; False where the map was full, and there is more."""
    bytes_read: int
    bytes_written: int
    bytes_before: int
    """Bytes of the segments that were cleaned."""
    bytes_after: int
    """Bytes of what took their place."""
    segments_before: int
    segments_after: int
    records_removed: int
    records_without_key: int
    """Those of `records_removed` that had no key, so that nothing could ever supersede them. Kafka's cleaner removes
    them too; they can only be from before the stream was compacted."""
    batches_without_horizon: int
    """Batches with tombstones that stay for longer than `delete_retention_ms`: a delete horizon would have made the
    batch larger than `max_batch_bytes`."""
    batches_above_limit: int
    """Batches that are larger now than `max_batch_bytes`, though they lost records: their producer compressed them
    better than is possible here."""
