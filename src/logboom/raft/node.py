"""The interface to a broker: `Node.step(event, now_ms) -> effects` for one member of the group.

A `Node` runs `RawNode` with asynchronous storage writes and keeps the in-memory copy of the log that `RawNode` reads.
The host starts effects in the order in which a step returns them. An effect that depends on a write is not returned by
the same step as the write, but by the step that handles the `Persisted` of that write.
"""

import struct
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final

import msgspec

from logboom.raft.codec import decode_conf_change
from logboom.raft.confchange import Changer
from logboom.raft.config import RaftConfig
from logboom.raft.errors import (
    ConfChangeError,
    LocalMessageError,
    ProposalDroppedError,
    SnapshotTemporarilyUnavailableError,
    UnknownPeerError,
    WrongAddresseeError,
)
from logboom.raft.events import (
    Applied,
    Apply,
    ConfigurationChanged,
    DiscardLog,
    Effect,
    Event,
    Ignored,
    PeerUnreachable,
    Persist,
    Persisted,
    ProposalAppended,
    ProposalDropped,
    Propose,
    ProposeConfChange,
    ReadReady,
    Received,
    RequestRead,
    Restore,
    RoleChanged,
    Send,
    SnapshotSent,
    SnapshotTaken,
    SnapshotWanted,
    TimePassed,
    TransferLeadership,
)
from logboom.raft.messages import (
    LOCAL_APPEND_THREAD,
    LOCAL_APPLY_THREAD,
    NOBODY,
    ConfChange,
    ConfChangeV2,
    ConfState,
    Entry,
    EntryType,
    HardState,
    Index,
    Message,
    NodeId,
    Role,
    Snapshot,
    Term,
)
from logboom.raft.raw_node import LOCAL_THREADS, RawNode, Ready
from logboom.raft.status import Status
from logboom.raft.storage import MemoryStorage
from logboom.raft.tracker import Configuration

_TOKEN: Final = struct.Struct("<Q")


@dataclass(frozen=True, slots=True)
class Stored:
    """The content of a node's files: everything that was made durable. Empty for a new member."""

    hard_state: HardState = field(default_factory=HardState)
    snapshot: Snapshot = field(default_factory=Snapshot)
    entries: tuple[Entry, ...] = ()
    """Consecutive, up to the last one. Entries up to the snapshot's index are kept for members that are behind."""


def bootstrap(voters: tuple[NodeId, ...]) -> Stored:
    """The initial state of every first voter of a new group, the same on each: an empty snapshot that lists all
    voters."""
    return Stored(HardState(), Snapshot(Index(1), Term(1), ConfState(voters=tuple(sorted(voters)))), ())


class _NodeStorage(MemoryStorage):
    """The in-memory copy of the log. It provides a snapshot only if that lists all members, as others cannot restore
    it."""

    def __init__(self) -> None:
        super().__init__()
        self.is_snapshot_wanted = False
        self.config: Callable[[], Configuration] = Configuration

    def snapshot(self) -> Snapshot:
        """`Storage`."""
        state = self.latest_snapshot.conf_state
        config = self.config()
        if not (config.voters.ids | config.learners).issubset(state.voters + state.voters_outgoing + state.learners):
            self.is_snapshot_wanted = True
            raise SnapshotTemporarilyUnavailableError
        return self.latest_snapshot


class Node:
    """One member. Not thread-safe. `now_ms` is monotonic."""

    def __init__(self, config: RaftConfig, stored: Stored, *, now_ms: int, tick_ms: int, catch_up_entries: int) -> None:
        """Start from the stored state. The state machine must be at the stored snapshot; it gets all later entries.

        A node without snapshot and entries belongs to no group until a leader sends it a snapshot. `catch_up_entries`:
        how many entries before a snapshot are kept for members that are a little behind.
        """
        self._storage = _storage_from(stored)
        self._raw = RawNode(
            replace(config, async_storage_writes=True, forward_proposals=False, step_down_on_removal=False),
            self._storage,
            applied=stored.snapshot.index,
        )
        self._storage.config = lambda: self._raw.raft.core.tracker.config
        self._tick_ms = tick_ms
        self._election_ticks = config.election_ticks
        self._last_tick_ms = now_ms
        self._expected_ticks = 0
        """Upper limit of the ticks that should have passed until this step, if the host is not delayed."""
        self.due_ms: int | None = now_ms
        """When the next `TimePassed` is needed: for a leader's heartbeats, or for the campaign of a voter without a
        leader. Other events advance the time, too. None if the passing of time changes nothing."""
        self._catch_up_entries = catch_up_entries
        self._writes: deque[tuple[int, Message]] = deque()
        self._write_number = 0
        self._applications: deque[Message] = deque()
        self._conf_state = stored.snapshot.conf_state
        self._reported_term = self._raw.raft.core.term

    def step(self, event: Event, now_ms: int) -> tuple[Effect, ...]:
        """Handle one event. Returns the effects to start, in order. After LogLostError the node must be stopped."""
        effects: list[Effect] = []
        self._tick(now_ms)
        self._handle(event, effects)
        while self._raw.has_ready():
            self._perform(self._raw.ready(), effects)
        self._update_due()
        if self._storage.is_snapshot_wanted:
            self._storage.is_snapshot_wanted = False
            effects.append(SnapshotWanted())
        return tuple(effects)

    @property
    def status(self) -> Status:
        """The state of the node for operators and metrics."""
        return self._raw.status

    @property
    def snapshot_point(self) -> Snapshot | None:
        """Index, term and members at the last applied entry. With the state machine's data added, it is a snapshot.

        None if nothing was applied since the last snapshot, or a leader's snapshot is being written.
        """
        log = self._raw.raft.log
        applied = log.applying.applied
        if log.unstable.snapshot is not None or applied <= self._storage.latest_snapshot.index:
            return None
        return Snapshot(applied, log.term(applied), self._conf_state)

    # --- events --------------------------------------------------------------------------------------------------

    def _tick(self, now_ms: int) -> None:
        """Run the ticks that are due.

        If this step comes an election timeout or more too late, because the process was paused, exactly two election
        timeouts of ticks run. A leader then checks its quorum twice, so that it steps down before it answers anything.
        """
        due = (now_ms - self._last_tick_ms) // self._tick_ms
        self._last_tick_ms += due * self._tick_ms
        was_paused = due - self._expected_ticks >= self._election_ticks
        for _ in range(2 * self._election_ticks if was_paused else due):
            self._raw.tick()
        if due > 0:
            self._hand_over_if_removed()
        self._lead_if_alone()

    def _update_due(self) -> None:
        ticks = self._raw.raft.ticks_until_due
        self._expected_ticks = ticks or 0
        self.due_ms = None if ticks is None else self._last_tick_ms + ticks * self._tick_ms

    def _lead_if_alone(self) -> None:
        """The only voter campaigns at once, so that a single broker serves as soon as it has started."""
        core = self._raw.raft.core
        config = core.tracker.config
        if core.role is Role.FOLLOWER and config.is_singleton and core.node_id in config.voters.incoming:
            self._raw.campaign()

    def _hand_over_if_removed(self) -> None:
        """A leader that was removed from the voters leads until it has transferred leadership.

        If it stepped down at once, the remaining voters could be stuck: those that do not know yet that the change is
        committed still need its vote, and it refuses them while it has entries that they lack.
        """
        if self._raw.raft.core.role is not Role.LEADER:  # this runs at every tick, and a status is a costly copy
            return
        status = self._raw.status
        voters = status.config.voters
        if status.node_id not in voters.ids and status.transferee == NOBODY:
            self._raw.transfer_leader(max(voters.incoming, key=lambda voter: status.progress[voter].match_index))

    def _handle(self, event: Event, effects: list[Effect]) -> None:
        match event:
            case TimePassed():
                pass
            case Received(message):
                self._received(message, effects)
            case Persisted(number):
                self._persisted(number, effects)
            case Applied(index):
                self._applied(index, effects)
            case Propose() | ProposeConfChange():
                self._propose(event, effects)
            case RequestRead(token, urgent):
                self._raw.read_index(_TOKEN.pack(token))
                if urgent and not self._raw.raft.core.config.eager_reads:
                    self._raw.beat()
            case TransferLeadership(to):
                self._raw.transfer_leader(to)
            case PeerUnreachable(node_id):
                self._raw.report_unreachable(node_id)
            case SnapshotSent(node_id, failed):
                self._raw.report_snapshot(node_id, failed=failed)
            case SnapshotTaken(snapshot):
                self._snapshot_taken(snapshot, effects)

    def _received(self, message: Message, effects: list[Effect]) -> None:
        try:
            self._raw.step(message)
        except (LocalMessageError, UnknownPeerError, WrongAddresseeError, ProposalDroppedError) as error:
            effects.append(Ignored(message, str(error)))

    def _propose(self, event: Propose | ProposeConfChange, effects: list[Effect]) -> None:
        log = self._raw.raft.log
        if isinstance(event, ProposeConfChange) and self._removes_this_leader(event.change):
            reason = (
                "this node is the leader, and the change would remove it from the voters: transfer leadership first"
            )
            effects.append(ProposalDropped(event.token, reason))
            return
        try:
            if isinstance(event, Propose):
                self._raw.propose(event.data)
            else:
                self._raw.propose_conf_change(event.change)
        except ProposalDroppedError as error:
            effects.append(ProposalDropped(event.token, str(error)))
            return
        (entry,) = log.slice(log.last_index(), Index(log.last_index() + 1))
        if isinstance(event, ProposeConfChange) and entry.type is EntryType.NORMAL:
            reason = (
                "the members cannot be changed like this now: another change is in progress, or this one is not "
                "possible"
            )
            effects.append(ProposalDropped(event.token, reason))
            return
        effects.append(ProposalAppended(event.token, entry.id))

    def _removes_this_leader(self, change: ConfChange | ConfChangeV2) -> bool:
        core = self._raw.raft.core
        if core.role is not Role.LEADER or core.node_id not in core.tracker.config.voters.incoming:
            return False
        try:
            config, _ = Changer(core.tracker, core.log.last_index()).change(
                change.as_v2 if isinstance(change, ConfChange) else change
            )
        except ConfChangeError:
            return False  # the core refuses it
        return core.node_id not in config.voters.incoming

    def _persisted(self, number: int, effects: list[Effect]) -> None:
        """Writes up to `number` are durable: copy them to the log in memory and deliver the messages that waited for
        them."""
        while self._writes and self._writes[0][0] <= number:
            _, write = self._writes.popleft()
            if write.term != 0:
                self._storage.hard_state = HardState(write.term, write.vote, write.commit)
            if write.snapshot is not None:
                self._storage.apply_snapshot(write.snapshot)
                self._conf_state = write.snapshot.conf_state
                effects.append(Restore(write.snapshot))
            self._storage.append(write.entries)
            self._deliver(write.responses, effects)

    def _applied(self, index: Index, effects: list[Effect]) -> None:
        while self._applications and self._applications[0].entries[-1].index <= index:
            application = self._applications.popleft()
            for entry in application.entries:
                if entry.type is not EntryType.NORMAL and not self._is_in_snapshot(entry.index):
                    self._conf_state = self._raw.apply_conf_change(decode_conf_change(entry))
                    effects.append(ConfigurationChanged(entry.index, self._conf_state))
            self._deliver(application.responses, effects)

    def _is_in_snapshot(self, index: Index) -> bool:
        """Whether a snapshot that arrived meanwhile includes the entry at `index`, and so its membership change."""
        log = self._raw.raft.log
        restored = log.unstable.snapshot
        return index <= (log.applying.applied if restored is None else restored.index)

    def _deliver(self, responses: tuple[Message, ...], effects: list[Effect]) -> None:
        for response in responses:
            if response.to == self._raw.raft.core.node_id:
                self._received(response, effects)
            else:
                effects.append(Send(response))

    def _snapshot_taken(self, snapshot: Snapshot, effects: list[Effect]) -> None:
        if snapshot.index <= self._storage.latest_snapshot.index:
            return  # the leader has sent a newer one meanwhile
        self._storage.create_snapshot(snapshot.index, snapshot.conf_state, snapshot.data)
        discard = Index(snapshot.index - self._catch_up_entries)
        if discard >= self._storage.first_index():
            self._storage.compact(discard)
            effects.append(DiscardLog(discard))

    # --- effects -------------------------------------------------------------------------------------------------

    def _perform(self, ready: Ready, effects: list[Effect]) -> None:
        core = self._raw.raft.core
        if ready.soft_state is not None or core.term != self._reported_term:
            self._reported_term = core.term
            effects.append(RoleChanged(core.role, core.lead, core.term))
        effects.extend(ReadReady(_TOKEN.unpack(state.context)[0], state.index) for state in ready.read_states)
        applications = [message for message in ready.messages if message.to == LOCAL_APPLY_THREAD]
        effects.extend(self._persist(message, ready) for message in ready.messages if message.to == LOCAL_APPEND_THREAD)
        effects.extend(Send(message) for message in ready.messages if message.to not in LOCAL_THREADS)
        self._applications.extend(applications)
        effects.extend(Apply(message.entries) for message in applications)

    def _persist(self, message: Message, ready: Ready) -> Persist:
        self._write_number += 1
        self._writes.append((self._write_number, message))
        must_sync = ready.must_sync or ready.snapshot is not None
        return Persist(self._write_number, ready.hard_state, ready.entries, ready.snapshot, must_sync)


def _storage_from(stored: Stored) -> _NodeStorage:
    storage = _NodeStorage()
    storage.load(stored.snapshot, stored.entries)
    if stored != Stored():
        # The commit index is written without a sync and may be lower than the snapshot's index.
        commit = max(stored.hard_state.commit, stored.snapshot.index)
        storage.hard_state = msgspec.structs.replace(stored.hard_state, commit=commit)
    return storage
