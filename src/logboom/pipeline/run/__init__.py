"""Runs a pipeline: one query that routes, one query for each sink behind it, and a loop that keeps them going.

`runner.Runner` owns the life of a run: wait for the streams, start Spark, take the checkpoint's lock, make everything
ready, start the queries, then once in half a second: show progress, trim edges, start again what failed. States, as
`progress` shows them: waiting, starting, running, reloading, stopping, stopped. An edited file is taken between two
batches (`reloading`): the queries end as at a stop, and start again with the new plan in the session that is there.

A batch of the router (`router.Router._batch`, called by Spark's foreachBatch on the driver):

1. `batch_planner` chooses its plan and pins it durably, with the ends of all output streams;
2. `execute.flow` builds the rows; executors parse, mask, route, and write the records to the log themselves;
3. each task's counts come back as one row; they must balance, and `checkpoint.ledger` keeps them;
4. Spark commits the batch's offsets in its own checkpoint.

A crash anywhere leaves the batch uncommitted, and Spark runs it again with the same offsets; what it wrote before is
written again, with the same ids. Deliveries (`delivery`) read the streams that the router wrote for their sinks, the
edges, each with a query and a checkpoint of its own, so that a sink that fails or hangs delays no other.

Threads: the runner's loop on the caller's thread, one thread of Spark's for each query, Spark's listener thread. They
share `progress` and the stop event alone. `dead_letters`, `dry_run` and `tap` work without Spark, for the command line;
`replay` makes the pipeline of a replay, which runs like any other, behind `archive_loader` where it reads an archive.

This package must not know how a row is parsed or masked, what a particular sink does, or what SQL means.
"""
