"""Settings and limits of a group on one broker."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from logboom.base.units import MIB
from logboom.raft import NodeId, RaftConfig

PROPOSAL_BYTES_MAX: Final = 8 * MIB
"""Data of one entry. Above it a proposal is rejected."""
PROPOSALS_MAX: Final = 10_000
"""Proposals that wait to be applied. Above it they are rejected."""
SNAPSHOT_BYTES_MAX: Final = 64 * MIB
"""A larger state is not made a snapshot: it goes to a new member as one message."""

_MESSAGE_BYTES: Final = MIB
_INFLIGHT_MESSAGES: Final = 64
_INFLIGHT_BYTES: Final = 16 * MIB
_UNCOMMITTED_BYTES: Final = 32 * MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class RaftTiming:
    """The ticks of a group, the same on all members."""

    tick_ms: int = 50
    heartbeat_ticks: int = 2
    election_ticks: int = 8
    """A follower campaigns when its leader was silent for this many ticks, up to twice as many at random."""

    @property
    def election_s(self) -> float:
        """The shortest election timeout."""
        return self.election_ticks * self.tick_ms / 1_000


def default_snapshot_entries() -> int:
    """Entries between two snapshots of a small state."""
    return 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class RaftSettings:
    """What a host of the group may choose."""

    timing: RaftTiming = RaftTiming()
    snapshot_entries: Callable[[], int] = default_snapshot_entries
    """How many entries are applied, at least, before the next snapshot is taken; asked each time. A large state waits
    until the entries have as many bytes as it had."""

    snapshot_log_bytes: int = 16 * MIB
    """With this many bytes of entries a snapshot is taken however few they are, unless the last one had more."""

    stall_ms: int = 3_000
    """A leader on whose disk nothing became durable for this long, although something was to, has another voter
    lead."""

    snapshot_bytes_max: int = SNAPSHOT_BYTES_MAX
    catch_up_entries: int = 1_000
    """Entries before a snapshot that are kept for members that are a little behind."""

    def core(self, node_id: NodeId, draw: Callable[[int], int]) -> RaftConfig:
        """The settings of the core."""
        return RaftConfig(
            node_id=node_id,
            draw=draw,
            election_ticks=self.timing.election_ticks,
            heartbeat_ticks=self.timing.heartbeat_ticks,
            max_message_bytes=_MESSAGE_BYTES,
            max_uncommitted_bytes=_UNCOMMITTED_BYTES,
            max_inflight_messages=_INFLIGHT_MESSAGES,
            max_inflight_bytes=_INFLIGHT_BYTES,
            check_quorum=True,
            pre_vote=True,
            eager_reads=False,
        )
