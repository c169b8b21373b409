"""Decisions about events that depend on other events with the same key, also in earlier batches: the algorithms of the
stateful transforms.

Each module is one pure function, `advance`. Input: settings, the state after the last batch, rows in the order of their
origins, and the batch time. Output: a result for each row, and the new state. The batch time is pinned with the batch,
so a repeated batch has the same result. States are small frozen tables. Rows that wait for a later batch are also a
table, and count as held. Every state has a size limit, and evictions at this limit are counted.

`grouping` has common functions: hashes of texts, ranks and sums within groups. `volume_limit` implements `limit`,
`token_bucket` and `target_rate` implement `sample` by key, `tail_sampling` implements `tail_sample`, `interval_join`
implements `join`; `held_rows` stores their waiting rows.

Knows Arrow and an event's columns. Must not know the graph, Spark, clocks, or where a state is kept.
"""
