"""Row 2: the log of one partition on disk.

The life of a log
    `PartitionLog.open` recovers it from its directory. The event loop then appends, which gives a batch its offset and
    stages it; the flusher's thread writes what is staged to the last segment and syncs it; consumers read whole batches
    through `log.reader`, from any thread. Retention moves the start of the log up and removes old segments; key
    compaction (`log.compaction`) replaces segments by shorter ones; a follower that differs from its leader cuts its
    end off (`truncate`). `close` leaves nothing for the next open to recover.

Four offsets say how far a log has come, each at most the next:
    log_start_offset   the first offset that can be read; what is below was deleted
    durable_end        everything below survives a power failure: it was written and then synced
    written_end        everything below was given to the operating system; it can be read and survives kill -9
    log_end_offset     (LEO) where the next record goes; what lies between it and `written_end` is staged, in memory

    A batch moves through them: `append` raises the LEO, `flush(sync=False)` raises `written_end`, `flush(sync=True)`
    raises both others. What cannot be written for lack of room or handles is taken back by `abandon_staged`: the LEO,
    the producers and the epochs are then again what they were. After any other error, and any failed sync, the log
    never writes again; reading goes on.

Threads. The event loop and the flusher's thread share the staged batches of a log under one lock, which the flusher
holds while it waits for the disk; the loop takes it only where it need not wait (`inline_writes`) or while the flusher
is idle. Any number of threads read meanwhile: they see tuples that are replaced whole. The index of a segment is read
from the disk by those threads alone, and no lock that a writer needs is held meanwhile, so that a read that hangs holds
up no append. Compaction reads and writes on a thread of its own, or in a process; that a new segment takes the place of
others is a short job of the flusher's thread, under the lock. A read of a replaced segment goes on with its open file.

Files in a directory, named by offsets where they have one (formats: docs/decisions/0002-storage.md)
    N.log           a segment: record batches as they came, with base offset and leader epoch filled in; after
                    compaction some hold fewer records, or none, but each begins where the one before ends
    N.index         where batches lie in it and how new they are, every few KiB; a CRC for each entry
    N.producers     idempotent producers as of offset N: one at the base of each segment, and recovery points between
    leader-epochs   each leader epoch and its start offset; written before the first batch of an epoch is
    durable-end     the checkpoint: durable end, its position, log start, latest epoch; overwritten at every flush
    first-dirty-offset  up to where the log is compacted; may be lost, is never too high
    N-M.cleaned, N-M.swap  a compacted segment for the offsets N to M, being written, and taking its place
    owner.json      which partition this is; written and read by the broker alone

    A new log is not durable but for the name of its directory: ten thousand are made at once. Its first leader epoch
    makes the rest so, before the first batch.
    Only the segments are the log. The rest is auxiliary: checked when read, and made again from the segments.

After a crash
    The checkpoint divides what recovery finds. A bad batch after it is a torn tail, which was never acknowledged, and
    is cut. Before it, a bad batch is damage: it is reported and answers with an error, its offsets stay taken, and
    nothing is cut. Whole batches after the checkpoint are kept, after they were written and synced once more: a sync
    of them may have failed, and the page cache does not say so.

    No order of crashes loses what was durable, because each change is made durable before the next one relies on it: a
    segment's name and the end of the one before it before its first batch, an epoch before a batch of it, a new log
    start before a segment below goes, a shorter end before its batches go, a compacted segment before those it replaces
    go. The tests play short histories with a fault at every single operation of a simulated disk
    (tests/faults/test_disk_steps.py, test_compaction_steps.py).

The modules, each using those above it only
    config, faults, small_files, format          settings and results; errors; auxiliary files; the format's version
    open_files                                   the limit on open files of all logs together
    owner                                        whose log it is
    epochs, producers, checkpoint, first_dirty   what is known beside the batches
    files, snapshots                             names of files; the files of the producer table
    segment/                                     one segment: file, walker, index, reader
    removals                                     old segments whose files are still there
    state                                        `LogState`: all of the above for one log
    staging, plan                                batches placed and not written yet; where segments will end
    compaction/                                  key compaction of a state: two passes, and the swap of segments
    recovery, truncation, writing, reading       what is done with a state
    scrubbing                                    everything durable read and checked, while the log is in use
    inline_writes                                small writes on the event loop, synced beside it
    search, retention                            offsets by time; which segments may go
    log                                          `PartitionLog`: who may call what, from which thread
    inspect                                      a look at a directory that changes nothing, for `logboom log`

It reaches the disk through `base.ports.Disk` alone. It must not know streams, replicas, clients or the event loop.
"""

from logboom.storage.compaction import Cleaned, Cleaning, CompactionSettings, Dirt, LogCompaction
from logboom.storage.config import Appended, Damage, LogConfig, Notice, TimedOffset, UnknownStart
from logboom.storage.epochs import EpochHistory
from logboom.storage.faults import retriable_error_for
from logboom.storage.files import has_records, holds_no_batch, is_known, is_log
from logboom.storage.format import FORMAT_VERSION, check_format, claim_format, format_of, raise_format
from logboom.storage.inspect import BatchView, LogTotals, LogView, verify
from logboom.storage.log import PartitionLog
from logboom.storage.log_start import LogStart
from logboom.storage.open_files import OpenFiles
from logboom.storage.owner import read_owner, write_owner
from logboom.storage.producers import FirstSequence, ProducerTable
from logboom.storage.retention import Retention, SegmentFacts, retained_from
from logboom.storage.scrubbing import Scrub, Scrubbed
from logboom.storage.segment import Segment
from logboom.storage.small_files import frame, read_whole, replace_whole, unframe
from logboom.storage.staging import Batch, Staged, first_copy
from logboom.storage.state import WriteNotifications
from logboom.storage.truncation import DetachedSegments

__all__ = [
    "FORMAT_VERSION",
    "Appended",
    "Batch",
    "BatchView",
    "Cleaned",
    "Cleaning",
    "CompactionSettings",
    "Damage",
    "DetachedSegments",
    "Dirt",
    "EpochHistory",
    "FirstSequence",
    "LogCompaction",
    "LogConfig",
    "LogStart",
    "LogTotals",
    "LogView",
    "Notice",
    "OpenFiles",
    "PartitionLog",
    "ProducerTable",
    "Retention",
    "Scrub",
    "Scrubbed",
    "Segment",
    "SegmentFacts",
    "Staged",
    "TimedOffset",
    "UnknownStart",
    "WriteNotifications",
    "check_format",
    "claim_format",
    "first_copy",
    "format_of",
    "frame",
    "has_records",
    "holds_no_batch",
    "is_known",
    "is_log",
    "raise_format",
    "read_owner",
    "read_whole",
    "replace_whole",
    "retained_from",
    "retriable_error_for",
    "unframe",
    "verify",
    "write_owner",
]
