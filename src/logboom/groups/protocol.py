"""What the coordinator may know of the embedded consumer protocol: the streams a subscription names.

The metadata of a member is opaque to a coordinator but for this prefix, which all versions share
(ConsumerProtocolSubscription v0). Anything that does not parse is simply not known.
"""

from logboom.groups.errors import GroupRecordError
from logboom.groups.wire import Reader

CONSUMER_PROTOCOL_TYPE = "consumer"


def subscribed_streams(metadata: bytes) -> frozenset[str] | None:
    """Streams named in a subscription; None where the bytes are not one."""
    reader = Reader(metadata)
    try:
        if reader.i16() < 0:
            return None
        return frozenset(reader.string(flexible=False) for _ in range(reader.count(2, flexible=False)))
    except GroupRecordError:
        return None
