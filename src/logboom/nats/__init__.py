"""Row 4: messages that services publish on NATS, stored in streams.

The path of a message:

    link        the connection to NATS reads what has arrived and delivers runs of messages, by subscription
    ingress     each message becomes a record of a partition; all of a run for one partition go there in one call
    broker      appends, flushes, commits: the same path as for Kafka producers
    ingress     sends the outcome of each to its reply subject; all that commit together are sent in one write

Rooms, lowest first; each imports only those before it:

    config, metrics   settings and counters
    wire/             pure: the content of a message and of an ack (headers, envelopes, JetStream's JSON)
    link/             one connection that is kept up, and subscriptions on it
    ingress/          which subscriptions this broker holds, what happens to a message
    recording/        requests to services, and their replies, recorded in streams
    front_end         start and stop

Subscriptions follow leaderships: a broker holds those of the partitions that it leads (`ingress.plan`). NATS cannot be
made to wait and stores nothing, so a message that cannot be accepted is refused on its reply subject, or counted as
dropped, by reason, if it has none. Must not know the Kafka server, the log's files, nor how a broker commits.
"""
