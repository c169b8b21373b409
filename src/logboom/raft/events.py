"""The events that a host passes to a `Node`, and the effects that the `Node` returns."""

from dataclasses import dataclass

from logboom.raft.messages import (
    ConfChange,
    ConfChangeV2,
    ConfState,
    Entry,
    EntryId,
    HardState,
    Index,
    Message,
    NodeId,
    Role,
    Snapshot,
    Term,
)

# --- events ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TimePassed:
    """Time has passed. A host needs to send this only at `Node.due_ms`."""


@dataclass(frozen=True, slots=True)
class Received:
    """A message of another node, decoded by `codec.decode_message`."""

    message: Message


@dataclass(frozen=True, slots=True)
class Persisted:
    """The write with that number and all before it are durable."""

    number: int


@dataclass(frozen=True, slots=True)
class Applied:
    """The state machine has applied the entries up to `index`."""

    index: Index


@dataclass(frozen=True, slots=True)
class Propose:
    """Append `data` to the log, if this node leads. `ProposalAppended` or `ProposalDropped` carries the same
    `token`."""

    token: object
    data: bytes


@dataclass(frozen=True, slots=True)
class ProposeConfChange:
    """Change the members, if this node leads and no other change is in progress."""

    token: object
    change: ConfChange | ConfChangeV2


@dataclass(frozen=True, slots=True)
class RequestRead:
    """Ask for the index that the state machine must have applied before a read may be answered. `token` is unique on
    this node. A request that is not `urgent` may wait for the next heartbeats (`RaftConfig.eager_reads`)."""

    token: int
    urgent: bool = True


@dataclass(frozen=True, slots=True)
class TransferLeadership:
    """Transfer leadership to `to`, if this node leads."""

    to: NodeId


@dataclass(frozen=True, slots=True)
class PeerUnreachable:
    """The last messages to a node were probably lost."""

    node_id: NodeId


@dataclass(frozen=True, slots=True)
class SnapshotSent:
    """A SNAP message was delivered to its receiver, or could not be."""

    node_id: NodeId
    failed: bool


@dataclass(frozen=True, slots=True)
class SnapshotTaken:
    """A snapshot of the state machine, started from `Node.snapshot_point`, is complete and durable."""

    snapshot: Snapshot


Event = (
    TimePassed
    | Received
    | Persisted
    | Applied
    | Propose
    | ProposeConfChange
    | RequestRead
    | TransferLeadership
    | PeerUnreachable
    | SnapshotSent
    | SnapshotTaken
)

# --- effects -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Persist:
    """Write these after all earlier writes; when they are durable, pass `Persisted(number)`.

    A snapshot replaces the whole log. Entries replace all stored entries from the first one's index on.
    """

    number: int
    hard_state: HardState | None
    entries: tuple[Entry, ...]
    snapshot: Snapshot | None
    must_sync: bool
    """False if only the commit index has changed: then `Persisted` may follow the write without a sync."""


@dataclass(frozen=True, slots=True)
class Send:
    """Send a message. It may be lost, delayed, repeated or reordered. It depends on nothing that is not durable.

    For each SNAP message pass `SnapshotSent`, even if it was lost: until then the receiver gets no entries.
    """

    message: Message


@dataclass(frozen=True, slots=True)
class Restore:
    """Replace the state machine by this snapshot."""

    snapshot: Snapshot


@dataclass(frozen=True, slots=True)
class Apply:
    """Apply committed entries, in order, and pass `Applied`. For entries with membership changes the host does nothing
    else."""

    entries: tuple[Entry, ...]


@dataclass(frozen=True, slots=True)
class ConfigurationChanged:
    """The members, from the entry at `index` on.

    A removed node must run until it neither leads nor has a leader: the others may still need it.
    """

    index: Index
    conf_state: ConfState


@dataclass(frozen=True, slots=True)
class ProposalAppended:
    """The proposal is in the log at `entry_id`, not committed yet. If an entry of another term is applied at that
    index, the proposal was lost."""

    token: object
    entry_id: EntryId


@dataclass(frozen=True, slots=True)
class ProposalDropped:
    """The proposal was not appended: this node does not lead, is transferring leadership, or has too many uncommitted
    bytes; or the membership change is not possible now."""

    token: object
    reason: str


@dataclass(frozen=True, slots=True)
class ReadReady:
    """The read may be answered once the entries up to `index` are applied."""

    token: int
    index: Index


@dataclass(frozen=True, slots=True)
class RoleChanged:
    """The role of this node, and the leader that it follows. A leader serves requests once an entry of its term is
    applied."""

    role: Role
    lead: NodeId
    term: Term


@dataclass(frozen=True, slots=True)
class Ignored:
    """A message was ignored, for a reason that may be logged."""

    message: Message
    reason: str


@dataclass(frozen=True, slots=True)
class SnapshotWanted:
    """A member needs a snapshot, but the last one does not list all current members: take a new one now."""


@dataclass(frozen=True, slots=True)
class DiscardLog:
    """Entries up to `index` are not needed any more; files with only such entries may be deleted."""

    index: Index


Effect = (
    Persist
    | Send
    | Restore
    | Apply
    | ConfigurationChanged
    | ProposalAppended
    | ProposalDropped
    | ReadReady
    | RoleChanged
    | Ignored
    | DiscardLog
    | SnapshotWanted
)
