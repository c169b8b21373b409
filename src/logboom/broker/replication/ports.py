"""What the controller and the cluster are to replication."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from logboom.base.errors import LogboomError
from logboom.base.ids import BrokerEpoch
from logboom.broker.lost_replicas import NoOtherReplicas, ReplicaLossPort
from logboom.broker.peers import NoPeers, Peers, PeerUnavailableError
from logboom.metadata.leadership import IsrProposal


class IsrPort(Protocol):
    """The controller, for proposals of leaders."""

    async def change_isr(self, proposals: Sequence[IsrProposal]) -> list[LogboomError | None]:
        """Propose; returns the outcome of each: None if it is committed, whereupon a delta of the metadata has the
        change, else the error of `metadata.leadership.change_isr`. Raises PeerUnavailableError if the outcome is not
        known."""


class NoController:
    """Of a broker that is alone: it has no follower, and so nothing to propose."""

    async def change_isr(self, proposals: Sequence[IsrProposal]) -> list[LogboomError | None]:
        """There is nobody to ask."""
        raise PeerUnavailableError("there is no controller")


def never_registered() -> BrokerEpoch | None:
    """The epoch of a broker that is in no cluster."""
    return None


_NO_PEERS: Final = NoPeers()
_NO_CONTROLLER: Final = NoController()
_NO_LOSSES: Final = NoOtherReplicas()


@dataclass(frozen=True, slots=True)
class ClusterPorts:
    """What replication needs of the rest of the cluster; by default that of a broker that is alone."""

    peers: Peers = _NO_PEERS
    isr: IsrPort = _NO_CONTROLLER
    losses: ReplicaLossPort = _NO_LOSSES
    own_epoch: Callable[[], BrokerEpoch | None] = field(default=never_registered)
    """The epoch under which this process is registered; None before that."""
