"""A node as its host drives it: `step` and `tick` in, `Ready` out. What etcd calls RawNode.

Two ways to write, by `RaftConfig.async_storage_writes`:

- Without: a `Ready` names what to store, what to send and what to apply. The host stores first, then sends, then
  applies, then calls `advance`; there is one `Ready` at a time.
- With: writes and applications are messages to LOCAL_APPEND_THREAD and LOCAL_APPLY_THREAD among the others. Those to
  one thread are done in order; each carries the messages to deliver once it is done. Several may be under way, and
  other messages go out meanwhile: a leader's entries are written at the same time as its followers' (section 10.2.1).
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
    """What the host has to do now. None and empty mean: nothing of this kind."""

    soft_state: SoftState | None
    hard_state: HardState | None
    read_states: tuple[ReadState, ...]
    entries: tuple[Entry, ...]
    snapshot: Snapshot | None
    committed_entries: tuple[Entry, ...]
    messages: tuple[Message, ...]
    must_sync: bool
    """Whether the write must be durable before anything is sent. A commit index alone need not be."""


class RawNode:
    """See the module. One caller at a time."""

    def __init__(self, config: RaftConfig, storage: Storage, *, applied: Index = NOTHING_APPLIED) -> None:
        """Start from what `storage` holds; `applied`: how far the state machine has already got by itself."""
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
        """Take a message that came over the network, or the answer of a local thread.

        Raises LocalMessageError, UnknownPeerError, WrongAddresseeError (all: it is to be ignored),
        ProposalDroppedError, and LogLostError, after which this node must not go on.
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
        """Try to be elected now."""
        self.raft.step(Message(type=MessageType.HUP))

    def propose(self, data: bytes) -> None:
        """Propose an entry. Raises ProposalDroppedError; otherwise it may or may not be committed."""
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
        """A committed change is applied now; gives the configuration to store with snapshots from here on."""
        return self.raft.apply_conf_change(change)

    def read_index(self, context: bytes) -> None:
        """Ask for an index to read at; it comes as a `ReadState` with this context, or never: then ask again."""
        self.raft.step(Message(type=MessageType.READ_INDEX, entries=(Entry(Term(0), Index(0), data=context),)))

    def beat(self) -> None:
        """Send heartbeats now, if this node leads."""
        self.raft.step(Message(type=MessageType.BEAT))

    def transfer_leader(self, transferee: NodeId) -> None:
        """Ask the leader, which may be this node, to hand leadership to `transferee`."""
        self.raft.step(Message(type=MessageType.TRANSFER_LEADER, sender=transferee))

    def forget_leader(self) -> None:
        """On a follower: vote from now on as if the leader had been silent."""
        self.raft.step(Message(type=MessageType.FORGET_LEADER))

    def report_unreachable(self, node_id: NodeId) -> None:
        """What was last sent to that node most likely did not arrive."""
        self.raft.step(Message(type=MessageType.UNREACHABLE, sender=node_id))

    def report_snapshot(self, node_id: NodeId, *, failed: bool) -> None:
        """The snapshot was sent to that node, or could not be."""
        self.raft.step(Message(type=MessageType.SNAP_STATUS, sender=node_id, reject=failed))

    # --- out -------------------------------------------------------------------------------------------------------

    @property
    def status(self) -> Status:
        """The state of the node for people and metrics."""
        return status_of(self.raft)

    def has_ready(self) -> bool:
        """Whether `ready` would give anything to do."""
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
        """What there is to do. It is taken as begun; without asynchronous writes `advance` must follow."""
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
        assert not self._async, "the answers of the local threads take the place of advance"
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
        """What tells the core that the unstable log is durable; after the messages that others wait for.

        It names the last entry of the whole unstable log, and the term in which the write begins. Say this node takes
        entries from leader A, then others for the same indexes from leader B, then A's again, all while the first
        write is under way. When that write is done, the last entry looks durable; but B's entries are still to be
        written over it, and a read of the stable log would find them until A's are written again. So an answer counts
        only in the term in which its write began: within a term, one leader's entries never replace one another.
        Answers that are ignored for that leave nothing behind: each new term is written, too, and the answer to that
        names the same last entry.
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
        """What tells the core that the entries are applied. They are committed, which holds in every term."""
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
