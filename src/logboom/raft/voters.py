"""What a node id identifies: a broker together with one log directory.

A broker that comes back with an empty disk is a new member for the group, although it has its old broker id: it has
forgotten its votes and acknowledgements, and counting it as the old voter could lose committed entries (KIP-853).
Therefore each directory has its own id, created when it is first used, and the node id is derived from both ids.
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
        """The id it has in the core: 63 bits of a digest of both, the same on every node without any agreement.

        That two of a million members have the same id has a probability below 10^-6. The metadata keep the members
        themselves and refuse one whose node id another one has.
        """
        name = self.broker_id.to_bytes(4, "big", signed=True) + self.directory_id.bytes
        return NodeId(int.from_bytes(hashlib.blake2b(name, digest_size=8).digest(), "big") >> 1 or 1)
