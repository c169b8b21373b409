"""What happens to a `Node`, and what it asks its host to do about it."""

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
    """Nothing but time; when it is `Node.due_ms` is often enough."""


@dataclass(frozen=True, slots=True)
class Received:
    """A message of another node, as `codec.decode_message` gave it."""

    message: Message


@dataclass(frozen=True, slots=True)
class Persisted:
    """The write of that number and all before it are durable."""

    number: int


@dataclass(frozen=True, slots=True)
class Applied:
    """The state machine has applied everything up to `index` that it was given."""

    index: Index


@dataclass(frozen=True, slots=True)
class Propose:
    """Put `data` into the log, if this node leads. `token` names the proposal in the answer."""

    token: object
    data: bytes


@dataclass(frozen=True, slots=True)
class ProposeConfChange:
    """Change the members, if this node leads and no other change is under way."""

    token: object
    change: ConfChange | ConfChangeV2


@dataclass(frozen=True, slots=True)
class RequestRead:
    """Find out what index the state machine must have applied before a read may be answered. `token` is unique on this
    node. One that is not `urgent` may wait for the next heartbeats (`RaftConfig.eager_reads`)."""

    token: int
    urgent: bool = True


@dataclass(frozen=True, slots=True)
class TransferLeadership:
    """Have `to` lead, if this node does."""

    to: NodeId


@dataclass(frozen=True, slots=True)
class PeerUnreachable:
    """What was last sent to a node most likely did not arrive."""

    node_id: NodeId


@dataclass(frozen=True, slots=True)
class SnapshotSent:
    """A SNAP message was handed over to its addressee, or could not be."""

    node_id: NodeId
    failed: bool


@dataclass(frozen=True, slots=True)
class SnapshotTaken:
    """A snapshot of the state machine, begun as `Node.snapshot_point` and with its data now, is durable."""

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
    """Begin to write these, after all writes before; when durable, feed `Persisted(number)`.

    A snapshot replaces the whole log. Entries replace those that stand at their indexes and after.
    """

    number: int
    hard_state: HardState | None
    entries: tuple[Entry, ...]
    snapshot: Snapshot | None
    must_sync: bool
    """False if only the commit index has moved: then `Persisted` may follow the write without a sync."""


@dataclass(frozen=True, slots=True)
class Send:
    """Send a message. It may be lost, late, repeated and overtaken; nothing in it is more than what is durable.

    For each SNAP feed `SnapshotSent`, also where it was lost: until then its addressee is sent nothing else.
    """

    message: Message


@dataclass(frozen=True, slots=True)
class Restore:
    """Replace the state machine by this snapshot."""

    snapshot: Snapshot


@dataclass(frozen=True, slots=True)
class Apply:
    """Apply committed entries, in order, and feed `Applied`. Changes of members need nothing but that."""

    entries: tuple[Entry, ...]


@dataclass(frozen=True, slots=True)
class ConfigurationChanged:
    """From the entry at `index` on these are the members.

    A node that is not among them any more goes on until it neither leads nor has a leader: the others may need it.
    """

    index: Index
    conf_state: ConfState


@dataclass(frozen=True, slots=True)
class ProposalAppended:
    """The proposal is in the log at `entry_id`, not committed yet. If another entry is applied at that index, it was
    lost."""

    token: object
    entry_id: EntryId


@dataclass(frozen=True, slots=True)
class ProposalDropped:
    """The proposal is not in the log: this node does not lead, hands leadership over, or has too much uncommitted; or
    the change of members is not possible now."""

    token: object
    reason: str


@dataclass(frozen=True, slots=True)
class ReadReady:
    """The read may be answered once everything up to `index` is applied."""

    token: int
    index: Index


@dataclass(frozen=True, slots=True)
class RoleChanged:
    """What this node is now, and whom it follows. A leader serves once an entry of its term is applied (rule 11)."""

    role: Role
    lead: NodeId
    term: Term


@dataclass(frozen=True, slots=True)
class Ignored:
    """A message was ignored."""

    message: Message
    reason: str


@dataclass(frozen=True, slots=True)
class SnapshotWanted:
    """A member needs a snapshot, and the last one does not name it as a member, or another one: take one now."""


@dataclass(frozen=True, slots=True)
class DiscardLog:
    """Entries up to `index` are not needed any more; their files may go."""

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
