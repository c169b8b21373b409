"""Repeats among events, over all partitions and batches: `seen` remembers fingerprints for the length of a window,
`repeat_counts` how often each was repeated.

Pure functions over columns and the tables of a state; the transform `logboom.pipeline.transforms.dedupe` says what a
key is. Must not know files, shards or Spark.
"""
