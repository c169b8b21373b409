"""State that a pipeline must keep across restarts: small files below its checkpoint directory. After a crash each file
is either old or new, never partial.

    pipeline.json        which pipeline the checkpoint belongs to (`owner`)
    lock                 held by the process that runs it (`files.exclusive_lock`)
    streams.json         ids of the source streams: stored offsets do not apply to a recreated stream
                         (`stream_identity`)
    starts.json          how often the router was started with the same batch unfinished (`unfinished_starts`)
    pins/batches, plans  which plan each batch runs with, the positions of its dials, and the end offsets of its output
                         streams before it (`batch_plans`)
    state/               the state of transforms after each batch (`states`)
    dials.json           what was read of the control stream of dials, and up to which offset; all of it is in the
                         stream too
    ledger/              counts of each batch, and their totals (`ledger`)
    router/, deliveries/NAME/query   Spark's own checkpoints of the queries (read by `spark_log`, written by Spark)
    deliveries/NAME/     the offsets at which a delivery began, how often it started with the same batch, and its
                         identity in an archive
    dead-letters/        which dead letters were retried

`keeping` decides where the checkpoint is kept: only on the disk to which it is written, or also in a `bucket`.

Logboom writes each of its files under a temporary name, syncs it, renames it, and syncs the directory
(`files.write_durably`). The order of writes is essential: a pin is durable before the first record of its batch is
written; a ledger is written after the last record. Must not know Spark's API, the log or sinks.
"""
