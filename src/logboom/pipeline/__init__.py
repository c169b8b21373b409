"""The observability pipeline: a YAML file that reads streams, shapes and routes their records, and delivers them.

The way of a record:

    stream -> Spark's Kafka source -> parse, normalise -> mask, filter, sample, route -> the log -> a delivery per sink

Everything from parse to route happens in one pass over Arrow batches in Spark's Python workers, which also write the
result to the log: streams of the user's, streams of edges, dead letters. A sink that is no stream of this log is served
from its edges' streams by a query of its own, so that a sink that fails delays no other.

The rooms, lower ones first; a room imports only rooms above it in this list:

- `plan`: the compiled pipeline as frozen nodes, and its layout: the numbered places where a record can stand and the
  steps that move it. `event`: the JSON form of an event.
- `normalise`, `parse`, `mask`, `route`: the work on rows, pure functions over Arrow batches. `sql`: what SQL a
  condition may use.
- `execute`: runs a layout's steps over Spark's batches. `spark`: the JVM, the session, readers and writers.
- `checkpoint`: files that survive a crash. `edge`: records in and out of the log.
- `sinks`: one file for each kind of sink; they register themselves.
- `config`: from YAML to a plan, with every problem told at once.
- `run`: the life of a running pipeline; start reading at `run.runner`.

It talks to the log as any client does and knows nothing of brokers. It alone imports pyspark.
"""
