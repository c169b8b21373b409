"""The Raft state machine of one node: the rules of every role, and the transitions between roles.

    FOLLOWER --timeout--> PRE_CANDIDATE --pre-votes--> CANDIDATE --votes--> LEADER
        ^                      |                           |                   |
        +------- a leader of this term, a higher term, or a lost election -----+

`step` first compares the term of a message with its own (section 3.3): with a higher term the node becomes a follower,
a message with a lower term is not handled further. Then it handles what is the same in every role, such as votes. It
passes all other messages to the role.
"""

from contextlib import suppress
from typing import Final

from logboom.raft.candidate import Candidate
from logboom.raft.codec import encode_conf_change
from logboom.raft.confchange import Changer, restore
from logboom.raft.config import RaftConfig
from logboom.raft.core import Core
from logboom.raft.errors import ProposalDroppedError
from logboom.raft.follower import Follower
from logboom.raft.leader import Leader
from logboom.raft.log import RaftLog
from logboom.raft.messages import (
    NOBODY,
    ConfChangeV2,
    ConfState,
    Entry,
    EntryId,
    EntryType,
    Index,
    Message,
    MessageType,
    NodeId,
    Role,
    Snapshot,
    Term,
    entries_size,
)
from logboom.raft.storage import Storage
from logboom.raft.tracker import Configuration, ProgressMap

CAMPAIGN_TRANSFER: Final = b"CampaignTransfer"
"""Context of a vote request that voters do not ignore even if they hear from a leader: that leader has asked for it."""

_FROM_LEADERS: Final = frozenset({MessageType.APP, MessageType.HEARTBEAT, MessageType.SNAP})


class Raft:
    """The state machine of one node. Not thread-safe."""

    def __init__(self, config: RaftConfig, storage: Storage, applied: Index) -> None:
        """Start from `storage`. The application has applied entries up to `applied`; 0: up to its snapshot."""
        self.log = RaftLog(storage, config.applying_bytes)
        self.core = Core(config, self.log)
        self._role: Follower | Candidate | Leader = Follower(self.core, self, self.switch_to)
        hard_state, conf_state = storage.initial_state()
        restored = self.switch_to(*restore(self.core.tracker, self.log.last_index(), conf_state))
        assert restored == conf_state.in_order(), f"{conf_state} was restored as {restored}"
        if not hard_state.is_empty:
            assert self.log.committed <= hard_state.commit <= self.log.last_index(), (
                f"{hard_state} does not fit the log"
            )
            self.log.committed = hard_state.commit
            self.core.term, self.core.vote = hard_state.term, hard_state.vote
        if applied > 0:
            self.log.applied_to(applied, 0)
        self.become_follower(self.core.term, NOBODY)

    @property
    def leader(self) -> Leader | None:
        """The leader role, None if this node has another role."""
        return self._role if isinstance(self._role, Leader) else None

    def tick(self) -> None:
        """One tick of time has passed."""
        self._role.tick()

    @property
    def ticks_until_due(self) -> int | None:
        """Ticks until the next timeout or heartbeat, at least 1; None if there is none."""
        return self._role.ticks_until_due

    def step(self, message: Message) -> None:
        """Handle a message of another node or of this one. Raises ProposalDroppedError and LogLostError."""
        core = self.core
        if message.term > core.term:
            if not self._step_higher_term(message):
                return
        elif 0 < message.term < core.term:
            self._step_lower_term(message)
            return
        match message.type:
            case MessageType.HUP:
                self.campaign()
            case MessageType.STORAGE_APPEND_RESP:
                if message.index != 0:
                    self.log.unstable.stable_to(EntryId(message.log_term, message.index))
                self._snapshot_stored(message.snapshot)
            case MessageType.STORAGE_APPLY_RESP:
                self._entries_applied(message.entries)
            case MessageType.VOTE | MessageType.PRE_VOTE:
                self._vote(message)
            case _:
                self._role.step(message)

    # --- terms ---------------------------------------------------------------------------------------------------

    def _step_higher_term(self, message: Message) -> bool:
        """Handle the higher term of a message; False if the message must be ignored."""
        core = self.core
        if message.type in (MessageType.VOTE, MessageType.PRE_VOTE):
            in_lease = (
                core.config.check_quorum and core.lead != NOBODY and core.election_elapsed < core.config.election_ticks
            )
            if in_lease and message.context != CAMPAIGN_TRANSFER:
                return False  # a node that does not hear from the leader must not end its term (section 4.2.3)
        is_granted_pre_vote = message.type is MessageType.PRE_VOTE_RESP and not message.reject
        if message.type is MessageType.PRE_VOTE or is_granted_pre_vote:
            return True  # these have a term that has not begun
        self.become_follower(message.term, message.sender if message.type in _FROM_LEADERS else NOBODY)
        return True

    def _step_lower_term(self, message: Message) -> None:
        core = self.core
        if message.type in (MessageType.HEARTBEAT, MessageType.APP) and (
            core.config.check_quorum or core.config.pre_vote
        ):
            # Answer with the higher term. Otherwise the old leader might never learn it, because vote requests of this
            # node are ignored during the leader's lease.
            core.send(Message(type=MessageType.APP_RESP, to=message.sender))
        elif message.type is MessageType.PRE_VOTE:
            # Without an answer, a candidate with a longer log and one with a higher term could block each other
            # forever.
            core.send(Message(type=MessageType.PRE_VOTE_RESP, to=message.sender, term=core.term, reject=True))
        elif message.type is MessageType.STORAGE_APPEND_RESP:
            # The written entries may have been replaced meanwhile, so they do not count as stable (see
            # `RawNode._append_responses`). A snapshot is committed and valid in every term.
            self._snapshot_stored(message.snapshot)

    # --- elections -----------------------------------------------------------------------------------------------

    def campaign(self, *, after_pre_vote: bool = False, transfer: bool = False) -> None:
        """`Transitions`."""
        core = self.core
        if not after_pre_vote and (
            core.role is Role.LEADER or not core.is_promotable or self._has_unapplied_conf_change()
        ):
            return
        pre_vote = core.config.pre_vote and not after_pre_vote and not transfer
        if pre_vote:
            self._become_pre_candidate()
        else:
            self._become_candidate()
        request, answer = (
            (MessageType.PRE_VOTE, MessageType.PRE_VOTE_RESP) if pre_vote else (MessageType.VOTE, MessageType.VOTE_RESP)
        )
        term = Term(core.term + 1) if pre_vote else core.term
        last = self.log.last_id()
        for voter in sorted(core.tracker.config.voters.ids):
            if voter == core.node_id:
                core.send(Message(type=answer, to=voter, term=term))  # this node's own vote counts once it is durable
                continue
            core.send(
                Message(
                    type=request,
                    to=voter,
                    term=term,
                    index=last.index,
                    log_term=last.term,
                    context=CAMPAIGN_TRANSFER if transfer else b"",
                )
            )

    def _has_unapplied_conf_change(self) -> bool:
        """Whether a committed membership change is not applied: the election would use an old configuration."""
        applying = self.log.applying
        low, high = Index(applying.applied + 1), Index(self.log.committed + 1)
        return any(
            entry.type is not EntryType.NORMAL
            for page in self.log.pages(low, high, applying.page_bytes)
            for entry in page
        )

    def _vote(self, message: Message) -> None:
        core = self.core
        can_vote = (
            core.vote == message.sender
            or (core.vote == NOBODY and core.lead == NOBODY)
            or (message.type is MessageType.PRE_VOTE and message.term > core.term)
        )
        answer = MessageType.VOTE_RESP if message.type is MessageType.VOTE else MessageType.PRE_VOTE_RESP
        # A learner votes, too: it may already be a voter without knowing it, and its vote may be needed.
        if not can_vote or not self.log.is_up_to_date(EntryId(message.log_term, message.index)):
            core.send(Message(type=answer, to=message.sender, term=core.term, reject=True))
            return
        # The term of the request, not this node's: a pre-candidate ignores answers whose term is not above its own.
        core.send(Message(type=answer, to=message.sender, term=message.term))
        if message.type is MessageType.VOTE:
            core.election_elapsed = 0
            core.vote = message.sender

    # --- roles -----------------------------------------------------------------------------------------------------

    def become_follower(self, term: Term, lead: NodeId) -> None:
        """`Transitions`."""
        self.core.reset(term)
        self.core.lead = lead
        self.core.role = Role.FOLLOWER
        self._role = Follower(self.core, self, self.switch_to)

    def _become_candidate(self) -> None:
        core = self.core
        assert core.role is not Role.LEADER
        core.reset(Term(core.term + 1))
        core.vote = core.node_id
        core.role = Role.CANDIDATE
        self._role = Candidate(core, self, pre_vote=False)

    def _become_pre_candidate(self) -> None:
        """Term, vote and the time until the next campaign do not change."""
        core = self.core
        assert core.role is not Role.LEADER
        core.tracker.votes.clear()
        core.lead = NOBODY
        core.role = Role.PRE_CANDIDATE
        self._role = Candidate(core, self, pre_vote=True)

    def become_leader(self) -> None:
        """`Transitions`."""
        core = self.core
        assert core.role is Role.CANDIDATE
        core.reset(core.term)
        core.lead = core.node_id
        core.role = Role.LEADER
        leader = Leader(core, self)
        self._role = leader
        leader.broadcast_append()

    # --- applying --------------------------------------------------------------------------------------------------

    def _entries_applied(self, entries: tuple[Entry, ...]) -> None:
        if not entries:
            return
        self._applied_to(entries[-1].index, entries_size(entries))
        if self.leader is not None:
            self.leader.proposals.applied(entries)

    def _snapshot_stored(self, snapshot: Snapshot | None) -> None:
        if snapshot is not None:
            self.log.unstable.stable_snapshot_to(snapshot.index)
            self._applied_to(snapshot.index, 0)

    def _applied_to(self, index: Index, size_bytes: int) -> None:
        applied = max(index, self.log.applying.applied)
        self.log.applied_to(applied, size_bytes)
        leader = self.leader
        if leader is None or not self.core.tracker.config.auto_leave:
            return
        if applied < leader.proposals.pending_conf_index:
            return
        kind, data = encode_conf_change(None)
        # Dropped during a transfer of leadership. The next leader proposes it, or this one after the next applied
        # entry.
        with suppress(ProposalDroppedError):
            self.step(Message(type=MessageType.PROP, entries=(Entry(Term(0), Index(0), kind, data),)))

    def apply_conf_change(self, change: ConfChangeV2) -> ConfState:
        """Apply a committed change. Raises ConfChangeError if that is not possible, then on every node."""
        return self.switch_to(*Changer(self.core.tracker, self.log.last_index()).change(change))

    def switch_to(self, config: Configuration, progress: ProgressMap) -> ConfState:
        """Replace the configuration."""
        core = self.core
        core.tracker.config, core.tracker.progress = config, progress
        own = progress.get(core.node_id)
        leader = self.leader
        if leader is not None:
            if own is None or own.is_learner:
                if core.config.step_down_on_removal:
                    self.become_follower(core.term, NOBODY)
            elif config.voters.incoming:
                leader.configuration_changed()
        return config.conf_state
