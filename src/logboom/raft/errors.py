"""The errors that a Raft node raises: requests that it refuses, and errors after which it must stop. A violated
invariant is an assertion, not one of these."""

from logboom.base.errors import LogboomError


class RaftError(LogboomError):
    """Base of all."""


class ProposalDroppedError(RaftError):
    """The proposal was not taken and will not be committed; the proposer may try again at once or elsewhere."""


class LocalMessageError(RaftError):
    """A message of a type that a node sends only to itself came from another node."""


class UnknownPeerError(RaftError):
    """A response of a node that is no member of the configuration."""


class WrongAddresseeError(RaftError):
    """A message for another node id, such as that of the voter whose disk was here before."""


class InvalidMessageError(RaftError):
    """Bytes or fields that no node of this version sends."""


class ConfChangeError(RaftError):
    """A change of the configuration that is not possible on top of the one that holds."""


class LogLostError(RaftError):
    """Others rely on entries that this node acknowledged and does not have: its log was lost or damaged.

    The node must not continue under its id. Remove that voter and add this disk as a new one.
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
