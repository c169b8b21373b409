"""The errors that a Raft node raises: for refused requests, and those after which it must stop. Violated invariants are
assertions, not errors of this module."""

from logboom.base.errors import LogboomError


class RaftError(LogboomError):
    """Base class of these errors."""


class ProposalDroppedError(RaftError):
    """The proposal was not appended and will not be committed. The proposer may retry at once, here or at another
    node."""


class LocalMessageError(RaftError):
    """A message of a type that a node sends only to itself came from another node."""


class UnknownPeerError(RaftError):
    """A response of a node that is not a member of the configuration."""


class WrongAddresseeError(RaftError):
    """A message for another node id, for example the previous id of this broker, before it lost its disk."""


class InvalidMessageError(RaftError):
    """Bytes or fields that no node of this version sends."""


class ConfChangeError(RaftError):
    """A change that cannot be applied to the current configuration."""


class LogLostError(RaftError):
    """This node has acknowledged entries that it does not have any more: its log was lost or damaged.

    The node must not continue with its id. Remove that voter and add this disk as a new one.
    """


class CompactedError(RaftError):
    """The index is before the first entry that is kept."""

    def __init__(self) -> None:
        super().__init__("requested index is unavailable due to compaction")


class UnavailableError(RaftError):
    """The index is beyond the last entry."""

    def __init__(self) -> None:
        super().__init__("requested entry at index is unavailable")


class SnapshotOutOfDateError(RaftError):
    """There is a newer snapshot."""

    def __init__(self) -> None:
        super().__init__("requested index is older than the existing snapshot")


class SnapshotTemporarilyUnavailableError(RaftError):
    """The snapshot is being made; the core asks again at the next heartbeat."""
