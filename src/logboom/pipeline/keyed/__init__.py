"""What is decided about an event by others of the same key, earlier batches included: the work of stateful transforms.

Each module is one pure function, `advance`: settings, the state that the last batch left, rows in the order of their
origins and the time of the batch go in; a fate for each row and the new state come out. The time of a batch is pinned
with it, so a batch that is repeated comes out the same. States are small frozen tables; rows that wait for a later
batch are a table too, and count as held. Every state has a bound, and what happens at it is counted.

`columns` has what they share: hashes of texts, ranks and sums within groups. `volumes` is the work of `limit`,
`seconds` and `targets` that of `sample` by key, `traces` that of `tail_sample`, `pairs` that of `join`.

Knows Arrow and an event's columns. Must not know the graph, Spark, clocks, or where a state is kept.
"""
