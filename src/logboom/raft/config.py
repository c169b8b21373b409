"""Settings of one Raft node. Times are in ticks; the host decides how long a tick is."""

from collections.abc import Callable
from dataclasses import dataclass

from logboom.raft.messages import LOCAL_APPLY_THREAD, NO_LIMIT, NOBODY, NodeId
from logboom.raft.read_only import ReadOnlyOption

Draw = Callable[[int], int]
"""A random integer from 0 to the argument - 1. The host provides it, so that a simulation can provide a seeded one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RaftConfig:
    """Names and meanings are those of etcd's raft.Config. Sizes are in bytes; `NO_LIMIT`: no limit."""

    node_id: NodeId
    draw: Draw
    """Randomises election timeouts, so that nodes do not campaign at the same time."""

    election_ticks: int = 10
    """A follower campaigns when it has received nothing from a leader for a random time between this and twice this."""

    heartbeat_ticks: int = 1
    """How often a leader sends heartbeats."""

    max_message_bytes: int = NO_LIMIT
    """Size of the entries in one append message; a single larger entry is still sent."""

    max_applying_bytes: int = 0
    """Size of the entries that are being applied (etcd: MaxCommittedSizePerReady); 0: `max_message_bytes`."""

    max_uncommitted_bytes: int = NO_LIMIT
    """Payload of the entries that a leader has appended and not yet applied. Above it, proposals are dropped."""

    max_inflight_messages: int = 256
    """Number of unacknowledged append messages to one follower."""

    max_inflight_bytes: int = 0
    """Payload of the unacknowledged append messages to one follower; 0: no limit."""

    check_quorum: bool = False
    """A leader that has received nothing from a majority for an election timeout steps down. A follower that hears from
    a leader ignores vote requests (thesis, sections 6.2 and 4.2.3)."""

    pre_vote: bool = False
    """A node raises its term for an election only if a majority says that it could win (thesis, section 9.6)."""

    read_only: ReadOnlyOption = ReadOnlyOption.SAFE
    eager_reads: bool = True
    """Whether each read sends heartbeats at once to confirm it. Otherwise a read that is not urgent waits for the next
    regular heartbeats: a host that reads several times a second would otherwise double their number."""

    async_storage_writes: bool = False
    """Return writes and applications as messages, so that several can run at a time (see `raw_node`)."""

    forward_proposals: bool = True
    """Whether a follower forwards proposals to its leader; otherwise it drops them."""

    validate_conf_changes: bool = True
    """Whether the leader refuses a change that cannot be applied to the current configuration. Only a host that orders
    changes itself may turn this off."""

    step_down_on_removal: bool = False
    """Whether a leader that a change removes or makes a learner stops leading when it applies the change."""

    def __post_init__(self) -> None:
        assert NOBODY < self.node_id < LOCAL_APPLY_THREAD, f"{self.node_id} is not a node id"
        assert self.heartbeat_ticks > 0, "a heartbeat needs time"
        assert self.election_ticks > self.heartbeat_ticks, "an election timeout is longer than a heartbeat"
        assert self.max_inflight_messages > 0, "nothing could be sent"
        assert self.max_inflight_bytes == 0 or self.max_inflight_bytes >= self.max_message_bytes, (
            "the window holds at least one message"
        )
        assert self.read_only is ReadOnlyOption.SAFE or self.check_quorum, "a lease needs check_quorum"

    @property
    def applying_bytes(self) -> int:
        """`max_applying_bytes`, with its default."""
        return self.max_applying_bytes or self.max_message_bytes
