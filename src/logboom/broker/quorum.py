"""The group of brokers that agrees on metadata, as it is described to people and their tools.

A description and nothing else: no decision is taken by it. Kafka's tools ask for the same of a KRaft quorum (KIP-595,
KIP-836).
"""

from dataclasses import dataclass
from typing import Final

from logboom.base.ids import BrokerId, DirectoryId, Epoch, Offset

UNKNOWN_MS: Final = -1


@dataclass(frozen=True, slots=True)
class QuorumMember:
    """One broker that keeps the log of metadata."""

    broker_id: BrokerId
    directory_id: DirectoryId | None
    log_end: Offset
    """How far its log goes, as the leader knows; -1 where that is not known."""
    last_fetch_ms: int = UNKNOWN_MS
    """Wall-clock time at which the leader heard from it last; -1 for the leader itself, or where it is not known."""
    last_caught_up_ms: int = UNKNOWN_MS
    """Wall-clock time at which it last had all that the leader had; -1 where it is not known."""


@dataclass(frozen=True, slots=True)
class QuorumView:
    """The group as one broker sees it. Only its leader knows how far the others are."""

    leader: BrokerId
    """The controller; NO_BROKER where this broker knows of none."""
    leader_epoch: Epoch
    high_watermark: Offset
    """Everything below is committed."""
    voters: tuple[QuorumMember, ...]
    observers: tuple[QuorumMember, ...] = ()
    """Brokers that follow the log and have no vote."""
