"""Runs a plan's steps over batches of rows: in production on Spark, in the tests of a pipeline's file, and in
benchmarks.

`flow` applies the steps of a layout (`plan.layout`) to a DataFrame. The steps are cut before each condition that only
Spark can evaluate; the steps between two cuts are one `stages.ExecutionStage`, which runs as a single mapInArrow over
Arrow batches: parse, mask, route, and in the last stage emit. `examples` runs the tests of a pipeline's file: through
the same stages in this process, with Spark's expressions in a JVM without a session (`local`), or through the flow on a
session (`on_spark`). Counts travel as rows beside the records, so that the counts of a failed Spark attempt are
discarded with it.

A transform with a state cuts the batch into jobs: the rows before it are kept in files (`exchange`), its shards answer
the requests of the parts, and the rows continue from the files. `stateful` is the driver's side of it.

Must not know streams, sinks or checkpoints.
"""
