"""The observability pipeline: lines out of streams become events, which are masked, sampled, routed and delivered.

A pipeline is one YAML file. `config` compiles it into a `plan`: frozen nodes that know no YAML and no Spark. A plan is
written to disk, so that a batch that has to be repeated is processed as it was the first time.

How a record travels through a batch:

1. `run.router` is a Spark streaming query over all sources. It asks `checkpoint` which plan the batch runs with, and
   lets `execute.flow` build the batch's DataFrame from the plan's `layout`.
2. The layout numbers every place where a record can be. Each row carries the number of its place, `at`, and the steps
   of the layout move it from place to place. Consecutive steps that do not need Spark form a stage (`execute.stages`),
   which runs on an executor as one `mapInArrow` pass over Arrow batches.
3. A kernel pass runs the kernels of transforms (`transforms`), functions from an Arrow batch to an Arrow batch with the
   same number of rows: a `parse` makes an event of each raw record (formats read lines into fields, `normalise` gives
   the fields the common shape of an event, `event` defines its columns and its JSON), a `mask` replaces secrets. A line
   that cannot be read is a row with a reason, never an exception.
4. A layer routes by the conditions of `filter`, `route` and `sample`: simple conditions are evaluated on whole columns
   (`route`), all others by Spark, in the guarded form that `sql` makes of them. Rows are copied where they have several
   destinations.
5. Rows at a final place leave through `edge`: it encodes them as records and writes them to the log, in the same order
   at each attempt, so that readers recognise repeats. Streams of the user, streams of edges for other sinks, and dead
   letters are written here. The counts travel with the records, and the batch must balance (`checkpoint.ledger`).
6. Each sink that the router does not write itself has a delivery (`run.delivery`), a query of its own that reads the
   stream of its edge and hands batches to the sink's writer (`sinks`). A sink that hangs does not delay the others.

A batch may be repeated from its start at any time, after a crash of any part. So nothing in a kernel or a condition may
depend on the clock, on random values or on earlier batches; repeats are recognised by the order of their origins. Only
a transform with a state (`plan.stateful`) depends on earlier batches: there the batch is cut into Spark jobs with files
between them (`execute.exchange`), and it begins with the state that the previous batch left (`checkpoint.states`).

The rooms, lower ones first; a room imports only rooms above it in this list:

- `plan`: the compiled pipeline as frozen nodes, and its layout: the numbered places where a record can be and the steps
  that route it onward. `event`: the columns of an event and its JSON form.
- `findings`: the problems and warnings that compiling a file has found so far.
- `normalise`, `parse`, `mask`, `reshape`, `seal`, `route`: the work on rows, pure functions over Arrow batches. `sql`:
  what SQL a condition may use. `enrich`: tables, their versions, and rows found in them. `stateful`, `templates`:
  decisions on an event that need other events, including those of earlier batches.
- `state`: the common parts of transforms with a state; `dedupe`: repeats by their fingerprints; `aggregate`: metrics of
  events in windows.
- `transforms`: one file for each kind of transform; they register themselves, as formats do in `parse.formats`.
- `execute`: runs a layout's steps over Spark's batches. `spark`: the JVM, the session, readers and writers.
- `hdfs`: files of HDFS, over its HTTP.
- `checkpoint`: files that survive a crash. `edge`: reads records from the log and writes them to it. `dials`: changes
  of the dials of a running pipeline, in a stream of the log.
- `sinks`: one file for each kind of sink; they register themselves. `registry`: reads a stored plan, whose nodes are
  those of `transforms` and `sinks`.
- `config`: from YAML to a plan, with every problem reported at once.
- `suggest`: rules of a parse from sample lines, and `drawing`: a plan as a picture, outside of any run.
- `run`: the life of a running pipeline; start reading at `run.runner`.

The pipeline talks to the log as any client does and knows nothing about brokers. No other package imports pyspark. The
reasons for this design are in docs/decisions/0006-router.md, those for `sql` in 0017-sql-of-conditions.md.
"""
