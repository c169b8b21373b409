"""The one log dir of a broker: when its logs are written and synced, and which directories are in it.

    flusher         group commit, on the loop: rounds, back pressure, outcomes. Implements broker.group_commit
    commit_thread   the thread that writes and syncs, and runs every job that changes a log's files
    inline_commit   small rounds of a few logs without that thread: written on the loop, synced by the kernel beside it
    flush_runner    runs a flush, sorts its errors, and knows which logs are not flushed any more
    failure         the first failure of the log dir, which is final
    rejections      the log lines and counters of a full disk and of exhausted file handles
    maintenance     background work: checkpoints, syncs for flush=none, retention, the watch for a disk that hangs
    log_cleaner     key compaction: one log at a time, within a rate limit
    remote_passes, pass_process, pass_messages   its two passes over a log, in a process of their own
    cleaning_schedule   which log is compacted next
    scrubber        reads and checks all logs, slowly, over and over
    data_dir        the lock, the format version and the identity of the data directory
    log_manager     the logs of partitions: opened, created, closed, deleted
    made_replicas   which partitions were ever made here: a missing one is new or lost
    high_watermarks  how far replicated partitions are committed, saved every few seconds
    clock_note      what time it was last, for the next process
    ownership       which stream a directory belongs to, and whether one without a stream may be removed
    log_dir         what DescribeLogDirs reports

A round goes one of two ways, never both at once, so that the files of a log have one writer at any time:

                        few logs, at most 256 KiB, disk quick of late
              +-------> write on the loop, sync beside it -------------+
    staged ---+                                                        +---> outcome ---> flushed / flush_failed
              +-------> commit thread: write, sync, many logs at once --+
                        everything else, and other systems

Errors sort the outcome. Room or file handles are lacking (RetriableStorageError): the appends of that log are taken
back and it goes on. Any other error of the disk: the log dir takes no more writes for the life of this process, since
after a failed fsync Linux drops the pages and a second fsync would succeed without them. A bug of ours stops one
partition. A disk that hangs is no error: nothing fails, what waits for it waits, everything else is served, and
`/readyz`, a metric and the log say so (`maintenance.watch_disk_stall`).

Start and stop: `data_dir` is opened first and closed last. At the stop the flusher finishes what was enqueued, then the
logs are closed. Where the disk hangs, `app` ends the process after a while; the next start recovers as after a crash.

It must not know requests or protocols, nor what an append contains; a target is a `group_commit.FlushTarget`.
"""
