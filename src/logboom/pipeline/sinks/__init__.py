"""Where events leave the pipeline: one file (or package) for each kind of sink.

A kind of sink is a module of this package with a `SINK`: its name in a pipeline's file, the keys it takes, how these
become a node of the plan, and how the sink is opened when the pipeline runs (see `base.SinkType`). `registry` collects
them, so a new sink is one new file here and a section in docs/sinks.md. `repeats` has what sinks share whose product
knows no event ids: which events of a batch were delivered before.

A sink is served by a delivery (`logboom.pipeline.run.delivery`): a streaming query that reads the sink's edges from the
log and passes each batch to the sink's `SinkWriter`. It repeats a failed batch until the writer succeeds or the
attempts are used up. So a sink gets each batch at least once; it may use the batch number or the origins in the events
to drop repeats. The one exception is a `stream` on the pipeline's own log, which the router writes without a delivery
(`Sink.log_output`).

Importing a sink must be cheap, because `pipeline check` imports all sinks: Spark and Arrow are imported when a sink is
opened. Sinks must not know queries, attempts, other sinks or the router.
"""
