"""The cluster's consensus group on this broker: its files, and the driver that runs its node.

opened = OpenedGroup.open(...)                on a thread that waits for the disk: recovered, or made
group = RaftGroup(opened, flusher=..., ...)   on the loop
await group.start(machine)                    the state machine has what is known to be committed
await group.propose(data)                     committed and applied here, if this node leads
await group.stop()

ports, settings     the state machine and the transport, which others implement; limits and times
files               what a `raft.Node` persists, and its recovery at the start; waits for the disk
writer              the order of writes: group commit for entries, jobs for the rest
applier, snapshots  committed entries to the state machine, one by one; when a snapshot is due
pending             proposals and reads that wait for their outcome
driver              events in, effects out, ticks
group               all of it together
"""

from logboom.broker.raft.files import RaftFiles
from logboom.broker.raft.group import OpenedGroup, RaftGroup
from logboom.broker.raft.migration import GROUP_FORMAT, open_member
from logboom.broker.raft.ports import (
    GroupStatus,
    Leadership,
    MemberStatus,
    ProposalLostError,
    ProposalRejectedError,
    RaftTransport,
    StateMachine,
)
from logboom.broker.raft.settings import RaftSettings, RaftTiming

__all__ = [
    "GROUP_FORMAT",
    "GroupStatus",
    "Leadership",
    "MemberStatus",
    "OpenedGroup",
    "ProposalLostError",
    "ProposalRejectedError",
    "RaftFiles",
    "RaftGroup",
    "RaftSettings",
    "RaftTiming",
    "RaftTransport",
    "StateMachine",
    "open_member",
]
