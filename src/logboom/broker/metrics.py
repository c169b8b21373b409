"""Counters of one broker: plain ints, incremented where something happens and read by /metrics.

There is no lock, because each counter is written by one thread only.
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
    """Appends that were answered with an error, at once or at commit."""
    conditions_compared: int = 0
    """Conditions of records that were compared with the latest record of their key."""
    conditions_failed: int = 0
    """Those that did not hold, or could not be decided."""
    conditions_scanned_bytes: int = 0
    """Bytes that were read to decide them."""
    duplicate_messages: int = 0
    """Published messages that were in the log already, by their ids."""
    message_ids_read_bytes: int = 0
    """Bytes that were read for the ids of messages, which a new leader does before it takes the next one with an id."""
    message_ids_forgotten: int = 0
    """Ids that were forgotten before their time, since those of all partitions took too much memory."""
    message_ids_reloads_cut: int = 0
    """Times that less of a log was read for ids than they are to be remembered for."""
    reads_cached: int = 0
    """Reads answered from memory, on the loop."""
    reads_shared: int = 0
    """Reads answered with batches that were just read for another consumer, or read ahead."""
    reads_ahead: int = 0
    """Reads made ahead of a consumer's next fetch."""
    reads_disk: int = 0
    """Reads that went to a thread because they were not in memory."""
    read_bytes: int = 0
    replicated_bytes_in: int = 0
    """Records that were copied from leaders."""
    replicated_bytes_out: int = 0
    """Records that were given to followers."""
    throttled_bytes_in: int = 0
    """Those of them that were copied under the throttle of followers."""
    throttled_bytes_out: int = 0
    """Those given to followers under the throttle of leaders."""
    damaged_reads: int = 0
    """Reads that found a damaged batch."""
    disk_full: int = 0
    """Flushes that failed because the disk was full."""
    no_handles: int = 0
    """Flushes that failed because no file handle was left."""
    flush_rounds: int = 0
    """Group commits. Written by the flusher."""
    inline_flush_rounds: int = 0
    """Those of them that were written on the loop and synced beside it, without the flusher's thread."""
    flushed_partitions: int = 0
    """Partitions written, summed over all group commits. Written by the flusher."""
    flush_ns: int = 0
    """Time spent in group commits, in nanoseconds. Written by the flusher."""
    metadata_commits: int = 0
    compactions: int = 0
    """Runs of the log cleaner over one log."""
    compacted_read_bytes: int = 0
    """Bytes that it read."""
    compacted_written_bytes: int = 0
    """Bytes that it wrote, of those that stay."""
    compacted_away_records: int = 0
    """Records that it removed."""
    scrubbed_bytes: int = 0
    """Bytes that the scrubber read and checked."""
    scrub_damages: int = 0
    """Damaged places that it found, one that is still there again in each pass."""
    segments_deleted: Counter[str] = field(default_factory=Counter)
    """Deleted segments by reason: retention, records (DeleteRecords) or damage (in __consumer_offsets)."""
    segment_bytes_deleted: Counter[str] = field(default_factory=Counter)
    """Bytes of deleted segments, by the same reasons."""

    advisories: Counter[str] = field(default_factory=Counter)
    """What was noted for people to know, by type (`broker.advisories`)."""
    advisory_records: int = 0
    """Records about them that were written, one for all of a kind that a second has brought."""
    failed_advisory_writes: int = 0
    """Attempts to write some that failed; they are written later."""

    def as_dict(self) -> dict[str, int]:
        """All single numbers by name."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        return {name: value for name, value in values.items() if isinstance(value, int)}
