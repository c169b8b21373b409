"""Tables with which events are enriched: their sources, their versions, and the lookups on columns.

`sources` reads a table of a pipeline's file (CSV, Parquet, JSON over HTTP or from a file, the newest record of each key
of a stream); `store` keeps each version of a table as a file named by its hash, so that a repeated batch uses the
version with which it began; `lookup` opens such a file on an executor, once per process, and finds the rows for a
batch's keys. MaxMind's files are stored and opened unchanged. Must not know Spark, nor which pipeline uses a table.
"""
