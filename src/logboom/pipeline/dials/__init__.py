"""Changes of dials while a pipeline runs (who, which, why and for how long), in a compacted stream of the log.

`changes` is pure: the changes of dials as records, which of them are in effect at a given time, and which are to be
removed. `control` reads and writes the stream; `rejections` reports invalid records. `logboom.pipeline.plan.dials`
defines what a dial is and how it changes a plan. Must not know Spark, batches or files.
"""
