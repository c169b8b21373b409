"""Which broker a node of the consensus group is: node ids are made from broker ids and directory ids."""

import hashlib
from collections.abc import Iterable
from functools import lru_cache
from uuid import UUID

from logboom.base.ids import BrokerId, DirectoryId
from logboom.broker.peers import PeerIdentity
from logboom.metadata import Image
from logboom.raft import NodeId, Voter


class NodeDirectory:
    """See the module. Life: that of the broker."""

    def __init__(self) -> None:
        self._brokers: dict[NodeId, BrokerId] = {}

    def learn(self, members: Iterable[PeerIdentity]) -> None:
        """Add these processes."""
        for one in members:
            self._brokers[node_id_of(one.broker_id, one.directory_id)] = one.broker_id

    def learn_image(self, image: Image) -> None:
        """All registered brokers."""
        self.learn(PeerIdentity(one.id, one.directory_id) for one in image.brokers.values())

    def broker(self, node: NodeId) -> BrokerId | None:
        """The broker of a node; None for a node that is not known."""
        return self._brokers.get(node)


@lru_cache(maxsize=1_000)
def node_id_of(broker: BrokerId, directory: DirectoryId) -> NodeId:
    """The node that a broker is with one data directory."""
    return Voter(broker, UUID(bytes=hashlib.blake2b(directory.encode(), digest_size=16).digest())).node_id
