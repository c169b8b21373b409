"""Client quotas (KIP-13, KIP-124, KIP-219): how much each client has used, and how long it has to wait for that.

`meter` is the arithmetic of one quota. `clients` keeps the meters of all client ids and addresses and takes changes of
the quotas, which the catalog holds. The broker makes one `ClientQuotaManager` for all front ends, so that a client that
speaks two protocols has one allowance. A front end charges what it serves and makes the client wait in the way of its
protocol; nothing here knows a request or a connection.
"""
