"""A member of the Raft group: a broker together with one log directory.

A broker that returns with an empty disk is a new member of the group, even with its old broker id: it has lost its
votes and acknowledged entries, and counting it as the old voter could lose committed entries (KIP-853). Therefore each
directory gets an id when it is first used, and the node id is derived from both ids.
"""

import hashlib
from dataclasses import dataclass
from uuid import UUID

from logboom.base.ids import BrokerId
from logboom.raft.messages import NodeId


@dataclass(frozen=True, slots=True, order=True)
class Voter:
    """A member of the group, learner or voter."""

    broker_id: BrokerId
    directory_id: UUID

    @property
    def node_id(self) -> NodeId:
        """The node id in the core: 63 bits of a digest of both ids, so that every node computes the same one.

        The probability that two of a million members have the same id is below 10^-6. The metadata stores the members
        and refuses one whose node id is already used.
        """
        name = self.broker_id.to_bytes(4, "big", signed=True) + self.directory_id.bytes
        return NodeId(int.from_bytes(hashlib.blake2b(name, digest_size=8).digest(), "big") >> 1 or 1)
