"""Runs a plan's steps over batches of rows: on Spark for production, tests in the file and benchmarks alike.

`flow` lays the steps of a layout (`plan.layout`) over a DataFrame. Wherever only Spark can answer a condition the steps
are cut; what lies between two cuts is one `stages.ExecutionStage`, which runs as a single mapInArrow over Arrow
batches: parse, mask, route, and in the last stage emit. `examples` runs the tests of a pipeline's file: through the
same stages in this process, with Spark's expressions in a bare JVM (`local`), or through the flow on a session
(`on_spark`). Counts travel as rows beside the records, so that an attempt of Spark's that fails takes its counts with
it.

A transform with a state cuts the batch into jobs: the rows in front of it stay in files (`exchange`), its shards answer
what their parts asked, and the rows go on from the files. `stateful` is the driver's side of it.

Must not know streams, sinks or checkpoints.
"""
