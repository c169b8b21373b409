"""The encoded topics of Metadata responses, kept until the stream changes.

Clients refresh their metadata every few minutes and on every error, mostly to be told what they know already, and
encoding ten thousand partitions takes tens of milliseconds of the event loop. So the bytes of each stream are kept per
response version. This module knows the broker's streams and the wire format, and no request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from logboom.base.errors import LogboomError
from logboom.base.ids import StreamId
from logboom.kafka.admin.operations import TOPIC_OPERATIONS, authorized_operations
from logboom.kafka.errors import error_code
from logboom.kafka.wire.messages import make, nested, response_class
from logboom.kafka.wire.writing import encode

if TYPE_CHECKING:
    from logboom.broker.broker import Broker
    from logboom.metadata import Stream

METADATA: Final = 3
"""The API's key."""

_Variant = tuple[int, bool]
"""What else the bytes of a stream depend on: the response version, and whether it names authorized operations."""


class MetadataCache:
    """One server's cache.

    An entry is valid as long as the version of the stream, or of the whole image, is the same. On a single node the
    leaders of a stream's partitions do not change during its life; with several brokers their changes raise it too.
    """

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._streams: dict[_Variant, dict[StreamId, tuple[int, bytes]]] = {}
        self._all: dict[_Variant, tuple[int, bytes]] = {}

    def stream(self, stream: Stream, version: int, *, operations: bool) -> bytes:
        """One stream as an element of the response's `topics`; `operations` includes its authorized operations."""
        known = self._streams.setdefault((version, operations), {})
        found = known.get(stream.id)
        if found is not None and found[0] == stream.version:
            return found[1]
        if len(known) > len(self._broker.catalog.streams()):
            known.clear()  # some of these streams were deleted; the others are encoded again when asked for
        data = bytes(encode(_describe(self._broker, stream, version, operations)))
        known[stream.id] = (stream.version, data)
        return data

    def all(self, version: int, *, operations: bool) -> tuple[int, bytes]:
        """The number of all streams, and their elements of `topics` one behind the other."""
        image = self._broker.catalog.image
        found = self._all.get((version, operations))
        if found is None or found[0] != image.version:
            data = b"".join(self.stream(stream, version, operations=operations) for stream in image)
            found = self._all[version, operations] = (image.version, data)
        return len(image.by_name), found[1]


def _describe(broker: Broker, stream: Stream, version: int, operations: bool) -> Any:
    cls = response_class(METADATA, version)
    part_cls = nested(cls, "topics", "partitions")
    return make(
        nested(cls, "topics"),
        error_code=error_code(None),
        name=stream.name,
        topic_id=stream.id,
        is_internal=stream.internal,
        partitions=tuple(_partition(broker, part_cls, stream, index) for index in range(stream.partitions)),
        topic_authorized_operations=authorized_operations(TOPIC_OPERATIONS, requested=operations),
    )


def _partition(broker: Broker, part_cls: Any, stream: Stream, index: int) -> Any:
    broker_id = broker.identity.broker_id
    error = None
    epoch = -1
    try:
        epoch = broker.replicas.find(stream.name, index).leader_epoch
    except LogboomError as refused:
        error = refused  # its files could not be opened, so it has no leader
    return make(
        part_cls,
        error_code=error_code(error),
        partition_index=index,
        leader_id=broker_id if error is None else -1,
        leader_epoch=epoch,
        replica_nodes=(broker_id,),
        isr_nodes=(broker_id,) if error is None else (),
        offline_replicas=() if error is None else (broker_id,),
    )
