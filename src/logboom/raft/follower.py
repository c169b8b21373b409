"""The follower role: handles a leader's entries, heartbeats and snapshots, and forwards requests to the leader."""

from collections.abc import Callable

import msgspec

from logboom.raft.confchange import restore
from logboom.raft.core import Core, Transitions
from logboom.raft.errors import ProposalDroppedError
from logboom.raft.messages import NOBODY, ConfState, EntryId, Message, MessageType, Snapshot, Term
from logboom.raft.read_only import ReadOnlyOption, ReadState
from logboom.raft.tracker import Configuration, ProgressMap, ProgressTracker

SwitchTo = Callable[[Configuration, ProgressMap], ConfState]


class Follower:
    """A node that follows `core.lead`; if that is NOBODY, it waits for a leader."""

    def __init__(self, core: Core, transitions: Transitions, switch_to: SwitchTo) -> None:
        self._core = core
        self._transitions = transitions
        self._switch_to = switch_to

    def tick(self) -> None:
        """Campaign when the leader has sent nothing for the randomised election timeout."""
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
        """Handle a message of this node's term or without a term. Raises ProposalDroppedError."""
        match message.type:
            case MessageType.APP:
                self._heard_from_leader(message)
                self._append(message)
            case MessageType.HEARTBEAT:
                self._heard_from_leader(message)
                self._heartbeat(message)
            case MessageType.SNAP:
                self._heard_from_leader(message)
                self._snapshot(message)
            case MessageType.PROP:
                self._forward_proposal(message)
            case MessageType.TRANSFER_LEADER | MessageType.READ_INDEX:
                self._forward(message)
            case MessageType.READ_INDEX_RESP:
                if len(message.entries) == 1:
                    self._core.read_states.append(ReadState(message.index, message.entries[0].data))
            case MessageType.FORGET_LEADER:
                self._forget_leader()
            case MessageType.TIMEOUT_NOW:
                # No pre-vote: the leader asked this node to take over, it is not returning from a partition (section
                # 3.10).
                self._transitions.campaign(transfer=True)

    def _heard_from_leader(self, message: Message) -> None:
        self._core.election_elapsed = 0
        self._core.lead = message.sender

    def _append(self, message: Message) -> None:
        core = self._core
        if message.index < core.log.committed:
            core.send(Message(type=MessageType.APP_RESP, to=message.sender, index=core.log.committed))
            return
        before = EntryId(message.log_term, message.index)
        last = core.log.maybe_append(before, message.entries, message.commit)
        if last is not None:
            core.send(Message(type=MessageType.APP_RESP, to=message.sender, index=last))
            return
        # A hint for the leader where the logs may agree: the last entry here whose term is not above the leader's.
        hint, hint_term = core.log.find_conflict_by_term(min(message.index, core.log.last_index()), message.log_term)
        core.send(
            Message(
                type=MessageType.APP_RESP,
                to=message.sender,
                index=message.index,
                reject=True,
                reject_hint=hint,
                log_term=hint_term,
            )
        )

    def _heartbeat(self, message: Message) -> None:
        self._core.log.commit_to(message.commit)
        self._core.send(Message(type=MessageType.HEARTBEAT_RESP, to=message.sender, context=message.context))

    def _snapshot(self, message: Message) -> None:
        core = self._core
        snapshot = message.snapshot or Snapshot()
        acknowledged = core.log.last_index() if self._restore(snapshot) else core.log.committed
        core.send(Message(type=MessageType.APP_RESP, to=message.sender, index=acknowledged))

    def _restore(self, snapshot: Snapshot) -> bool:
        """Replace log and configuration by a snapshot; False if it has nothing new or does not list this node."""
        core = self._core
        if snapshot.index <= core.log.committed:
            return False
        state = snapshot.conf_state
        if core.node_id not in state.voters + state.learners + state.voters_outgoing:
            return False
        if core.log.matches(EntryId(snapshot.term, snapshot.index)):
            core.log.commit_to(snapshot.index)  # this log already has everything in the snapshot
            return False
        core.log.restore(snapshot)
        core.tracker = ProgressTracker(core.config.max_inflight_messages, core.config.max_inflight_bytes)
        restored = self._switch_to(*restore(core.tracker, core.log.last_index(), state))
        assert restored == state.in_order(), f"{state} was restored as {restored}"
        return True

    def _forward_proposal(self, message: Message) -> None:
        if self._core.lead == NOBODY:
            raise ProposalDroppedError("raft proposal dropped")
        if not self._core.config.forward_proposals:
            raise ProposalDroppedError("raft proposal dropped")
        self._forward(message)

    def _forward(self, message: Message) -> None:
        """Send it to the leader. Without a known leader it is dropped, and the requester retries."""
        if self._core.lead != NOBODY:
            self._core.send(msgspec.structs.replace(message, to=self._core.lead, term=Term(0)))

    def _forget_leader(self) -> None:
        """Allow an election before the leader's lease ends. Ignored with lease-based reads, which would not be safe
        then."""
        if self._core.config.read_only is not ReadOnlyOption.LEASE_BASED:
            self._core.lead = NOBODY
