"""What the broker counts: plain ints that are raised where things happen and read by /metrics.

Knows numbers and their meaning; no library of metrics, no lock (each number has one writing thread).
"""

from collections import Counter
from dataclasses import dataclass, field, fields


@dataclass(slots=True)
class Counters:
    """Totals since the start. All but the flusher's are written on the loop."""

    appended_batches: int = 0
    appended_records: int = 0
    appended_bytes: int = 0
    duplicate_batches: int = 0
    refused_appends: int = 0
    """Appends that were answered with an error, whenever."""
    reads_cached: int = 0
    """Reads answered from memory, on the loop."""
    reads_shared: int = 0
    """Reads answered with what was just read for another, or read ahead."""
    reads_ahead: int = 0
    """Reads made before they were asked for."""
    reads_disk: int = 0
    """Reads that went to a thread because the disk might have been needed."""
    read_bytes: int = 0
    damaged_reads: int = 0
    """Reads that met a damaged batch."""
    disk_full: int = 0
    """Flushes that found no room."""
    no_handles: int = 0
    """Flushes that found no file handle to open a file with."""
    flush_rounds: int = 0
    """Group commits: each serves all partitions that had something staged. Written by the flusher."""
    flushed_partitions: int = 0
    """Partitions written by those rounds. Written by the flusher."""
    flush_ns: int = 0
    """Time spent in those rounds, in nanoseconds. Written by the flusher."""
    metadata_commits: int = 0
    segments_deleted: Counter[str] = field(default_factory=Counter)
    """Old segments that were let go, by why: retention, records (DeleteRecords) or offsets (the broker's own)."""
    segment_bytes_deleted: Counter[str] = field(default_factory=Counter)
    """The bytes of those segments."""

    def as_dict(self) -> dict[str, int]:
        """All single numbers by name."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        return {name: value for name, value in values.items() if isinstance(value, int)}
