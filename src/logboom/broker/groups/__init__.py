"""Consumer groups of this broker: the shell around the coordinators of `logboom.groups`.

`service` is what the doors call; it finds the shard of a group. `shard` drives the coordinator of one partition of
`__consumer_offsets`: requests in, effects performed, answers out. `writer` appends a shard's records and rewrites the
partition before it grows long. `log` reads them back at the start.

All groups of this broker are served here because it leads every partition. With several brokers a shard will load when
this broker becomes the leader of its partition, and resign when it no longer is.
"""
