"""Majorities, and pairs of majorities, over votes and acknowledged indexes (thesis, sections 3.3 and 4.3).

Voters are sets. An empty set agrees to everything, so that a joint configuration with an empty half decides like the
other half alone.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from logboom.raft.messages import Index, NodeId

NO_BOUND: Final = Index(2**64 - 1)
"""The committed index of an empty set of voters: it does not limit that of the other half."""

AckedIndex = Callable[[NodeId], Index | None]
"""The index up to which a voter has acknowledged; None if it has not acknowledged anything."""


class VoteResult(Enum):
    """State of an election. The values are etcd's names."""

    PENDING = "VotePending"
    LOST = "VoteLost"
    WON = "VoteWon"


def describe_ids(ids: frozenset[NodeId]) -> str:
    """Sorted ids in hexadecimal, in brackets, as etcd prints them."""
    return "(" + " ".join(f"{node_id:x}" for node_id in sorted(ids)) + ")"


def majority_committed_index(voters: frozenset[NodeId], acked: AckedIndex) -> Index:
    """The largest index that a majority has acknowledged. A voter without an acknowledgement counts as 0."""
    if not voters:
        return NO_BOUND
    indexes = sorted(acked(voter) or Index(0) for voter in voters)
    return indexes[len(indexes) - (len(indexes) // 2 + 1)]


def majority_vote_result(voters: frozenset[NodeId], votes: Mapping[NodeId, bool]) -> VoteResult:
    """Whether a majority granted its vote, may still do so, or cannot any more."""
    if not voters:
        return VoteResult.WON
    granted = sum(votes.get(voter, False) for voter in voters)
    missing = sum(voter not in votes for voter in voters)
    needed = len(voters) // 2 + 1
    if granted >= needed:
        return VoteResult.WON
    return VoteResult.PENDING if granted + missing >= needed else VoteResult.LOST


@dataclass(frozen=True, slots=True)
class JointConfig:
    """Two sets of voters, which may overlap; a decision needs both. `outgoing` is empty if the configuration is not
    joint."""

    incoming: frozenset[NodeId] = frozenset()
    outgoing: frozenset[NodeId] = frozenset()

    def __str__(self) -> str:
        if self.outgoing:
            return f"{describe_ids(self.incoming)}&&{describe_ids(self.outgoing)}"
        return describe_ids(self.incoming)

    @property
    def is_joint(self) -> bool:
        """Whether two majorities are needed."""
        return bool(self.outgoing)

    @property
    def ids(self) -> frozenset[NodeId]:
        """All voters."""
        return self.incoming | self.outgoing

    def committed_index(self, acked: AckedIndex) -> Index:
        """The largest index that both majorities have acknowledged."""
        return min(majority_committed_index(self.incoming, acked), majority_committed_index(self.outgoing, acked))

    def vote_result(self, votes: Mapping[NodeId, bool]) -> VoteResult:
        """WON if both sets have won, LOST if one has lost, PENDING otherwise."""
        incoming = majority_vote_result(self.incoming, votes)
        outgoing = majority_vote_result(self.outgoing, votes)
        if incoming is outgoing:
            return incoming
        if VoteResult.LOST in (incoming, outgoing):
            return VoteResult.LOST
        return VoteResult.PENDING
