"""Linearizable reads without a log entry (thesis, section 6.4: read index).

The leader remembers the commit index at the time of the request. Then a majority must confirm with heartbeats that it
still leads. Each heartbeat carries the number of requests in this leadership so far, so one answer confirms all of
them.
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
    """The leader relies on having received messages of a majority within the last election timeout. Unsafe if clocks
    run at different speeds."""


@dataclass(frozen=True, slots=True)
class ReadState:
    """The read that was requested with `context` may be answered once the entries up to `index` are applied."""

    index: Index
    context: bytes


class ReadOnly:
    """The unconfirmed read requests of one leadership, oldest first."""

    __slots__ = ("_acks", "_confirmed", "_unconfirmed")

    def __init__(self) -> None:
        self._acks: dict[NodeId, Index] = {}
        self._unconfirmed: list[tuple[Message, Index]] = []
        self._confirmed = 0

    def add(self, request: Message, commit: Index) -> None:
        """Add a request, which came when the commit index was `commit`."""
        self._unconfirmed.append((request, commit))

    @property
    def heartbeat_context(self) -> bytes:
        """The context of a heartbeat that confirms all current requests; empty if there are none."""
        if not self._unconfirmed:
            return b""
        return _COUNT.pack(self._confirmed + len(self._unconfirmed))

    def acknowledge(self, node_id: NodeId, context: bytes) -> None:
        """A member answered a heartbeat that carried `context`."""
        if len(context) == _COUNT.size:
            self._acks[node_id] = max(self._acks.get(node_id, Index(0)), Index(_COUNT.unpack(context)[0]))

    def take_confirmed(self, voters: JointConfig) -> list[tuple[Message, Index]]:
        """Remove and return the requests that a majority has confirmed, each with its read index."""
        count = min(voters.committed_index(self._acks.get), self._confirmed + len(self._unconfirmed)) - self._confirmed
        if count <= 0:
            return []
        taken, self._unconfirmed = self._unconfirmed[:count], self._unconfirmed[count:]
        self._confirmed += count
        return taken
