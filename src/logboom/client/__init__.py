"""Row 3: what every client of the log shares, below the collector, the router and the benchmarks.

A client is three pieces: `messages` builds the requests of a producer and reads their answers, `frames` puts requests
into frames with correlation ids, `link` owns one non-blocking connection and matches answers to requests in order.
`codes` says what a broker's error code means for a batch of an idempotent producer (KIP-98): done, retry, retry after
asking for the leader, or fatal; `producer` is the core of an idempotent producer, which keeps sequences and decides
what is sent again; `partitioner` says which partition a key belongs to. Everything but `link` is pure.

It knows records and base alone: no broker, no storage, no librdkafka. It speaks plaintext; where TLS or SASL
is configured, librdkafka is used instead.
"""
