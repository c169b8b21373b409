"""The work of the transform `reshape` on whole Arrow batches: attributes renamed, removed, cast and flattened,
fields set.

`edits` changes one decoded object of attributes, `batch` applies the edits to the rows that need them and takes the
values that were computed for `set`. Must not know how a value is computed, nor Spark.
"""
