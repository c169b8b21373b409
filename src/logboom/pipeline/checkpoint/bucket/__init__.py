"""A checkpoint in an object store: a log of bundles there, and a working directory here that is made from it.

All code that reads and writes a checkpoint uses the working directory, as if it were a checkpoint on disk. The bucket
is authoritative: at a start the directory is restored from the bucket, so a driver continues where another machine
stopped.

    PREFIX/bundles/NUMBER   what has changed since the previous bundle; numbers are consecutive
    PREFIX/objects/ID       the contents of larger files, uploaded before the bundle that names them
    PREFIX/retried.json     which dead letters were retried; commands write it, also while a pipeline runs

When a bundle is stored, and what must not happen before that:

- after all preparations, before a query starts;
- with the pin of a batch and Spark's offsets of it, before the router writes its first record;
- with the state and the ledger of a batch, before Spark commits it;
- with Spark's offsets of a delivery's batch, before the sink writes any of its events: sinks identify a batch by its
  number;
- with the sink's own notes, before Spark commits the batch; for `iceberg`, `bigquery` and `file` also before each of
  their steps;
- edges are trimmed up to the Spark commits that the bucket has, not up to those on the disk.

So a driver that starts from the bucket repeats at most the unfinished batch of each query, just as a driver that finds
its own directory after a crash. Each query saves its own files (its area), from its own thread, while nothing else
writes them: a bundle never has a later file of an area without the earlier ones.

There is one writer at a time, without a lease and without a clock: a bundle is stored with `If-None-Match: *`, which
succeeds for only one of two drivers. A driver that takes over claims the number after the last one. The previous driver
would use exactly this number next, and claims are kept. So the previous driver is refused, however long it was
suspended, and stops before it commits anything (`bucket_mirror.ReplacedError`).

`bundles` is pure: the contents of a bundle, and the files that result from a sequence of bundles. `objects` is the
store, `hdfs_objects` a store in HDFS. `bundle_log` reads the bundles of a store, `working_tree` is the working
directory, and `bucket_mirror` keeps the store and the directory the same. Must not know Spark's API, the log or sinks.
"""
