"""One partition: its appends, this broker's leadership of it, its reads. Imported module by module.

    replica          Partition: puts the pieces below together; what the front ends and the log manager hold
    append_queue     what was enqueued, and is staged in the log
    append_acks      what was staged, and waits for an ack
    validation       the rules by which a client's batch is taken
    conditions       what a record expects of the latest record of its key, and whether that holds
    key_window       the latest record of each key in the newest part of a partition
    condition_scan   the same of an older part, read in slices on reader threads
    condition_check  puts these together: whether the conditions of a batch can be decided now, and whether they hold
    publications     messages that come without a batch, what their publishers ask for, and what came of them
    id_window        the ids of the newest messages, by which one that is sent again is recognised
    id_scan          the same from the log, read in slices on reader threads
    message_ids      puts these together: whether ids are known now, and which message is in the log already
    header_scan      whether a part of a log has a record with a header of some name
    slices           what the three scans share
    publish_stage    decides about published messages in the order of the log, and makes batches of those it takes
    append_notes     tells the counters and the windows above of each append
    waiters          acks in the order of offsets, watchers; callbacks and nothing else
    replication_port what a partition asks of the replication between brokers
    leader           performs the effects of the replication core where this broker leads: HW, epochs, acks, proposals
    follower         performs them where it follows: takes the leader's batches, cuts the log where the two part
    followed_deletions  deletes from a copy what its leader has deleted
    freshness        how far this copy is behind its leader, and whether readers may still have it
    role             lead, follow or rest, and what each change does to what waits
    reads            committed batches, from memory on the loop, from the disk on threads
    read_cache       recent reads, shared by consumers that ask for the same
    reader_threads   the threads for reads, and how long the oldest one has been running
    deletion         DeleteRecords, retention, and trimming of the broker's own streams
    services         what all partitions of a broker share

A partition is made in no role, around a log that is open: appends are refused and nothing is committed, so nothing can
be read. `Partition.role` is what the metadata changes: `lead` begins a leadership, in which what is durable here is
committed as far as the ISR allows; `follow` copies another broker's log; `rest` does neither. A partition has the same
log, reads and watchers through all of them.

An append passes through these states. It leaves each by exactly one of the arrows, and its callback is called once:

    enqueued --drain--> staged --flush--> safe here --HW moved--> committed
       |                  |                  |
       | invalid,         | no room, no      | ISR below its minimum:
       | refused          | handle, failed   | NOT_ENOUGH_REPLICAS_AFTER_APPEND
       v                  v                  v
     error              error              error

A batch with conditions that memory cannot decide waits between enqueued and staged, with all that are behind it, until
the log has been read (`condition_check`); so does the first message with an id of a leadership (`message_ids`).

acks=0 is answered when it is staged, acks=1 when it is safe here, acks=-1 (all) when it is committed. "Safe here" is
synced, or written for streams with `logboom.flush=none`. What fails at the flush for lack of room is taken back, with
its producers' sequences, so that a retry is no duplicate; after any other failure the partition takes no more appends,
while reads go on.

All of it runs on the event loop, except functions that are given to the reader threads or to the group commit. It must
not know requests, connections and protocols, nor how a flush is done: the flusher is a `group_commit.GroupCommit`
here. The pieces take what they use as arguments, so a test of the append queue needs a log on a simulated disk, and
no broker, thread or socket.
"""
