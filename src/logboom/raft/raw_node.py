"""etcd's RawNode: a node with `step` and `tick` as input and `Ready` as output.

There are two ways to write, selected by `RaftConfig.async_storage_writes`:

- Off: a `Ready` holds what to store, send and apply. The host stores first, then sends, then applies, then calls
  `advance`. There is one `Ready` at a time.
- On: writes and applications are messages to LOCAL_APPEND_THREAD and LOCAL_APPLY_THREAD. The host processes those to
  one thread in order. Each contains the messages to deliver once it is done. Several may be in progress while other
  messages are sent: so the leader writes its entries at the same time as its followers do (section 10.2.1).
"""

from dataclasses import dataclass, replace
from typing import Final

from logboom.raft.codec import encode_conf_change
from logboom.raft.config import RaftConfig
from logboom.raft.errors import LocalMessageError, UnknownPeerError, WrongAddresseeError
from logboom.raft.messages import (
    LOCAL_APPEND_THREAD,
    LOCAL_APPLY_THREAD,
    LOCAL_MESSAGES,
    NOBODY,
    RESPONSES,
    ConfChange,
    ConfChangeV2,
    ConfState,
    Entry,
    EntryId,
    EntryType,
    HardState,
    Index,
    Message,
    MessageType,
    NodeId,
    Snapshot,
    SoftState,
    Term,
    entries_size,
)
from logboom.raft.raft import Raft
from logboom.raft.read_only import ReadState
from logboom.raft.status import Status, status_of
from logboom.raft.storage import Storage

LOCAL_THREADS: Final = (LOCAL_APPEND_THREAD, LOCAL_APPLY_THREAD)
NOTHING_APPLIED: Final = Index(0)


@dataclass(frozen=True, slots=True)
class Ready:
    """What the host has to do now. None and empty: nothing of this kind."""

    soft_state: SoftState | None
    hard_state: HardState | None
    read_states: tuple[ReadState, ...]
    entries: tuple[Entry, ...]
    snapshot: Snapshot | None
    committed_entries: tuple[Entry, ...]
    messages: tuple[Message, ...]
    must_sync: bool
    """Whether the write must be durable before the messages are sent. False if only the commit index has changed."""


class RawNode:
    """A node that is driven by `Ready`. Not thread-safe."""

    def __init__(self, config: RaftConfig, storage: Storage, *, applied: Index = NOTHING_APPLIED) -> None:
        """Start from `storage`. The application has already applied entries up to `applied`."""
        self.raft = Raft(config, storage, applied)
        self._async = config.async_storage_writes
        self._soft_state = self.raft.core.soft_state
        self._hard_state = self.raft.core.hard_state
        self._steps_on_advance: list[Message] = []

    # --- in --------------------------------------------------------------------------------------------------------

    def tick(self) -> None:
        """One tick has passed."""
        self.raft.tick()

    def step(self, message: Message) -> None:
        """Handle a message from the network, or the answer of a local thread.

        Raises LocalMessageError, UnknownPeerError or WrongAddresseeError for a message to ignore, ProposalDroppedError,
        and LogLostError, after which this node must be stopped.
        """
        is_local = message.sender in LOCAL_THREADS
        if message.type in LOCAL_MESSAGES and not is_local:
            raise LocalMessageError("raft: cannot step raft local message")
        if message.to not in (NOBODY, self.raft.core.node_id):
            raise WrongAddresseeError(f"a message for node {message.to:x} came to node {self.raft.core.node_id:x}")
        if message.type in RESPONSES and not is_local and message.sender not in self.raft.core.tracker.progress:
            raise UnknownPeerError("raft: cannot step as peer not found")
        self.raft.step(message)

    def campaign(self) -> None:
        """Start an election now."""
        self.raft.step(Message(type=MessageType.HUP))

    def propose(self, data: bytes) -> None:
        """Propose an entry. Raises ProposalDroppedError if it was not appended. An appended one may still be lost."""
        self._propose(EntryType.NORMAL, data)

    def propose_conf_change(self, change: ConfChange | ConfChangeV2) -> None:
        """Propose a change of the configuration. Raises ProposalDroppedError.

        A change that is not possible now becomes an empty entry in the log.
        """
        self._propose(*encode_conf_change(change))

    def _propose(self, kind: EntryType, data: bytes) -> None:
        entry = Entry(Term(0), Index(0), kind, data)
        self.raft.step(Message(type=MessageType.PROP, sender=self.raft.core.node_id, entries=(entry,)))

    def apply_conf_change(self, change: ConfChangeV2) -> ConfState:
        """Apply a committed change. Returns the configuration to store in snapshots from now on."""
        return self.raft.apply_conf_change(change)

    def read_index(self, context: bytes) -> None:
        """Request a read index. The answer is a `ReadState` with this context. It may never come; then ask again."""
        self.raft.step(Message(type=MessageType.READ_INDEX, entries=(Entry(Term(0), Index(0), data=context),)))

    def beat(self) -> None:
        """Send heartbeats now, if this node leads."""
        self.raft.step(Message(type=MessageType.BEAT))

    def transfer_leader(self, transferee: NodeId) -> None:
        """Ask the leader, which may be this node, to transfer leadership to `transferee`."""
        self.raft.step(Message(type=MessageType.TRANSFER_LEADER, sender=transferee))

    def forget_leader(self) -> None:
        """On a follower: forget the leader, so that this node may vote for another one at once."""
        self.raft.step(Message(type=MessageType.FORGET_LEADER))

    def report_unreachable(self, node_id: NodeId) -> None:
        """Report that the last messages to that node were probably lost."""
        self.raft.step(Message(type=MessageType.UNREACHABLE, sender=node_id))

    def report_snapshot(self, node_id: NodeId, *, failed: bool) -> None:
        """Report that the snapshot was delivered to that node, or could not be."""
        self.raft.step(Message(type=MessageType.SNAP_STATUS, sender=node_id, reject=failed))

    # --- out -------------------------------------------------------------------------------------------------------

    @property
    def status(self) -> Status:
        """The state of the node for operators and metrics."""
        return status_of(self.raft)

    def has_ready(self) -> bool:
        """Whether `ready` would return any work."""
        core, log = self.raft.core, self.raft.log
        return bool(
            core.soft_state != self._soft_state
            or core.hard_state != self._hard_state
            or log.unstable.next_snapshot() is not None
            or core.messages
            or core.messages_after_append
            or log.unstable.next_entries()
            or log.has_next_committed(allow_unstable=not self._async)
            or core.read_states
        )

    def ready(self) -> Ready:
        """Return the work to do, once. Without asynchronous writes, the caller must call `advance` after doing it."""
        assert not self._steps_on_advance, "a Ready was not followed by advance"
        core, log = self.raft.core, self.raft.log
        soft_state, hard_state = core.soft_state, core.hard_state
        entries = log.unstable.next_entries()
        voted = (hard_state.term, hard_state.vote) != (self._hard_state.term, self._hard_state.vote)
        ready = Ready(
            soft_state=soft_state if soft_state != self._soft_state else None,
            hard_state=hard_state if hard_state != self._hard_state else None,
            read_states=tuple(core.read_states),
            entries=entries,
            snapshot=log.unstable.next_snapshot(),
            committed_entries=log.next_committed(allow_unstable=not self._async),
            messages=tuple(core.messages),
            must_sync=bool(entries) or voted,
        )
        after_append = [*core.messages_after_append, *self._append_responses(ready)]
        after_apply = self._apply_responses(ready)
        if self._async:
            writes = self._storage_messages(ready, tuple(after_append), after_apply)
            ready = replace(ready, messages=ready.messages + writes)
        else:
            to_others = tuple(message for message in after_append if message.to != core.node_id)
            ready = replace(ready, messages=ready.messages + to_others)
            self._steps_on_advance = [message for message in after_append if message.to == core.node_id]
            self._steps_on_advance.extend(after_apply)
        self._accept(ready)
        return ready

    def advance(self) -> None:
        """The last `Ready` is stored, sent and applied. Not with asynchronous writes."""
        assert not self._async, "with asynchronous writes, the answers of the local threads replace advance"
        steps, self._steps_on_advance = self._steps_on_advance, []
        for message in steps:
            self.raft.step(message)

    def _accept(self, ready: Ready) -> None:
        core, log = self.raft.core, self.raft.log
        self._soft_state = core.soft_state
        self._hard_state = core.hard_state
        core.read_states = []
        core.messages = []
        core.messages_after_append = []
        log.unstable.accept_in_progress()
        if ready.committed_entries:
            last = ready.committed_entries[-1].index
            log.accept_applying(last, entries_size(ready.committed_entries), allow_unstable=not self._async)

    def _append_responses(self, ready: Ready) -> tuple[Message, ...]:
        """The message that reports the unstable log as durable to the core. It is delivered after those to other nodes.

        It has the last entry of the whole unstable log, and the term in which the write begins. It counts only if the
        node is still in that term. Example: during one write, this node receives entries from leader A, then others for
        the same indexes from leader B, then A's again. When the first write is done, the last entry seems durable. But
        B's entries will still be written over it, and a read of the stable log would return them until A's are written
        again. Within one term this cannot happen, because a leader never replaces its own entries. Ignoring an answer
        loses nothing: each new term is written, too, and the answer to that write has the same last entry.
        """
        log = self.raft.log
        if not log.unstable.entries and ready.snapshot is None:
            return ()
        last = log.last_id() if log.unstable.entries else EntryId(Term(0), Index(0))
        return (
            Message(
                type=MessageType.STORAGE_APPEND_RESP,
                to=self.raft.core.node_id,
                sender=LOCAL_APPEND_THREAD,
                term=self.raft.core.term,
                index=last.index,
                log_term=last.term,
                snapshot=ready.snapshot,
            ),
        )

    def _apply_responses(self, ready: Ready) -> tuple[Message, ...]:
        """The message that reports the entries as applied to the core. It has no term: committed entries are valid in
        every term."""
        if not ready.committed_entries:
            return ()
        return (
            Message(
                type=MessageType.STORAGE_APPLY_RESP,
                to=self.raft.core.node_id,
                sender=LOCAL_APPLY_THREAD,
                entries=ready.committed_entries,
            ),
        )

    def _storage_messages(
        self, ready: Ready, after_append: tuple[Message, ...], after_apply: tuple[Message, ...]
    ) -> tuple[Message, ...]:
        """The writes of a `Ready` as messages to the local threads."""
        messages = []
        waiting = self.raft.core.messages_after_append
        if ready.entries or ready.hard_state is not None or ready.snapshot is not None or waiting:
            state = ready.hard_state or HardState()
            messages.append(
                Message(
                    type=MessageType.STORAGE_APPEND,
                    to=LOCAL_APPEND_THREAD,
                    sender=self.raft.core.node_id,
                    term=state.term,
                    vote=state.vote,
                    commit=state.commit,
                    entries=ready.entries,
                    snapshot=ready.snapshot,
                    responses=after_append,
                )
            )
        if ready.committed_entries:
            messages.append(
                Message(
                    type=MessageType.STORAGE_APPLY,
                    to=LOCAL_APPLY_THREAD,
                    sender=self.raft.core.node_id,
                    entries=ready.committed_entries,
                    responses=after_apply,
                )
            )
        return tuple(messages)
