"""Raft consensus, with the semantics of etcd-io/raft: the brokers agree on one log of metadata. Row 2, pure.

A group of members (voters, and learners that only follow) keeps copies of one log. One member is the leader: it appends
proposals to its log, replicates them to the other members, and commits an entry once a majority has it on disk. Each
member applies committed entries, in order, to its state machine. The group works while a majority of the voters is up,
and no committed entry is lost. The source is Ongaro's thesis, "Consensus: Bridging Theory and Practice"; section
numbers in this package refer to it. Where the thesis leaves a choice, this package does what etcd does.

A `Node` is one member. It uses no clock, socket, file or random source. Its host passes it events and starts the
effects that it returns, in their order. A message that depends on a write is returned only after the host has reported
that write as durable.

    node = Node(config, stored, now_ms=..., tick_ms=..., catch_up_entries=...)
    for event in incoming_events():
        for effect in node.step(event, now_ms):
            match effect:
                case Persist(number): write it after all earlier writes; when durable, pass Persisted(number)
                case Send(message):   send encode_message(message) to the member message.to; it may get lost
                case Apply(entries):  apply them to the state machine; when done, pass Applied(entries[-1].index)
                case Restore(snapshot): replace the state machine by snapshot.data
                case ConfigurationChanged(index, conf_state): connect to new members, forget old ones
                case ProposalAppended(token, entry_id) | ProposalDropped(token, reason): notify the proposer
                case ReadReady(token, index): answer the read once `index` is applied
                case RoleChanged(role, lead, term): publish who leads
                case SnapshotWanted(): take a snapshot soon; a member is waiting for it
                case DiscardLog(index): delete files that contain only entries up to index
                case Ignored(message, reason): count it

The events: `TimePassed` at `node.due_ms` (unless that is None), `Received` with the result of `decode_message`,
`Propose`, `ProposeConfChange`, `RequestRead`, `TransferLeadership`, `Persisted`, `Applied`, `PeerUnreachable`,
`SnapshotSent`, and `SnapshotTaken` for a snapshot that was started from `node.snapshot_point`.

Rules for the host:

- Writes become durable in the order of their `Persist` effects. A failed write is never retried: the node is stopped.
  It may start again from its files (see `Stored`) if they hold everything that was reported as durable.
- A node id belongs to one log forever (`voters.Voter`): a member that lost its disk returns with a new id.
- The first voters of a group all start from the same `bootstrap`; every later member starts empty and is added.
- A leader serves requests only after an entry of its own term is applied. Before that, it does not know which entries
  are committed.
- If an entry of another term is applied at the index of a proposal, the proposal was lost. Until an entry is applied at
  that index, the outcome is unknown.

    messages, codec     data that is stored and sent, and its encoding     errors, events, config
    quorum, inflights, progress, tracker, confchange    majorities, state of each follower, membership changes
    storage, unstable, applying, log                    the log: its stable part and its unstable end
    core, follower, candidate, leader, proposals, replication, read_only, raft    the state machine and its roles
    raw_node            `Ready`: what to write, send and apply (etcd's RawNode; etcd's transcripts run on it)
    node                the events and effects above
"""

from logboom.raft.codec import decode_conf_change, decode_message, encode_message
from logboom.raft.config import RaftConfig
from logboom.raft.errors import (
    ConfChangeError,
    InvalidMessageError,
    LogLostError,
    ProposalDroppedError,
    RaftError,
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
    NOBODY,
    ConfChange,
    ConfChangeSingle,
    ConfChangeTransition,
    ConfChangeType,
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
    Role,
    Snapshot,
    Term,
)
from logboom.raft.node import Node, Stored, bootstrap
from logboom.raft.read_only import ReadOnlyOption
from logboom.raft.status import Status
from logboom.raft.voters import Voter

__all__ = [
    "NOBODY",
    "Applied",
    "Apply",
    "ConfChange",
    "ConfChangeError",
    "ConfChangeSingle",
    "ConfChangeTransition",
    "ConfChangeType",
    "ConfChangeV2",
    "ConfState",
    "ConfigurationChanged",
    "DiscardLog",
    "Effect",
    "Entry",
    "EntryId",
    "EntryType",
    "Event",
    "HardState",
    "Ignored",
    "Index",
    "InvalidMessageError",
    "LogLostError",
    "Message",
    "MessageType",
    "Node",
    "NodeId",
    "PeerUnreachable",
    "Persist",
    "Persisted",
    "ProposalAppended",
    "ProposalDropped",
    "ProposalDroppedError",
    "Propose",
    "ProposeConfChange",
    "RaftConfig",
    "RaftError",
    "ReadOnlyOption",
    "ReadReady",
    "Received",
    "RequestRead",
    "Restore",
    "Role",
    "RoleChanged",
    "Send",
    "Snapshot",
    "SnapshotSent",
    "SnapshotTaken",
    "SnapshotWanted",
    "Status",
    "Stored",
    "Term",
    "TimePassed",
    "TransferLeadership",
    "Voter",
    "bootstrap",
    "decode_conf_change",
    "decode_message",
    "encode_message",
]
