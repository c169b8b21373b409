"""The way to NATS: one connection, kept up, with its subscriptions.

    frames        bytes from a server, read in bulk into deliveries and notices; pure
    commands      what a client says to a server; pure
    credentials   who this client is: password, token, key, credentials file; secrets are read from files
    servers       where servers are, and which is tried next
    dialing       makes connections: connect, TLS, log-in
    connection    one connection: greeting, TLS, log-in, reading, pings, what waits to be sent
    overlap       what two connections bring of the same subscriptions, each message once; pure
    changeover    from a connection to one with another server, without a gap
    link          the connection that is kept up: dials again after a pause, and subscribes anew

Knows NATS's client protocol and nothing of streams. It is not the client library: reading with that costs four times
the time for each message (docs/decisions/0029-nats.md).
"""
