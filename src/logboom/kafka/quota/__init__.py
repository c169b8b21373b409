"""Client quotas (KIP-13, KIP-124, KIP-219): bytes produced and fetched, loop time, and new connections per second.

`meter` is the arithmetic of one quota. `clients` keeps the meters of all clients and addresses and takes changes of the
quotas. `timed` measures handlers that run in several steps. Making a client wait is the connection's part
(`connection.throttle`); the throttle time in a response comes from `wire.encoded`.
"""
