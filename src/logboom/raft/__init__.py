"""Row 2, pure: the consensus by which the brokers agree on one log of metadata, with the semantics of etcd-io/raft.

A group of members (voters, and learners that only follow) keeps copies of one log. One member leads: it appends what
is proposed, sends it to the others, and commits what a majority has made durable. Each member applies committed
entries, in order, to its state machine. Any minority may be dead, and nothing committed is lost. (Ongaro's thesis,
"Consensus: Bridging Theory and Practice"; section numbers in this package are of it. Where it leaves a choice, etcd's
holds.)

A `Node` is one member. It knows no clock, socket, file or chance: its host feeds it events and begins what it answers,
in that order. What must not be sent before something is durable is not among the effects until that is durable.

    node = Node(config, stored, now_ms=..., tick_ms=..., catch_up_entries=...)
    for event in what_happens():
        for effect in node.step(event, now_ms):
            match effect:
                case Persist(number): write it behind the writes before; when durable, feed Persisted(number)
                case Send(message):   encode_message, to the member named in message.to; it may get lost
                case Apply(entries):  give them to the state machine; when done, feed Applied(entries[-1].index)
                case Restore(snapshot): replace the state machine by snapshot.data
                case ConfigurationChanged(index, conf_state): connect to new members, forget old ones
                case ProposalAppended(token, entry_id) | ProposalDropped(token, reason): tell the proposer
                case ReadReady(token, index): answer the read once `index` is applied
                case RoleChanged(role, lead, term): tell who leads
                case SnapshotWanted(): take a snapshot soon, a member waits for it
                case DiscardLog(index): remove files that hold only entries up to index
                case Ignored(message, reason): count it

The events: `TimePassed` when it is `node.due_ms`, if it is ever, `Received` with `decode_message` of what
came, `Propose`, `ProposeConfChange`, `RequestRead`, `TransferLeadership`, `Persisted`, `Applied`, `PeerUnreachable`,
`SnapshotSent`, and `SnapshotTaken` for a snapshot that was begun as `node.snapshot_point`.

What a host must keep to:

- Writes become durable in the order in which they were asked for. A write that failed is never repeated: the node
  ends, and starts again from what its files hold (see `Stored`), if they hold all that was reported as durable.
- A node id stands for one log, for all time (`voters.Voter`): a member that lost its disk comes back as another one.
- The first voters of a group all start from the same `bootstrap`; every later member starts empty and is added.
- A leader serves only once an entry of its own term is applied: before, it does not know what is committed.
- A proposal whose index is applied with another term was lost. Until something is applied there, either may happen.

    messages, codec     what is stored and said, and its bytes         errors, events, config
    quorum, inflights, progress, tracker, confchange                   who has what; members and majorities
    storage, unstable, applying, log                                   the log, stable part and unstable end
    core, follower, candidate, leader, proposals, replication, read_only, raft    the state machine, each role by itself
    raw_node            Ready: what there is to write, send and apply  (etcd's RawNode; its transcripts run on it)
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
