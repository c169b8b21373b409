"""The leader role: appends proposals, replicates them, commits what a majority has, and steps down without a quorum."""

from logboom.raft.core import Core, Transitions
from logboom.raft.errors import ProposalDroppedError
from logboom.raft.messages import (
    NOBODY,
    Entry,
    EntryId,
    Index,
    Message,
    MessageType,
    NodeId,
)
from logboom.raft.progress import Progress, ProgressState
from logboom.raft.proposals import Proposals
from logboom.raft.read_only import ReadOnly, ReadOnlyOption, ReadState
from logboom.raft.replication import Replicator


class Leader:
    """State of one leadership. It begins with an empty entry of its term; committing it commits all earlier entries."""

    def __init__(self, core: Core, transitions: Transitions) -> None:
        self._core = core
        self._transitions = transitions
        self._replicator = Replicator(core)
        self.proposals = Proposals(core)
        self._read_only = ReadOnly()
        self._early_reads: list[Message] = []
        """Reads that wait for the first commit of this term. Before it, the leader does not know which entries are
        committed."""

        self._heartbeat_elapsed = 0
        self.transferee = NOBODY
        """The member that leadership is being transferred to. Proposals are dropped during a transfer (section
        3.10)."""

        own = core.tracker.progress[core.node_id]
        own.become_replicate()
        own.recent_active = True
        self.proposals.append((Entry(core.term, Index(0)),))

    def tick(self) -> None:
        """Send heartbeats, and check the quorum once in an election timeout."""
        core = self._core
        self._heartbeat_elapsed += 1
        core.election_elapsed += 1
        if core.election_elapsed >= core.config.election_ticks:
            core.election_elapsed = 0
            if core.config.check_quorum and not self._check_quorum():
                return
            self.transferee = NOBODY  # give up a transfer that took longer than an election timeout
        if self._heartbeat_elapsed >= core.config.heartbeat_ticks:
            self._heartbeat_elapsed = 0
            self._replicator.broadcast_heartbeat(self._read_only.heartbeat_context)

    @property
    def ticks_until_due(self) -> int | None:
        """Ticks until the next heartbeats or quorum check; None without any other member."""
        core = self._core
        if len(core.tracker.progress) == 1:
            return None
        heartbeat = core.config.heartbeat_ticks - self._heartbeat_elapsed
        return max(1, min(heartbeat, core.config.election_ticks - core.election_elapsed))

    def step(self, message: Message) -> None:
        """Handle a message of this node's term or without a term. Raises ProposalDroppedError."""
        match message.type:
            case MessageType.BEAT:
                self._replicator.broadcast_heartbeat(self._read_only.heartbeat_context)
            case MessageType.CHECK_QUORUM:
                self._check_quorum()
            case MessageType.PROP:
                self._propose(message.entries)
            case MessageType.READ_INDEX:
                self._read_index(message)
            case _:
                progress = self._core.tracker.progress.get(message.sender)
                if progress is not None:
                    self._step_member(message, progress)

    def _step_member(self, message: Message, progress: Progress) -> None:
        match message.type:
            case MessageType.APP_RESP:
                progress.recent_active = True
                if message.reject:
                    self._append_rejected(message, progress)
                else:
                    self._append_acknowledged(message, progress)
            case MessageType.HEARTBEAT_RESP:
                self._heartbeat_answered(message, progress)
            case MessageType.SNAP_STATUS:
                self._snapshot_sent(progress, failed=message.reject)
            case MessageType.UNREACHABLE:
                if progress.state is ProgressState.REPLICATE:
                    progress.become_probe()  # messages were probably lost
            case MessageType.TRANSFER_LEADER:
                self._transfer(message.sender, progress)

    def configuration_changed(self) -> None:
        """Handle a new configuration: more entries may be committed now, and new members are probed at once."""
        if self._maybe_commit():
            self._replicator.broadcast_append()
        else:
            for node_id, _ in self._replicator.followers():
                self._replicator.send_append(node_id, if_empty=False)
        if self.transferee not in self._core.tracker.config.voters.ids:
            self.transferee = NOBODY

    def broadcast_append(self) -> None:
        """Send new entries to all followers."""
        self._replicator.broadcast_append()

    # --- proposals -----------------------------------------------------------------------------------------------

    def _propose(self, entries: tuple[Entry, ...]) -> None:
        core = self._core
        assert entries, "a proposal without entries"
        if core.node_id not in core.tracker.progress or self.transferee != NOBODY:
            raise ProposalDroppedError("raft proposal dropped")
        self.proposals.append(self.proposals.prepare(entries))
        self._replicator.broadcast_append()

    # --- acknowledgements ----------------------------------------------------------------------------------------

    def _append_rejected(self, message: Message, progress: Progress) -> None:
        hint = message.reject_hint
        if message.log_term > 0:
            # The follower's entry at the hint has `log_term`. The logs cannot agree at an index where this log has a
            # higher term. Terms never decrease, so go back to the last index where they may agree.
            hint, _ = self._core.log.find_conflict_by_term(hint, message.log_term)
        if progress.maybe_decrease(message.index, hint):
            if progress.state is ProgressState.REPLICATE:
                progress.become_probe()
            self._replicator.send_append(message.sender)

    def _append_acknowledged(self, message: Message, progress: Progress) -> None:
        core = self._core
        # A repeated acknowledgement has no new index, but it may answer a probe.
        answers_probe = progress.match_index == message.index and progress.state is ProgressState.PROBE
        if not progress.maybe_update(message.index) and not answers_probe:
            return
        self._update_state(message.index, progress)
        if self._maybe_commit():
            self._release_early_reads()
            self._replicator.broadcast_append()
        elif message.sender != core.node_id and progress.can_bump_commit(core.log.committed):
            self._replicator.send_append(message.sender)
        if message.sender != core.node_id:
            # The window has space again. Empty messages would have no new information.
            while self._replicator.send_append(message.sender, if_empty=False):
                pass
        if message.sender == self.transferee and progress.match_index == core.log.last_index():
            self._replicator.send_timeout_now(message.sender)

    def _update_state(self, acked: Index, progress: Progress) -> None:
        match progress.state:
            case ProgressState.PROBE:
                progress.become_replicate()
            case ProgressState.SNAPSHOT if progress.match_index + 1 >= self._core.log.first_index():
                # The follower has a snapshot that this log continues, though it may not be the one this leader sent.
                progress.become_probe()
                progress.become_replicate()
            case ProgressState.REPLICATE:
                progress.inflights.free_up_to(acked)
            case _:
                pass

    def _maybe_commit(self) -> bool:
        core = self._core
        return core.log.maybe_commit(EntryId(core.term, core.tracker.committed_index()))

    def _heartbeat_answered(self, message: Message, progress: Progress) -> None:
        core = self._core
        progress.recent_active = True
        progress.flow_paused = False
        # Send an empty message even if the window is full, or if a probed follower may have everything: the answer ends
        # that state.
        if progress.match_index < core.log.last_index() or progress.state is ProgressState.PROBE:
            self._replicator.send_append(message.sender)
        if core.config.read_only is ReadOnlyOption.SAFE and message.context:
            self._read_only.acknowledge(message.sender, message.context)
            for request, index in self._read_only.take_confirmed(core.tracker.config.voters):
                self._answer_read(request, index)

    def _snapshot_sent(self, progress: Progress, *, failed: bool) -> None:
        if progress.state is not ProgressState.SNAPSHOT:
            return
        if failed:
            # Otherwise probing would begin after a snapshot that the follower does not have.
            progress.pending_snapshot = Index(0)
        progress.become_probe()
        # Wait: after a success for the follower's acknowledgement, after a failure for the next heartbeat's answer.
        progress.flow_paused = True

    # --- leadership ----------------------------------------------------------------------------------------------

    def _check_quorum(self) -> bool:
        """Step down if no majority has sent anything since the last check; returns False then."""
        core = self._core
        active = core.tracker.is_quorum_active()
        if not active:
            self._transitions.become_follower(core.term, NOBODY)
        for node_id, progress in core.tracker.members():
            if node_id != core.node_id:
                progress.recent_active = False
        return active

    def _transfer(self, transferee: NodeId, progress: Progress) -> None:
        """Transfer leadership to a voter: send it all entries, then ask it to campaign."""
        core = self._core
        if progress.is_learner or self.transferee == transferee:
            return
        self.transferee = NOBODY  # a new transfer replaces the previous one
        if transferee == core.node_id:
            return
        core.election_elapsed = 0  # the transfer may take one election timeout from now
        self.transferee = transferee
        if progress.match_index == core.log.last_index():
            self._replicator.send_timeout_now(transferee)
        else:
            self._replicator.send_append(transferee)

    # --- reads -----------------------------------------------------------------------------------------------------

    def _read_index(self, request: Message) -> None:
        core = self._core
        # This applies to a single voter, too: its stored commit index may be older than what it had committed.
        if core.log.known_term(core.log.committed) != core.term:
            self._early_reads.append(request)
        else:
            self._confirm_read(request)

    def _release_early_reads(self) -> None:
        if self._early_reads and self._core.log.known_term(self._core.log.committed) == self._core.term:
            requests, self._early_reads = self._early_reads, []
            for request in requests:
                self._confirm_read(request)

    def _confirm_read(self, request: Message) -> None:
        core = self._core
        if core.tracker.config.is_singleton or core.config.read_only is ReadOnlyOption.LEASE_BASED:
            self._answer_read(request, core.log.committed)
            return
        self._read_only.add(request, core.log.committed)
        context = self._read_only.heartbeat_context
        self._read_only.acknowledge(core.node_id, context)
        if core.config.eager_reads:
            self._replicator.broadcast_heartbeat(context)

    def _answer_read(self, request: Message, index: Index) -> None:
        core = self._core
        if request.sender in (NOBODY, core.node_id):
            core.read_states.append(ReadState(index, request.entries[0].data))
            return
        core.send(Message(type=MessageType.READ_INDEX_RESP, to=request.sender, index=index, entries=request.entries))
