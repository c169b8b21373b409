"""The state of a node in every role: its term and vote, its log, the configuration, and the messages to send.

One role at a time (`follower`, `candidate`, `leader`) works on it; `raft.Raft` owns both and switches the roles. State
that only a leader needs is in `leader.Leader` and ends with the leadership.
"""

from typing import Protocol

import msgspec

from logboom.raft.config import RaftConfig
from logboom.raft.log import RaftLog
from logboom.raft.messages import (
    NOBODY,
    SENT_AFTER_APPEND,
    HardState,
    Index,
    Message,
    MessageType,
    NodeId,
    Role,
    SoftState,
    Term,
)
from logboom.raft.read_only import ReadState
from logboom.raft.tracker import ProgressTracker

VOTES = frozenset({MessageType.VOTE, MessageType.VOTE_RESP, MessageType.PRE_VOTE, MessageType.PRE_VOTE_RESP})
WITHOUT_TERM = frozenset({MessageType.PROP, MessageType.READ_INDEX})
"""Forwarded requests: the leader handles them as if they had been made there."""


class Transitions(Protocol):
    """What a role calls to change the role. Implemented by `Raft`."""

    def become_follower(self, term: Term, lead: NodeId) -> None:
        """Become a follower of `lead` in `term`; NOBODY: no leader is known yet."""

    def become_leader(self) -> None:
        """Become the leader, after this node has won the election of its term."""

    def campaign(self, *, after_pre_vote: bool = False, transfer: bool = False) -> None:
        """Start an election, if this node may be elected. `transfer`: the current leader asked for it."""

    def step(self, message: Message) -> None:
        """Handle a message again, in the new role."""


class Core:
    """See the module."""

    def __init__(self, config: RaftConfig, log: RaftLog) -> None:
        self.config = config
        self.node_id = config.node_id
        self.log = log
        self.tracker = ProgressTracker(config.max_inflight_messages, config.max_inflight_bytes)
        self.term = Term(0)
        self.vote = NOBODY
        self.lead = NOBODY
        self.role = Role.FOLLOWER
        self.election_elapsed = 0
        """Ticks since the last message of the leader, the last campaign or, on a leader, the last quorum check."""

        self.randomized_election_ticks = 0
        self.read_states: list[ReadState] = []
        self.messages: list[Message] = []
        """Messages that may be sent at once: they depend on nothing that is not durable."""

        self.messages_after_append: list[Message] = []
        """Messages that may be delivered, to other nodes or this one, once everything that is unstable now is
        durable."""

    @property
    def soft_state(self) -> SoftState:
        """Leader and role."""
        return SoftState(self.lead, self.role)

    @property
    def hard_state(self) -> HardState:
        """Term, vote and commit index, which must be stored."""
        return HardState(self.term, self.vote, self.log.committed)

    @property
    def is_promotable(self) -> bool:
        """Whether this node may become leader: it is a voter, and no snapshot is waiting that will replace the
        configuration."""
        progress = self.tracker.progress.get(self.node_id)
        return progress is not None and not progress.is_learner and self.log.unstable.snapshot is None

    @property
    def is_past_election_timeout(self) -> bool:
        """Whether this node has waited long enough to campaign."""
        return self.election_elapsed >= self.randomized_election_ticks

    @property
    def ticks_until_campaign(self) -> int | None:
        """Ticks until this node campaigns, unless it hears from a leader; None if it may not become leader."""
        return max(1, self.randomized_election_ticks - self.election_elapsed) if self.is_promotable else None

    def reset(self, term: Term) -> None:
        """Reset everything that belonged to the previous role."""
        if self.term != term:
            self.term = term
            self.vote = NOBODY
        self.lead = NOBODY
        self.election_elapsed = 0
        self.randomized_election_ticks = self.config.election_ticks + self.config.draw(self.config.election_ticks)
        self.tracker.votes.clear()
        last = self.log.last_index()
        self.tracker.forget_progress(Index(last + 1))
        own = self.tracker.progress.get(self.node_id)
        if own is not None:
            own.match_index = last

    def send(self, message: Message) -> None:
        """Queue a message. This method sets sender and term."""
        message = self._addressed(message)
        if message.type in SENT_AFTER_APPEND:
            # Rejections wait, too: they may depend on a vote or an entry that is not durable yet, and they are rare.
            self.messages_after_append.append(message)
            return
        assert message.to != self.node_id, f"{message.type.name} to itself"
        self.messages.append(message)

    def _addressed(self, message: Message) -> Message:
        sender = message.sender or self.node_id
        if message.type in VOTES:
            # The sender sets their term: that of the election, which is the next term for a pre-vote.
            assert message.term != 0, f"{message.type.name} without a term"
            return msgspec.structs.replace(message, sender=sender)
        assert message.term == 0, f"{message.type.name} has term {message.term} already"
        term = Term(0) if message.type in WITHOUT_TERM else self.term
        return msgspec.structs.replace(message, sender=sender, term=term)
