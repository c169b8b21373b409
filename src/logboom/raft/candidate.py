"""The candidate role. A pre-candidate asks whether it could win an election before it raises its term (section 9.6)."""

from logboom.raft.core import Core, Transitions
from logboom.raft.errors import ProposalDroppedError
from logboom.raft.messages import NOBODY, Message, MessageType
from logboom.raft.quorum import VoteResult


class Candidate:
    """A node that collects votes for its term, or pre-votes for the next one."""

    def __init__(self, core: Core, transitions: Transitions, *, pre_vote: bool) -> None:
        self._core = core
        self._transitions = transitions
        self._pre_vote = pre_vote

    def tick(self) -> None:
        """Campaign again if no leader was elected within the election timeout."""
        core = self._core
        core.election_elapsed += 1
        if core.is_promotable and core.is_past_election_timeout:
            core.election_elapsed = 0
            self._transitions.campaign()

    @property
    def ticks_until_due(self) -> int | None:
        """Ticks until this node campaigns; None if it may not."""
        return self._core.ticks_until_campaign

    def step(self, message: Message) -> None:
        """Handle a message of this node's term or without a term, or an answer to a pre-vote. Raises
        ProposalDroppedError."""
        match message.type:
            case MessageType.APP | MessageType.HEARTBEAT | MessageType.SNAP:
                # Another node won the election of this term.
                self._transitions.become_follower(message.term, message.sender)
                self._transitions.step(message)
            case MessageType.PROP:
                raise ProposalDroppedError("raft proposal dropped")
            case MessageType.PRE_VOTE_RESP if self._pre_vote:
                self._count(message)
            case MessageType.VOTE_RESP if not self._pre_vote:
                self._count(message)

    def _count(self, message: Message) -> None:
        core = self._core
        core.tracker.record_vote(message.sender, not message.reject)
        match core.tracker.vote_result():
            case VoteResult.WON if self._pre_vote:
                self._transitions.campaign(after_pre_vote=True)
            case VoteResult.WON:
                self._transitions.become_leader()
            case VoteResult.LOST:
                # `core.term`, not the term of the message: an answer to a pre-vote has the next term, which has not
                # begun.
                self._transitions.become_follower(core.term, NOBODY)
