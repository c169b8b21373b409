"""Row 4: one agent per host, a dumb pipe from log lines to streams.

It knows files, sockets, lines and how a line is never lost on its way; it does not know what a line means. It talks to
the log as any Kafka client does and imports nothing of the broker. Read `agent` first: it holds the loop that moves
batches from the inputs to the delivery and acknowledgements back into the checkpoints.
"""
