"""The embedded consumer protocol, as far as a coordinator reads it: the streams that a subscription names.

The metadata of a member is opaque to the coordinator but for this prefix, which all versions share
(ConsumerProtocolSubscription v0). Metadata that does not parse counts as unknown, not as an error.
"""

from logboom.groups.errors import GroupRecordError
from logboom.groups.wire import GroupRecordReader

CONSUMER_PROTOCOL_TYPE = "consumer"


def subscribed_streams(metadata: bytes) -> frozenset[str] | None:
    """Streams named in a subscription; None where the bytes are not one."""
    reader = GroupRecordReader(metadata)
    try:
        if reader.i16() < 0:
            return None
        return frozenset(reader.string(flexible=False) for _ in range(reader.count(2, flexible=False)))
    except GroupRecordError:
        return None
