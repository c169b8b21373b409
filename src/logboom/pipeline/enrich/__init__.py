"""Tables that events are enriched from: where they come from, the versions of them, and the work on columns.

`sources` reads a table of a pipeline's file (CSV, Parquet, JSON over HTTP or from a file, the newest record of each
key of a stream); `store` keeps each version of it as a file under its hash, so that a batch that is done again uses
the table that it began with; `lookup` opens such a file on an executor, once per process, and finds the rows of a
batch's keys. MaxMind's files are kept and opened as they are. Must not know Spark, nor which pipeline asks.
"""
