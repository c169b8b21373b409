"""Row 3: the shell of one broker. It owns partitions, threads and the data directory, and drives the pure cores.

The packages below (storage, replication, metadata, groups) hold state and rules; they start no thread and read no
clock. This package calls them, performs what they return, and offers the result to the front ends (Kafka, NATS), which
translate a protocol into calls. It knows no protocol: no request, no connection, no error code.

What a front end calls. `Broker.start` gives an object with narrow parts, and a front end uses these:

    catalog        which streams exist, quotas, settings changed at run time; and the commands that change them
    cluster_admin  moves replicas, elects leaders, drains and removes brokers
    replicas       the partitions: find one, then append, read, watch it
    publishing     appends for front ends whose publishers send messages and not batches; refuses where others wait
    groups         consumer groups: join, sync, heartbeat, commit, ...
    advisories     notes what went wrong where no client could be told
    producer_ids   ids for idempotent producers
    quotas         what each client has used of its quotas, over all front ends
    health         what is offline, and why the broker is not ready
    flusher        whether so much waits for the disk that appends should wait too (back pressure)

Threads. There is one event loop, and all state of this package belongs to it. Beside it run the flusher's thread (one
per log dir, with a few helpers for parallel syncs), which writes, syncs and changes files; threads for reads that are
not in memory; threads that open and remove directories; and one for key compaction, which has a process do the work,
and the flusher's thread put the new segments in place. A thread gets a function and reports back to the loop with one
call. Only the log of a partition has a lock, because the flusher's thread and the loop both use it.

The produce path. One turn of the loop is the unit of group commit:

    the loop's turn       the loop reads all sockets that have bytes. A front end calls Partition.append_run for each
                          run of batches; the partition queues it and enqueues itself at the flusher. Nothing is
                          checked yet.
    end of the turn       the flusher drains every partition that was enqueued (call_soon; earlier above 512 KiB).
    stage                 AppendQueue.drain checks the batches, gives them offsets and the leader epoch, and stages them
                          in the log: in memory, one piece for all that arrived in the turn. Each batch succeeds or
                          fails by itself. Acks of 0 are answered here.
    hand over             what was staged in the turn goes to the flusher's thread as one round. It takes all rounds
                          that queued up while it was syncing as one: the more load, the fewer syncs per append.
    flush                 the thread writes each log of the round and syncs it (not for `logboom.flush=none`), and
                          reports all outcomes to the loop in one call. An error is an outcome too: disk full takes the
                          staged batches back and the next append is tried; a failed sync takes the whole log dir
                          offline and is never repeated, because the kernel may have dropped the pages.
    replication step      Partition.flushed tells the replication core that this replica's durable end moved. It
                          answers with effects; HW is the minimum durable end over the in-sync replicas. Where there
                          is one replica, HW moves at once; else when the fetches of followers say that they have it.
    HW moved              appends that wait for commit (acks=-1) are answered, in the order of their offsets.
    purgatory             callbacks set with Partition.watch are called; delayed fetches wait behind them.

The read path. Reads stop at HW. What is in memory is read on the loop, without decoding; everything else goes to a
reader thread. A read is shared by all consumers that ask for the same offset within a second or two.

Metadata. A change is a command of `logboom.metadata`, which turns the immutable image into records. `catalog` then does

    prepare    make the directories of new partitions, durably
    commit     make the records durable
               replace the image
    apply      let partitions, settings and groups follow the delta

one change at a time. `Broker.apply` fixes the order in which the delta reaches the parts: settings, partitions, groups.
The commit goes through a port: a local log now, a Raft group when there are several brokers. A broker then applies
deltas that it did not command itself, which is why `replica_manager` follows deltas and nothing else. See
docs/decisions/0014-broker-rooms.md.

Roles. A partition is a log and this broker's role in it. `disk.log_manager` opens or creates the log, in no role: it
takes no appends and shows what was known to be committed. `replica_manager` then gives it the role that the image says,
any number of times: lead, follow or rest (`partition.role`). A stream without assignments is led by this broker alone,
in an epoch one above the last.

The replication path. A follower's records come the other way into the same pieces:

    fetch                 Follower asks through `replication.fetcher`; the leader's `replication.serving` answers with
                          batches that are written there, synced or not, or with the place where the two logs part.
    append                the log takes them as they are, and the partition enqueues itself at the flusher as above.
                          The next fetch leaves at once.
    flushed               the new durable end is told to the leader, whose HW moves with the slowest in-sync replica.
                          Readers of the copy see up to the leader's HW, as far as the copy is safe.

Start: lock the data directory, recover the metadata, recover every partition and lead it, load the groups in the
background. Stop, in this order: groups resign, running changes of metadata end, appends are refused, the flusher
finishes, logs are closed cleanly, the lock is given back. After a crash the start recovers instead; nothing else
differs.

Rooms, lowest first; each imports only those before it:

    config, metrics, runtime, peers, group_commit   settings, counters, the ports to the machine and to other brokers,
                   the contract of group commit
    quorum         the group that agrees on metadata, as it is described to people
    quotas         how much clients have used of their quotas
    partition/     one partition: append queue, leader, acks, reads, deletion of old records
    disk/          the flusher, the data directory, directories of partitions, background work on logs
    raft/          the consensus group of the metadata on this broker: its files, and the driver of its node
    control/       the controller and the way to it: commands, registration, leases, members of the group
    metadata_state the image, made of the group's committed entries; what follows it
    cluster_identity  which cluster a data directory belongs to: founded on request, or joined
    registrar      how a process gets registered, through the controller or any other broker
    cluster        this broker as a member of its cluster: how the group, control and the registration are wired
    stream_creation   new streams as commands, many of them in one
    catalog        the image and the commands on streams, settings and quotas as front ends see them, producer ids
    cluster_admin  the commands on replicas, leaders, brokers and the metadata level
    assignments, role_keeper, lost_replicas   what the image says of this broker's partitions, how they take these
                   roles, and what becomes of copies that have lost records
    replicas       the partitions of this broker, by name and by id
    replica_manager   keeps them as the image says: opens, makes and drops them
    metadata_view  the image in force, for those who only read it
    internal_streams  the streams that the cluster keeps for itself, as the two services below use them
    log_ends       how far the logs of replicas go, for the controller that has to choose among them
    replication/   fetches between brokers, and proposals of in-sync replicas
    groups/        coordinators of the consumer groups that this broker leads, on `__consumer_offsets`
    advisories/    what went wrong without a client that could be told, as records of `__advisories`
    health         what is offline and why
    broker         wiring, start, stop
    publishing     messages from front ends without batches: quotas and back pressure, then a partition's publications
    limits         how near each limit is, for /metrics
"""
