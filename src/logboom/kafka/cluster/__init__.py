"""The cluster as clients see it: which brokers there are and where they listen, and who leads what.

`view` derives it from the metadata image, which every broker has. `current_leader` adds to a refusal whom to ask
instead (KIP-951). `read_replica` picks a replica near a consumer (KIP-392). Nothing here changes anything, and nothing
waits.
"""
