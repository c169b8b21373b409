"""Which broker to ask instead: a response that refuses a partition carries its leader and the leader's address
(KIP-951).

Clients then continue at once, instead of waiting for new metadata. Tagged fields, encoded by hand like the rest of
Produce and Fetch responses; the tests compare them with kio's reader.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from logboom.base.errors import FencedLeaderEpochError, LogboomError, NotLeaderError
from logboom.base.ids import BrokerId, StreamId
from logboom.kafka.wire import encoding

if TYPE_CHECKING:
    from logboom.broker.catalog import Catalog
    from logboom.kafka.cluster.view import ClusterView, Node

_LEADER: Final = Struct(">iix")
"""Leader, leader epoch, and no tagged fields."""
_I32: Final = Struct(">i")
_NO_TAGS: Final = b"\0"
_ENDPOINTS_TAG: Final = 0


class CurrentLeaders:
    """The leaders that one response names. For versions that have the fields; ask for `endpoints` last."""

    __slots__ = ("_catalog", "_cluster", "_nodes", "_tag")

    def __init__(self, catalog: Catalog, cluster: ClusterView, *, tag: int) -> None:
        """`tag` is that of a partition's current leader in the response."""
        self._catalog = catalog
        self._cluster = cluster
        self._tag = tag
        self._nodes: dict[BrokerId, Node] = {}

    def tags(self, topic: Any, index: int, error: LogboomError) -> bytes:
        """The tagged fields of a partition that is refused, with the leader where that helps."""
        if not isinstance(error, NotLeaderError | FencedLeaderEpochError):
            return _NO_TAGS
        by_id = isinstance(topic, UUID)
        stream = self._catalog.stream_by_id(StreamId(topic)) if by_id else self._catalog.stream(topic)
        if stream is None or not 0 <= index < len(stream.assignments):
            return _NO_TAGS
        assignment = stream.assignments[index]
        node = self._cluster.nodes().get(assignment.leader)
        if node is None or self._cluster.is_lost(node.id):
            return _NO_TAGS
        self._nodes[node.id] = node
        return encoding.tagged(self._tag, _LEADER.pack(assignment.leader, assignment.leader_epoch))

    def endpoints(self) -> bytes:
        """The tagged fields of the response: where the brokers listen that it names."""
        if not self._nodes:
            return _NO_TAGS
        nodes = b"".join(
            _I32.pack(one.id)
            + encoding.string(one.host, flexible=True)
            + _I32.pack(one.port)
            + encoding.compact_nullable(one.rack)
            + _NO_TAGS
            for one in self._nodes.values()
        )
        return encoding.tagged(_ENDPOINTS_TAG, encoding.count(len(self._nodes), flexible=True) + nodes)
