"""Row 4: the Kafka server of a broker: frames of the Kafka protocol become calls on the broker. It knows no disk.

The way of a request. All of it runs on one event loop, which never waits: what needs the disk is awaited.

    socket
      | bytes              asyncio reads into a buffer that all connections share, or into a long frame itself
    connection.frames      cuts them into frames; a frame gets memory as its bytes arrive, not as it announces them
      | frames
    backlog                requests of one connection that have arrived whole and have not begun
      | one, or a run      connection.io_cycle begins them in order, as far as states and limits allow
    connection.dispatch    header -> client and route; body -> an entity of kio, by a reader compiled from kio's
      |                    schema that trusts no length (wire.reading)
    handlers, apis         one handler per API: entity -> calls on the broker -> reply
      | reply              at once, as a DeferredReply that the broker's completion sets, or from a coroutine
    connection.inflight    encodes it, and keeps it until the replies to all earlier requests are there: clients match
      |                    replies to requests by their order
    socket                 connection.io_cycle writes all that is ready, once per turn of the loop

Two APIs have most of the traffic and shortcuts on this way. A produce request that differs from an earlier one in its
records alone is recognised by comparing bytes, is not parsed, and is appended together with those after it
(handlers.template_cache, produce.fast_path). A fetch response is a list of the log's own buffers, which are neither
decoded nor copied (fetch.response).

States. A connection is OPEN, REFUSED, HALF_CLOSED, STOPPING or CLOSED, and an open one may be paused for one of five
reasons; connection.state is the whole table. A fetch is read, waits in the purgatory, and is answered (fetch.fetch).

Limits. Everything that a client can make grow has one, with a setting (config) and a row in docs/limits.md. Most are
kept by not reading a socket: TCP then slows the client down, and no request is lost or answered with an error. Where
that cannot help, because the client is not sending but not reading, or sends half a request, the connection is closed
and the reason logged. Counters are in metrics; warnings that clients cause pass the rate-limited log.

Errors. Handlers raise or return LogboomError; errors has the one table from these to Kafka's codes. A request that
cannot be read closes its connection, as in Kafka. An exception that is no LogboomError is a programming error: it
closes its connection too, is logged as an error, and the broker goes on.

Rooms, lowest first; each imports only those before it:

    config, errors, metrics, replies
    wire          the protocol's bytes: reading, writing, kio's schema
    cluster       brokers and leaders as clients are told of them
    admin         what the administration APIs share
    fetch         one fetch, its sessions, the purgatory, its response
    handlers      what an API is: Handler, RequestContext, routes, templates
    produce       the two ways of a produce request, its response
    apis          one file per API
    connection    from bytes to handlers and back
    server        wiring, listening, ticks, stopping

To add an API, add a file to apis; nothing else lists it. To add a setting, add a field to config and read it from
`Current.now` each time, since it may change while the server runs.

What must stay out of here: what a record means, which broker leads what, when something is committed, what is on the
disk. Those are the broker's, because another protocol will be served beside this one.
"""
