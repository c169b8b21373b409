"""Row 2: the log of one partition on disk: segments, indexes, recovery, idempotent producers, leader epochs.

It reaches the disk through `base.ports.Disk` alone. It must not know streams, replicas, clients or the event loop.
"""

from logboom.storage.config import Appended, Damage, LogConfig, Notice, TimedOffset
from logboom.storage.epochs import EpochHistory
from logboom.storage.faults import retriable_error_for
from logboom.storage.files import has_records, is_log, read_owner, write_owner
from logboom.storage.format import FORMAT_VERSION, check_format, claim_format
from logboom.storage.inspect import BatchView, LogTotals, LogView, verify
from logboom.storage.log import PartitionLog
from logboom.storage.open_files import OpenFiles
from logboom.storage.producers import ProducerTable
from logboom.storage.retention import Retention, SegmentFacts, retained_from
from logboom.storage.segment import Segment
from logboom.storage.small_files import read_whole, replace_whole
from logboom.storage.staging import Batch, Staged

__all__ = [
    "FORMAT_VERSION",
    "Appended",
    "Batch",
    "BatchView",
    "Damage",
    "EpochHistory",
    "LogConfig",
    "LogTotals",
    "LogView",
    "Notice",
    "OpenFiles",
    "PartitionLog",
    "ProducerTable",
    "Retention",
    "Segment",
    "SegmentFacts",
    "Staged",
    "TimedOffset",
    "check_format",
    "claim_format",
    "has_records",
    "is_log",
    "read_owner",
    "read_whole",
    "replace_whole",
    "retained_from",
    "retriable_error_for",
    "verify",
    "write_owner",
]
