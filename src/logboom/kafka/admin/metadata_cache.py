"""The encoded topics of Metadata responses, kept until the stream changes.

Clients refresh their metadata every few minutes and on every error, mostly to be told what they know already, and
encoding ten thousand partitions takes tens of milliseconds of the event loop. So the bytes of each stream are kept per
response version. This module knows streams, the view of the cluster and the wire format, and no request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from logboom.base.ids import BrokerId, StreamId
from logboom.kafka.admin.operations import TOPIC_OPERATIONS, authorized_operations
from logboom.kafka.errors import error_code
from logboom.kafka.wire.messages import make, nested, response_class
from logboom.kafka.wire.writing import encode

if TYPE_CHECKING:
    from logboom.broker.catalog import Catalog
    from logboom.kafka.cluster.view import ClusterView
    from logboom.metadata import Stream

METADATA: Final = 3
"""The API's key."""

_Variant = tuple[int, bool]
"""What else the bytes of a stream depend on: the response version, and whether it names authorized operations."""


class MetadataCache:
    """One server's cache.

    An entry is valid as long as the version of the stream, or of the whole image, is the same, which changes of leaders
    raise too, and the same brokers are there: a replica on a broker that is gone is offline, and a leader none.
    """

    def __init__(self, catalog: Catalog, cluster: ClusterView) -> None:
        self._catalog = catalog
        self._cluster = cluster
        self._there: tuple[frozenset[BrokerId], frozenset[BrokerId]] = (frozenset(), frozenset())
        self._streams: dict[_Variant, dict[StreamId, tuple[int, bytes]]] = {}
        self._all: dict[_Variant, tuple[int, bytes]] = {}

    def stream(self, stream: Stream, version: int, *, operations: bool) -> bytes:
        """One stream as an element of the response's `topics`; `operations` includes its authorized operations."""
        self._look()
        known = self._streams.setdefault((version, operations), {})
        found = known.get(stream.id)
        if found is not None and found[0] == stream.version:
            return found[1]
        if len(known) > len(self._catalog.streams()):
            known.clear()  # some of these streams were deleted; the others are encoded again when asked for
        data = bytes(encode(_describe(self._cluster, stream, version, operations)))
        known[stream.id] = (stream.version, data)
        return data

    def all(self, version: int, *, operations: bool) -> tuple[int, bytes]:
        """The number of all streams, and their elements of `topics` one after the other."""
        self._look()
        image = self._catalog.image
        found = self._all.get((version, operations))
        if found is None or found[0] != image.version:
            data = b"".join(self.stream(stream, version, operations=operations) for stream in image)
            found = self._all[version, operations] = (image.version, data)
        return len(image.by_name), found[1]

    def _look(self) -> None:
        """Forget everything if the set of brokers has changed."""
        alive, lost = there = self._cluster.alive, self._cluster.lost
        if alive is not self._there[0] or lost is not self._there[1]:
            self._there = there
            self._streams.clear()
            self._all.clear()


def _describe(cluster: ClusterView, stream: Stream, version: int, operations: bool) -> Any:
    cls = response_class(METADATA, version)
    part_cls = nested(cls, "topics", "partitions")
    return make(
        nested(cls, "topics"),
        error_code=error_code(None),
        name=stream.name,
        topic_id=stream.id,
        is_internal=stream.internal,
        partitions=tuple(_partition(cluster, part_cls, stream, index) for index in range(stream.partitions)),
        topic_authorized_operations=authorized_operations(TOPIC_OPERATIONS, requested=operations),
    )


def _partition(cluster: ClusterView, part_cls: Any, stream: Stream, index: int) -> Any:
    view = cluster.partition(stream, index)
    return make(
        part_cls,
        error_code=error_code(view.error),
        partition_index=index,
        leader_id=view.leader,
        leader_epoch=view.assignment.leader_epoch,
        # Consumers go to a copy that the leader names only if it is among these (Java's Cluster.nodeIfOnline).
        replica_nodes=view.assignment.holders,
        isr_nodes=view.assignment.isr,
        offline_replicas=view.offline_holders(cluster.alive),
    )
