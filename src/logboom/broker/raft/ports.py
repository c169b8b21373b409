"""What a group needs of the broker around it: the state machine and the transport.

Knows nothing of a loop or a disk. Only the state machine knows what entries mean.
"""

from dataclasses import dataclass
from typing import Final, Protocol

from logboom.base.errors import NotControllerError
from logboom.raft import Index, NodeId, Term


class ProposalRejectedError(NotControllerError):
    """The proposal did not get into the log: this node does not lead or hands leadership over, or too much waits to be
    committed. Nothing was changed, and nothing will be."""


class ProposalLostError(NotControllerError):
    """The proposal was in the log of this node, and another leader's entry replaced it. It will never be applied."""


_NO_TERM: Final = Term(0)


@dataclass(frozen=True, slots=True)
class Leadership:
    """Who leads, as far as this node knows."""

    leader: NodeId | None = None
    term: Term = _NO_TERM
    serving: bool = False
    """Whether this node leads and has applied an entry of its own term, and so everything that was committed before: no
    decision may rest on its state machine before that (design, rule 11)."""


class StateMachine(Protocol):
    """What committed entries are applied to, the same on every member. Called on the loop, one call at a time.

    `apply` must not wait for a proposal to the same group: that is applied only after it. An error from `apply`,
    `restore` or `snapshot` ends the group on this node, since it would not be the same as the others any more.
    """

    async def apply(self, index: Index, data: bytes) -> None:
        """One committed entry, in the order of the log; those before it have been applied."""

    async def restore(self, index: Index, data: bytes) -> None:
        """Replace everything by the state after the entry at `index`, as `snapshot` gave it on some member."""

    def snapshot(self) -> bytes:
        """The state after the last entry that was applied. Called between two calls of `apply`."""

    def leadership_changed(self, leadership: Leadership) -> None:
        """The leader has changed, or this node serves from now on. Called at any time, also during an `apply`."""


class RaftTransport(Protocol):
    """The way to the other members."""

    def send(self, to: NodeId, message: bytes, *, is_snapshot: bool) -> bool:
        """Send a message, which may be lost, late, repeated and overtaken. False where it was dropped at once.

        Never waits. With `is_snapshot` it may be as large as `SNAPSHOT_BYTES_MAX` and a little more.
        """


@dataclass(frozen=True, slots=True)
class MemberStatus:
    """A member as the leader sees it."""

    node_id: NodeId
    match_index: Index
    """The index up to which its log is known to match the leader's."""

    is_voter: bool
    recently_active: bool
    """Whether it acknowledged something in this leadership, and sent a message since the leader's last check, as it
    does once in an election timeout; always of the leader itself."""


@dataclass(frozen=True, slots=True)
class GroupStatus:
    """One node of the group at one moment."""

    leadership: Leadership
    last_index: Index
    commit: Index
    applied: Index
    """What the state machine has applied."""

    members: tuple[MemberStatus, ...]
    """By node id; empty where this node does not lead."""
