"""The data that Raft nodes store and exchange: entries, snapshots, hard state, membership, messages.

Names and numbers follow etcd's raftpb, so that a message can be compared with etcd's field by field. All types are
immutable; forwarding a message copies it with another receiver. `codec` encodes messages.
"""

from collections.abc import Iterable
from enum import Enum, IntEnum
from typing import Final, NewType

import msgspec

NodeId = NewType("NodeId", int)
"""A member of the group, from 1 to 2^64 - 3. An id belongs to one member with one log and is never reused (etcd: "an ID
represents a unique node in a cluster for all time"). 0 means no node."""

Term = NewType("Term", int)
"""Number of an election. A term has at most one leader (thesis, section 3.2)."""

Index = NewType("Index", int)
"""Position of an entry in the log. The first entry has index 1; 0 means before the first."""

NOBODY: Final = NodeId(0)
LOCAL_APPEND_THREAD: Final = NodeId(2**64 - 1)
"""The receiver of writes to this node's log, with asynchronous storage writes."""

LOCAL_APPLY_THREAD: Final = NodeId(2**64 - 2)
"""The receiver of entries that this node must apply, with asynchronous storage writes."""

NO_LIMIT: Final = 2**64 - 1
TERM_MAX: Final = Term(2**31 - 1)
"""Files store an entry's term as the leader epoch of Kafka's record batch, a signed integer of 32 bits."""


class EntryType(IntEnum):
    """The kind of data in an entry."""

    NORMAL = 0
    """Data of the state machine; empty in the entry with which a leader begins its term."""

    CONF_CHANGE = 1
    """A change of one member, encoded `ConfChange`."""

    CONF_CHANGE_V2 = 2
    """A change of several members, or the end of a joint configuration, encoded `ConfChangeV2` (empty: the end)."""


class EntryId(msgspec.Struct, frozen=True, array_like=True):
    """Identifies an entry: a term has one leader, which never writes two entries at one index."""

    term: Term
    index: Index


class Entry(msgspec.Struct, frozen=True, array_like=True):
    """One entry of the log."""

    term: Term
    index: Index
    type: EntryType = EntryType.NORMAL
    data: bytes = b""

    @property
    def id(self) -> EntryId:
        """Term and index of the entry."""
        return EntryId(self.term, self.index)


class ConfState(msgspec.Struct, frozen=True, array_like=True):
    """A configuration as it is stored with a snapshot.

    While `voters_outgoing` is not empty, the configuration is joint: a decision needs a majority of each set (thesis,
    section 4.3).
    """

    voters: tuple[NodeId, ...] = ()
    learners: tuple[NodeId, ...] = ()
    voters_outgoing: tuple[NodeId, ...] = ()
    learners_next: tuple[NodeId, ...] = ()
    """Outgoing voters that become learners when the joint configuration ends."""

    auto_leave: bool = False
    """Whether the leader ends the joint configuration without a request."""

    def in_order(self) -> "ConfState":
        """The same configuration with each tuple sorted."""
        return ConfState(
            tuple(sorted(self.voters)),
            tuple(sorted(self.learners)),
            tuple(sorted(self.voters_outgoing)),
            tuple(sorted(self.learners_next)),
            self.auto_leave,
        )


class Snapshot(msgspec.Struct, frozen=True, array_like=True):
    """The state machine after the entry at `index`, and the configuration at that index."""

    index: Index = Index(0)
    term: Term = Term(0)
    conf_state: ConfState = ConfState()
    data: bytes = b""

    @property
    def is_empty(self) -> bool:
        """True for the value that means "no snapshot"."""
        return self.index == 0


class HardState(msgspec.Struct, frozen=True, array_like=True):
    """State that must be durable before messages that depend on it are sent (thesis, section 3.8)."""

    term: Term = Term(0)
    vote: NodeId = NOBODY
    commit: Index = Index(0)
    """Safety does not need this to be durable; it lets a restarted node continue from here."""

    @property
    def is_empty(self) -> bool:
        """Whether no state was stored yet."""
        return self == HardState()


class Role(Enum):
    """The role of a node in its term. The values are etcd's names."""

    FOLLOWER = "StateFollower"
    CANDIDATE = "StateCandidate"
    LEADER = "StateLeader"
    PRE_CANDIDATE = "StatePreCandidate"


class SoftState(msgspec.Struct, frozen=True):
    """State that is not stored: the leader that this node knows, and its own role."""

    lead: NodeId
    role: Role


class ConfChangeType(IntEnum):
    """How one member changes."""

    ADD_NODE = 0
    REMOVE_NODE = 1
    UPDATE_NODE = 2
    """Changes nothing in the configuration. Used to store a new `context` for a member."""

    ADD_LEARNER_NODE = 3


class ConfChangeTransition(IntEnum):
    """Whether a change goes through a joint configuration, and how that ends."""

    AUTO = 0
    """Directly for a single change; otherwise through a joint configuration that the leader ends by itself."""

    JOINT_IMPLICIT = 1
    """Through a joint configuration that the leader ends by itself."""

    JOINT_EXPLICIT = 2
    """Through a joint configuration that stays until an empty change is proposed."""


class ConfChangeSingle(msgspec.Struct, frozen=True, array_like=True):
    """A change of one member. With node 0 it is ignored: the application has cancelled it."""

    type: ConfChangeType
    node_id: NodeId


class ConfChangeV2(msgspec.Struct, frozen=True, array_like=True):
    """Changes that take effect together. Without changes and with transition AUTO: leave the joint configuration."""

    changes: tuple[ConfChangeSingle, ...] = ()
    transition: ConfChangeTransition = ConfChangeTransition.AUTO
    context: bytes = b""
    """Data of the application, for example the broker of a node id and its address."""

    @property
    def leaves_joint(self) -> bool:
        """Whether this change ends a joint configuration."""
        return self.transition is ConfChangeTransition.AUTO and not self.changes

    @property
    def enters_joint(self) -> bool:
        """Whether this change goes through a joint configuration. As in etcd, any two changes do, even if they need
        not."""
        return self.transition is not ConfChangeTransition.AUTO or len(self.changes) > 1

    @property
    def auto_leave(self) -> bool:
        """Whether the leader ends the joint configuration of this change by itself."""
        return self.transition is not ConfChangeTransition.JOINT_EXPLICIT


class ConfChange(msgspec.Struct, frozen=True, array_like=True):
    """A change of one member, which overlapping majorities make safe without a joint configuration (section 4.1)."""

    change: ConfChangeSingle
    context: bytes = b""

    @property
    def as_v2(self) -> ConfChangeV2:
        """The same change in the general form."""
        return ConfChangeV2((self.change,), ConfChangeTransition.AUTO, self.context)


class MessageType(IntEnum):
    """Message types, with the numbers of raftpb. Each type is documented where it is handled."""

    HUP = 0
    BEAT = 1
    PROP = 2
    APP = 3
    APP_RESP = 4
    VOTE = 5
    VOTE_RESP = 6
    SNAP = 7
    HEARTBEAT = 8
    HEARTBEAT_RESP = 9
    UNREACHABLE = 10
    SNAP_STATUS = 11
    CHECK_QUORUM = 12
    TRANSFER_LEADER = 13
    TIMEOUT_NOW = 14
    READ_INDEX = 15
    READ_INDEX_RESP = 16
    PRE_VOTE = 17
    PRE_VOTE_RESP = 18
    STORAGE_APPEND = 19
    STORAGE_APPEND_RESP = 20
    STORAGE_APPLY = 21
    STORAGE_APPLY_RESP = 22
    FORGET_LEADER = 23


LOCAL_MESSAGES: Final = frozenset(
    {
        MessageType.HUP,
        MessageType.BEAT,
        MessageType.UNREACHABLE,
        MessageType.SNAP_STATUS,
        MessageType.CHECK_QUORUM,
        MessageType.STORAGE_APPEND,
        MessageType.STORAGE_APPEND_RESP,
        MessageType.STORAGE_APPLY,
        MessageType.STORAGE_APPLY_RESP,
    }
)
"""Types that a node sends only to itself."""

RESPONSES: Final = frozenset(
    {
        MessageType.APP_RESP,
        MessageType.VOTE_RESP,
        MessageType.HEARTBEAT_RESP,
        MessageType.UNREACHABLE,
        MessageType.READ_INDEX_RESP,
        MessageType.PRE_VOTE_RESP,
        MessageType.STORAGE_APPEND_RESP,
        MessageType.STORAGE_APPLY_RESP,
    }
)
"""Types of responses. A response of a node that is not a member is ignored."""

SENT_AFTER_APPEND: Final = frozenset({MessageType.APP_RESP, MessageType.VOTE_RESP, MessageType.PRE_VOTE_RESP})
"""Types that promise something about this node's log or vote: they are sent after that is durable (section 3.8)."""


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """One message. Its type decides which fields are used; the others have their defaults."""

    type: MessageType
    to: NodeId = NOBODY
    sender: NodeId = NOBODY
    term: Term = Term(0)
    """0 for messages without a term: local ones, and proposals and reads that are forwarded to the leader."""

    log_term: Term = Term(0)
    """APP: the term of the entry before `entries`. Votes: the term of the candidate's last entry."""

    index: Index = Index(0)
    """APP: the index of the entry before `entries`. APP_RESP: the index that is acknowledged or rejected."""

    entries: tuple[Entry, ...] = ()
    commit: Index = Index(0)
    vote: NodeId = NOBODY
    snapshot: Snapshot | None = None
    reject: bool = False
    reject_hint: Index = Index(0)
    """APP_RESP: an index up to which the two logs may agree."""

    context: bytes = b""
    responses: "tuple[Message, ...]" = ()
    """STORAGE_APPEND and STORAGE_APPLY: the messages to deliver once the write is durable or the entries are
    applied."""


def entry_size(entry: Entry) -> int:
    """Bytes of an entry in etcd's encoding (protocol buffers). The limits of messages and applications count these."""
    size = 2 + _varint_size(entry.term) + _varint_size(entry.index)
    if entry.type is not EntryType.NORMAL:
        size += 2
    if entry.data:
        size += 1 + _varint_size(len(entry.data)) + len(entry.data)
    return size


def entries_size(entries: tuple[Entry, ...]) -> int:
    """Bytes of all entries, by `entry_size`."""
    return sum(map(entry_size, entries))


def payload_size(entries: tuple[Entry, ...]) -> int:
    """Bytes of the entries' data, which the limit on the uncommitted log counts. An empty entry counts 0."""
    return sum(len(entry.data) for entry in entries)


def limit_size(entries: Iterable[Entry], max_bytes: int) -> tuple[Entry, ...]:
    """The longest prefix of at most `max_bytes`, but at least one entry if there are any."""
    taken: list[Entry] = []
    size = 0
    for entry in entries:
        size += entry_size(entry)
        if size > max_bytes and taken:
            break
        taken.append(entry)
    return tuple(taken)


def _varint_size(value: int) -> int:
    return max(1, (value.bit_length() + 6) // 7)
