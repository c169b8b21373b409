"""Where rows go: one layer of the layout applied to a batch.

`rows.Rows` is a batch with the place of each row; copies share the columns of the row they were made of. `routing`
sends the rows of a layer to their destinations by the values of conditions, which are evaluated here or were evaluated
by Spark before. `conditions` evaluates the simple part of SQL on Arrow columns, with Spark's own three-valued results;
`sample_columns` decides samples by the hash that Spark's `xxhash64` gives. Nothing here knows Spark, streams or what a
place means.
"""
