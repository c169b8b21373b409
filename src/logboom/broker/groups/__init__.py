"""Consumer groups of this broker: the shell around the coordinators of `logboom.groups`.

`service` is what the doors call; it finds the shard of a group. `shard` drives the coordinator of one partition of
`__consumer_offsets`: requests in, effects performed, answers out. `writer` appends a shard's records; the stream is
compacted by key, like any other. `log` reads them back at the start.

All groups are served here, because this broker leads every partition of `__consumer_offsets`. A shard loads by itself
and can resign by itself, so that it can follow the leadership of its partition.
"""
