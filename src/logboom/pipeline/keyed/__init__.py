"""Decisions about events that depend on other events with the same key, also in earlier batches: the algorithms of the
stateful transforms.

Each module is one pure function, `advance`. Input: settings, the state after the last batch, rows in the order of their
origins, and the batch time. Output: a result for each row, and the new state. The batch time is pinned with the batch,
so a repeated batch has the same result. States are small frozen tables. Rows that wait for a later batch are also a
table, and count as held. Every state has a size limit, and evictions at this limit are counted.

`columns` has common functions: hashes of texts, ranks and sums within groups. `volumes` implements `limit`, `seconds`
and `targets` implement `sample` by key, `traces` implements `tail_sample`, `pairs` implements `join`.

Knows Arrow and an event's columns. Must not know the graph, Spark, clocks, or where a state is kept.
"""
