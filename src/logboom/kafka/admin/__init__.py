"""What the administration APIs share: finding streams and partitions, settings as Kafka describes and alters them, the
operations that clients are allowed, and the encoded streams of Metadata responses. It takes a broker, never a request's
context.
"""
