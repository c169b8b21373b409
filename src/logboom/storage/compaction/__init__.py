"""Key compaction: of all records with one key, the latest stays (KIP-58, KIP-354, KIP-534; Kafka's LogCleaner).

A run (`Cleaning`) has two passes. The first reads the dirty section of the log, what was appended since the last run,
and notes each key and which records are superseded (`dirty_section`, `key_map`). The second goes over all segments up
to the end of that section, oldest first, and writes those anew in which something changes (`record_filter`,
`segment_writer`): small neighbours become one segment, up to `segment.bytes`. What was written takes the place of its
segments in a way that a crash leaves either done or not begun (`swap`). Both passes (`passes`) are given open files and
know nothing of the log's state, so that they can run in another process; what changes the log is `Cleaning`'s.

What stays as it is: the segment that is written to; what is not committed, or younger than `min_compaction_lag_ms`;
records of transactions, and control batches. Offsets never change. A batch that loses records keeps its base and last
offset; runs of offsets of which nothing is left are covered by one empty batch, so that a log has no holes. The batches
that the producer table remembers stay, empty if need be, so that it can be rebuilt.

A tombstone, a record without a value, stays until `delete_retention_ms` after the first run that kept it. That run
notes the time in the batch, the delete horizon.

It knows one log's state. It must not know when a log is to be cleaned, or which of many: that is the broker's.
"""

from logboom.storage.compaction.compaction import Cleaning, LogCompaction
from logboom.storage.compaction.passes import CompactionPlan, FilePasses, Files, Passes, Written, in_this_process
from logboom.storage.compaction.record_filter import FilterCounts
from logboom.storage.compaction.settings import Cleaned, CompactionSettings, Dirt
from logboom.storage.compaction.source import Source

__all__ = [
    "Cleaned",
    "Cleaning",
    "CompactionPlan",
    "CompactionSettings",
    "Dirt",
    "FilePasses",
    "Files",
    "FilterCounts",
    "LogCompaction",
    "Passes",
    "Source",
    "Written",
    "in_this_process",
]
