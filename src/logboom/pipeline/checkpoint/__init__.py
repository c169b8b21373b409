"""What a pipeline must remember over a restart: small files below its checkpoint directory, each whole after a crash.

    pipeline.json        which pipeline the checkpoint belongs to (`owner`)
    lock                 held by the process that runs it (`files.exclusive_lock`)
    streams.json         ids of the source streams: offsets mean nothing in a stream recreated (`stream_identity`)
    starts.json          how often the router was started with the same batch unfinished (`unfinished_starts`)
    pins/batches, plans  which plan each batch runs with, where its dials stand, and where its output streams ended
                         before it (`batch_plans`)
    state/               what transforms with a state remember behind each batch (`states`)
    dials.json           what was read of the control stream of dials, and up to where; all of it is in the stream too
    ledger/              counts of each batch, and their totals (`ledger`)
    router/, deliveries/NAME/query   Spark's own checkpoints of the queries (read by `spark_log`, written by Spark)
    deliveries/NAME/     where a delivery began, how often with the same batch, and its identity in an archive
    dead-letters/        which letters were retried

Where the whole is kept is `keeping`'s to know: on the disk that it is written to, or in a `bucket` too.

Every file of ours is written beside, synced and renamed, and the directory is synced (`files.write_durably`). Order
matters more than format: a pin is durable before the first record of its batch is written, a ledger behind the last.
Must not know Spark's API, the log or sinks.
"""
