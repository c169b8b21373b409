"""The settings of a log, the results of its operations, and what it reports."""

from dataclasses import dataclass
from typing import Final

from logboom.base.ids import Epoch, Offset
from logboom.base.units import DAY_MS, GIB, KIB, MIB

MAX_SEGMENT_BYTES: Final = 2**31 - 1


@dataclass(frozen=True, slots=True)
class LogConfig:
    """Settings of one partition's log; may be swapped while it runs."""

    segment_bytes: int = GIB
    """A segment is closed before it would grow above this."""
    max_append_bytes: int | None = None
    """What one append may have at most; a larger one than a segment gets a segment of its own. None is
    `segment_bytes`, as in Kafka."""
    segment_ms: int = 7 * DAY_MS
    """A segment is closed by the first append this long after its first one."""
    index_interval_bytes: int = 4 * KIB
    """Log bytes between two entries of the sparse index."""
    preallocate_bytes: int = 16 * MIB
    """Room reserved ahead of the end of the log, at most; 0 for none."""
    recovery_point_bytes: int = 16 * MIB
    """Log bytes between two recovery points (index and producers saved, unsynced); fewer in a small segment."""
    checkpoint_bytes: int = 64 * MIB
    """Log bytes of one segment between two checkpoints that are synced: what recovery reads, checks and writes again
    after a power failure at most, beside what was not synced itself."""
    producer_expiry_ms: int = DAY_MS
    """An idempotent producer that was silent for this long is forgotten."""
    max_producers: int = 100_000
    """Producers remembered at most; the one silent for longest is forgotten first."""
    max_decompressed_bytes: int = 64 * MIB
    """Limit for opening one batch in a search by time."""

    def __post_init__(self) -> None:
        assert 0 < self.segment_bytes <= MAX_SEGMENT_BYTES
        assert self.index_interval_bytes > 0
        assert self.preallocate_bytes >= 0


@dataclass(frozen=True, slots=True)
class Damage:
    """Bytes below the durable end that are no longer what was written."""

    path: str
    position: int
    offset: Offset | None
    reason: str

    def __str__(self) -> str:
        where = "" if self.offset is None else f" (offset {self.offset})"
        return f"{self.path} is damaged at byte {self.position}{where}: {self.reason}."


@dataclass(frozen=True, slots=True)
class Notice:
    """Something that was repaired, or is going to be; no action needed."""

    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}."


@dataclass(frozen=True, slots=True)
class UnknownStart(Notice):
    """The log begins above offset 0, and nothing is left that says whether what is below was deleted or is lost."""


@dataclass(frozen=True, slots=True)
class Appended:
    """The offsets of a batch; for a duplicate, those of its first copy."""

    base_offset: Offset
    last_offset: Offset
    duplicate: bool = False


@dataclass(frozen=True, slots=True)
class TimedOffset:
    """A record found by time."""

    offset: Offset
    timestamp_ms: int
    leader_epoch: Epoch
