"""Runs a pipeline: one query for the router, one for each sink, and a loop that monitors them.

`runner.Runner` controls a run: it waits for the streams, starts Spark, takes the checkpoint's lock, prepares everything
and starts the queries. Then, twice a second, it shows progress, trims edges, and restarts failed queries. States, as
`progress` shows them: waiting, starting, running, reloading, stopping, stopped. An edited file is loaded between two
batches (`reloading`): the queries end as at a stop, and start again with the new plan in the same session.

One batch of the router (`router.Router._batch`, called by Spark's foreachBatch on the driver):

1. `batch_planner` chooses its plan and pins it durably, with the ends of all output streams;
2. `execute.flow` builds the rows; executors parse, mask, route, and write the records to the log themselves;
3. each task's counts come back as one row; they must balance, and `checkpoint.ledger` keeps them;
4. Spark commits the batch's offsets in its own checkpoint.

After a crash at any step the batch is not committed, and Spark runs it again with the same offsets. Records that it
wrote before are written again, with the same ids. Deliveries (`delivery`) read the streams that the router wrote for
their sinks (the edges), each with its own query and checkpoint, so that a failing or hanging sink does not delay
others.

Threads: the runner's loop on the caller's thread, one Spark thread for each query, and Spark's listener thread. They
share only `progress` and the stop event. `dead_letters`, `dry_run` and `tap` work without Spark, for the command line.
`replay` makes the pipeline of a replay, which runs like any other; if it reads an archive, `archive_loader` loads that
first.

This package must not know how a row is parsed or masked, what a particular sink does, or what SQL means.
"""
