"""One connection: from bytes to handlers, and from replies to bytes in the order of the requests.

    connection      asyncio's callbacks, ticks, the end
    frames          bytes -> frames
    state           phases and pauses, without sockets: read this first
    turn            what begins, what is sent, whether the socket is read
    dispatch        frame -> header, client, route, body -> handler
    inflight        requests that have begun, until their replies leave
    throttle        waiting for a quota; what was used is counted in broker.quotas
    timed           the time of a handler that runs in several steps, for a quota
    deadlines       waiting for the peer
    receive_budget  memory of requests that have not begun
    request_budget  limits on requests over all connections
    registry        all connections; those that wait for others; stopping
    admission       which connections are accepted
    services        what connections share

`connection` calls the others and is called by asyncio; `turn`, `dispatch` and `inflight` call it back through a
protocol each, to close it. A connection never looks into a request's body, and a handler never sees a connection: what
handlers get of it is a value that is equal for requests of one connection.
"""
