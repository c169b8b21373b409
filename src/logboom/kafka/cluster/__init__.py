"""The cluster as clients are told of it: which brokers there are and where they listen, and who leads what.

`view` reads it from the metadata image, which every broker has. `current_leader` tells a client with a refusal whom to
ask instead (KIP-951). `read_replica` picks a replica near a consumer (KIP-392). Nothing here changes anything, and
nothing waits.
"""
