"""Between the pipeline and the log: rows become records, records are written in order, edges are read and kept short.

An edge is an output of the graph that a sink behind a delivery reads; it is a stream of the log named after the
pipeline. On executors, `emitter` takes the rows of a task to `record_encoder`, which makes record batches of them
column by column (`record_columns`; `event.json` writes the events), and on to `log_writer`, an idempotent producer with
one batch under way in each partition. So what any attempt at a batch leaves in a partition is a prefix of the whole,
and "drop what is not above the highest offset of origin seen" removes repeats exactly. `letters` writes and reads dead
letters whole, in parts where one record cannot hold them; `dead_letter_task` does it for a batch that a sink refused.

On the driver, `streams` asks and makes streams (Kafka's admin client), `reading` reads bounded ranges, `trimming`
deletes from edges what every delivery has durably read.

Must not know Spark, SQL or how rows came about.
"""
