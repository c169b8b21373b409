"""One segment: a file of record batches and its sparse index.

A log is a row of segments, each named by the offset of its first record. All but the last are complete (`end` is the
base of the next one) and never change; the last one is appended to. `Segment` puts the parts together:

- `directory`: the place of its files, which is renamed when the stream is deleted
- `file`: the `.log` file, its handle, its length in batches and the room reserved after them
- `scan`: walks from batch to batch by their headers; `walker` does so past damage and reports it
- `checked`: reads from batch to batch with everything checked, for `logboom log verify` and for scrubbing
- `sparse_index`, `index_file`: where batches lie, in memory and in the `.index` file; every entry is checked when used
- `reader`: whole, checked batches from an offset or a position on

A segment knows positions in its own file. It must not know which other segments there are, how far the log is durable,
or which producers wrote to it: that is the log's.
"""

from logboom.storage.segment.checked import Checked, CheckedBatch, SegmentCheck
from logboom.storage.segment.directory import LogDirectory
from logboom.storage.segment.scan import BadBatchError, EpochAt, NotCachedError, batch_fault, walk_checked
from logboom.storage.segment.segment import INDEX_SUFFIX, LOG_SUFFIX, Segment, file_stem
from logboom.storage.segment.sparse_index import NO_TIME, SparseIndex, last_entry
from logboom.storage.segment.walker import UNREADABLE

__all__ = [
    "INDEX_SUFFIX",
    "LOG_SUFFIX",
    "NO_TIME",
    "UNREADABLE",
    "BadBatchError",
    "Checked",
    "CheckedBatch",
    "EpochAt",
    "LogDirectory",
    "NotCachedError",
    "Segment",
    "SegmentCheck",
    "SparseIndex",
    "batch_fault",
    "file_stem",
    "last_entry",
    "walk_checked",
]
