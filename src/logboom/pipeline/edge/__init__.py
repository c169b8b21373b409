"""Between the pipeline and the log: rows become records, records are written in order, edges are read and kept short.

An edge is an output of the graph that a sink behind a delivery reads; it is a stream of the log named after the
pipeline. On executors, `emitter` takes the rows of a task to `record_encoder`, which makes record batches of them
column by column (`record_columns`; `event.json` writes the events), and on to `log_writer`, an idempotent producer with
one batch under way in each partition. So every attempt at a batch leaves a prefix of its records in each partition, and
a reader removes exactly the repeats by dropping records that are not above the highest offset of origin seen. `letters`
writes and reads complete dead letters, in parts if one record cannot hold a letter; `dead_letter_task` does it for a
batch that a sink refused.

On the driver, `streams` describes and creates streams (Kafka's admin client), `reading` reads bounded ranges, and
`trimming` deletes records of edges that every delivery has durably read.

Must not know Spark, SQL or how rows were computed.
"""
