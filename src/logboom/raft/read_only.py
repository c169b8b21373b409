"""Reads that see everything committed before them, without an entry in the log (thesis, section 6.4; "read index").

The leader notes what is committed when the request comes, and has a majority confirm by heartbeats that it still leads.
Each heartbeat carries how many requests have come in this leadership, so one answer confirms all of them.
"""

import struct
from dataclasses import dataclass
from enum import Enum
from typing import Final

from logboom.raft.messages import Index, Message, NodeId
from logboom.raft.quorum import JointConfig

_COUNT: Final = struct.Struct("<Q")


class ReadOnlyOption(Enum):
    """How a read is confirmed."""

    SAFE = "safe"
    """A majority confirms the leader for each batch of reads."""

    LEASE_BASED = "lease-based"
    """The leader relies on messages of a majority within the last election timeout. Wrong clocks make it unsafe."""


@dataclass(frozen=True, slots=True)
class ReadState:
    """A read that was asked for with `context` may be answered once everything up to `index` is applied."""

    index: Index
    context: bytes


class ReadOnly:
    """The requests of one leadership that are not confirmed yet, oldest first."""

    __slots__ = ("_acks", "_confirmed", "_unconfirmed")

    def __init__(self) -> None:
        self._acks: dict[NodeId, Index] = {}
        self._unconfirmed: list[tuple[Message, Index]] = []
        self._confirmed = 0

    def add(self, request: Message, commit: Index) -> None:
        """A request came while `commit` was the committed index."""
        self._unconfirmed.append((request, commit))

    @property
    def heartbeat_context(self) -> bytes:
        """What a heartbeat carries to have all requests confirmed; empty if there are none."""
        if not self._unconfirmed:
            return b""
        return _COUNT.pack(self._confirmed + len(self._unconfirmed))

    def acknowledge(self, node_id: NodeId, context: bytes) -> None:
        """A member answered a heartbeat that carried `context`."""
        if len(context) == _COUNT.size:
            self._acks[node_id] = max(self._acks.get(node_id, Index(0)), Index(_COUNT.unpack(context)[0]))

    def take_confirmed(self, voters: JointConfig) -> list[tuple[Message, Index]]:
        """The requests that a majority has confirmed by now, each with the index to read at."""
        count = min(voters.committed_index(self._acks.get), self._confirmed + len(self._unconfirmed)) - self._confirmed
        if count <= 0:
            return []
        taken, self._unconfirmed = self._unconfirmed[:count], self._unconfirmed[count:]
        self._confirmed += count
        return taken
