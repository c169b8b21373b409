"""Consumer groups of this broker: the shell around the coordinators of `logboom.groups`.

`service` is what the front ends call. `shards` has the shards of this broker, one for each partition of
`__consumer_offsets` that it leads, and follows the leaderships. `shard` drives the coordinator of one partition, for
one leadership: requests in, effects performed, answers out. `writer` appends a shard's records; the stream is compacted
by key, like any other. `log` reads them back when a leadership begins, up to the end that the log has at that moment,
once all of it is committed: what is above the high-water mark may still vanish (KIP-207).

What may a coordinator do that was deposed without knowing it? A commit or an assignment is reported to a member only
once its record is committed (acks=all), and a leader without a lease commits nothing: so no two members are told that
they own a partition in one generation, and no acknowledged offset is missing in the log of the next coordinator. What
is answered from memory (heartbeats, committed offsets, new members) is answered only under a lease, and the lease ends
before the next leader begins. Kafka has no such lease: there a coordinator that is cut off answers from memory until it
hears of its successor.
"""
