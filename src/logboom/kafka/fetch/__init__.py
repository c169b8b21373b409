"""Fetch: read, wait if that is not enough, answer.

`fetch` is one request's life. `partition_fetch` is one of its partitions, with the byte budget they share. `sessions`
remembers what a consumer fetches, so that requests and responses carry changes alone (KIP-227). `purgatory` lets
fetches wait for their partitions. `reply_budget` bounds the memory of responses that slow peers have not read.
`response` encodes. `services` is what the fetches of one server share. Nothing here knows a connection or a handler.
"""
