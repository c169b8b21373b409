"""Dials while a pipeline runs: who turned which, why and for how long, in a compacted stream of the log.

`changes` is pure: the changes of dials as records, which of them hold at a moment, and which are to be forgotten.
`control` reads and writes the stream; `rejections` tells what is wrong with its records. What a dial is, and what it
does to a plan, is in `logboom.pipeline.plan.dials`. Must not know Spark, batches or files.
"""
