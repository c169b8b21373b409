"""Row 4: messages that services publish on NATS, taken into streams.

A message's way:

    link        the connection to NATS reads what has arrived and hands over runs of messages, by subscription
    ingress     each becomes a record of a partition, all of a run that belong to one partition in one call
    broker      appends, flushes, commits: the same path as for producers of Kafka
    ingress     the outcome of each goes to its reply subject, all that commit together in one write

Rooms, lowest first; each imports only those before it:

    config, metrics   settings and counters
    wire/             pure: what is in a message and in an ack (headers, envelopes, JetStream's JSON)
    link/             the connection that is kept up, and subscriptions on it
    ingress/          which subscriptions this broker holds, what becomes of a message
    recording/        requests to services, and their replies, recorded into streams
    front_end         start and stop

Subscriptions follow leaderships: a broker holds those of the partitions that it leads (`ingress.plan`). NATS cannot be
made to wait and keeps nothing, so whatever cannot be taken is refused on its reply subject, or counted as dropped by
reason where it has none. Must not know the Kafka server, the log's files, nor how a broker commits.
"""
