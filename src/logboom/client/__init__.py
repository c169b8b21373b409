"""What every client of the log has in common: messages, frames, connections, the meaning of errors.

It knows Kafka's protocol from the outside, as any client does. It must not know what is written, nor when to send
again: that is what its users promise.
"""
