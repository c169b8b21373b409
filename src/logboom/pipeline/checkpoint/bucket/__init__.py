"""A checkpoint in an object store: a log of bundles there, and a working directory here that is made from it.

All that reads and writes a checkpoint uses the working directory, as it would use a checkpoint of its own. The bucket
is the truth: at a start the directory is made as the bucket says, so a driver goes on where another machine stopped.

    PREFIX/bundles/NUMBER   what has changed since the bundle before; numbers follow each other without a gap
    PREFIX/objects/ID       the contents of larger files, uploaded before the bundle that names them
    PREFIX/retried.json     which dead letters were sent once more; commands write it beside a run

When a bundle is put, and what must not happen before:

- behind all preparations, before a query starts;
- with the pin of a batch and Spark's offsets of it, before the router writes its first record;
- with the memory and the ledger of a batch, before Spark commits it;
- with Spark's offsets of a delivery's batch, before the sink writes anything of it: sinks know a batch by its number;
- with what the sink has noted, before Spark commits the batch; for `iceberg`, `bigquery` and `file` also before each of
  their steps;
- edges are trimmed up to the commits of Spark's that the bucket has, not up to those on the disk.

So a driver that begins with what the bucket has does again at most the batch that was under way in each query, as one
does that finds its own directory after a crash. Each query saves its own files (its area), from its own thread, while
nothing writes them: a bundle never has a later file of an area without an earlier one.

One writer at a time, without a lease and without a clock: a bundle is put with `If-None-Match: *`, which one of two
drivers wins. A driver that takes over claims the number behind the last one, which is just the number that the driver
before it would write next, and claims are kept. So that driver is refused, however long it slept, and stops before it
commits anything (`bucket_mirror.ReplacedError`).

`bundles` is pure: what a bundle says and what a row of them comes to. `objects` is the store, `hdfs_objects` one in
HDFS, `bundle_log` reads the bundles of one, `working_tree` is the working directory, `bucket_mirror` keeps the two the
same. Must not know Spark's API, the log or sinks.
"""
