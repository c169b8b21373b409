"""Acks of messages that are stored, as they are published on the reply subjects. Pure."""

from collections.abc import Sequence

from logboom.nats.link import commands
from logboom.nats.wire.acks import ack


def acks_of(stream: str, replies: Sequence[bytes], offsets: Sequence[int]) -> list[bytes]:
    """What is sent to those who want it of messages that were stored at these offsets; none of them is a duplicate.

    >>> acks_of("orders", [b"a", b"", b"b"], [7, 8, 9])
    [b'PUB a 27\\r\\n{"stream":"orders","seq":8}\\r\\n', b'PUB b 28\\r\\n{"stream":"orders","seq":10}\\r\\n']
    """
    if not any(replies):
        return []
    first = ack(stream, min(offsets))
    if len(first) != len(ack(stream, max(offsets))):
        return [commands.publish(reply, ack(stream, at)) for reply, at in zip(replies, offsets, strict=True) if reply]
    # All are of one length, so only subject and number differ.
    template = b'PUB %%b %d\r\n{"stream":"%b","seq":%%d}\r\n' % (len(first), stream.encode())
    return [template % (reply, at + 1) for reply, at in zip(replies, offsets, strict=True) if reply]
