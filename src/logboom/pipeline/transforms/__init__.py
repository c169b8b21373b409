"""What can be done to records between sources and sinks: one file for each kind of transform.

A kind of transform is a module of this package with a `TRANSFORM` (`base.TransformType`): its name in a pipeline's
file, the keys it takes, its node in the plan, and how the keys become the node, with all that can be wrong with them.
`registry` collects them; nothing else lists them, so a new transform is one new file here and a section in
docs/pipeline.md. Work on columns that is more than a few lines has a room of its own below this one (`parse`, `mask`,
`reshape`).

A node extends one of these classes, mostly of `logboom.pipeline.plan.nodes`, which say how it runs:

- A `KernelTransform` changes rows. Its `run` takes an Arrow batch and gives one of as many rows in the same order.
  Kernels that follow each other run in one pass over a batch (`layout.KernelPass`). One that needs values which only
  Spark can compute (`event_values`) begins a pass, in front of which Spark adds them.
- A `StatefulTransform` (`logboom.pipeline.plan.stateful`) remembers something from batch to batch. It shows shards some
  columns of its rows (`layout.StatefulStep`) and is told where each row goes.
- A `RoutingTransform` decides where events go. Its `outcome` is a tree of choices over conditions in SQL. Those that
  follow each other are folded into one step (`layout.Layer`), whose conditions are answered on whole columns where they
  are simple, else by Spark.

`parse` alone reads raw records, all others read events. Nothing here knows Spark, streams or other transforms.
"""
