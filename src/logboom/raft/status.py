"""The state of a node for metrics and commands of operators."""

from dataclasses import dataclass

from logboom.raft.messages import NOBODY, HardState, Index, NodeId, SoftState
from logboom.raft.raft import Raft
from logboom.raft.tracker import Configuration, ProgressMap


@dataclass(frozen=True, slots=True)
class Status:
    """A copy of a node's state."""

    node_id: NodeId
    hard_state: HardState
    soft_state: SoftState
    last_index: Index
    applied: Index
    transferee: NodeId
    """The member to which this leader is transferring leadership; 0: none."""

    config: Configuration
    progress: ProgressMap
    """The leader's view of each member, copied; empty on other nodes."""


def status_of(raft: Raft) -> Status:
    """The node's status now."""
    leader = raft.leader
    return Status(
        node_id=raft.core.node_id,
        hard_state=raft.core.hard_state,
        soft_state=raft.core.soft_state,
        last_index=raft.log.last_index(),
        applied=raft.log.applying.applied,
        transferee=NOBODY if leader is None else leader.transferee,
        config=raft.core.tracker.config,
        progress={} if leader is None else {node_id: each.clone() for node_id, each in raft.core.tracker.members()},
    )
