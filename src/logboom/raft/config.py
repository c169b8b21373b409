"""Settings of one node's consensus core. Times are counted in ticks; the host decides how long a tick is."""

from collections.abc import Callable
from dataclasses import dataclass

from logboom.raft.messages import LOCAL_APPLY_THREAD, NO_LIMIT, NOBODY, NodeId
from logboom.raft.read_only import ReadOnlyOption

Draw = Callable[[int], int]
"""A random integer from 0 to the argument - 1. The host gives it, so that a simulation can."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RaftConfig:
    """Names and meanings are those of etcd's raft.Config. Limits in bytes: `NO_LIMIT` for none."""

    node_id: NodeId
    draw: Draw
    """Random values for election timeouts: nodes that draw differently do not campaign at the same time."""

    election_ticks: int = 10
    """A follower that receives nothing from a leader for this long, up to twice as long at random, campaigns."""

    heartbeat_ticks: int = 1
    """How often a leader sends heartbeats."""

    max_message_bytes: int = NO_LIMIT
    """Entries in one append message; at least one is always sent."""

    max_applying_bytes: int = 0
    """Entries handed out to be applied and not acknowledged (etcd: MaxCommittedSizePerReady); 0: as above."""

    max_uncommitted_bytes: int = NO_LIMIT
    """Payload that a leader has in its log and not applied, above which proposals are dropped."""

    max_inflight_messages: int = 256
    """Append messages on their way to one follower."""

    max_inflight_bytes: int = 0
    """Their entries' payload; 0 for no limit."""

    check_quorum: bool = False
    """A leader that has received nothing from a majority for an election timeout steps down, and a follower that has a
    leader ignores elections (thesis, sections 6.2 and 4.2.3)."""

    pre_vote: bool = False
    """Ask whether an election could be won before the term is raised for it (thesis, section 9.6)."""

    read_only: ReadOnlyOption = ReadOnlyOption.SAFE
    eager_reads: bool = True
    """Whether each read has heartbeats sent at once to confirm it. Otherwise it waits for the next ones, unless it is
    urgent: a host that asks several times a second would have twice as many heartbeats as it needs."""

    async_storage_writes: bool = False
    """Give writes and applications out as messages, so that several can be under way (see the package)."""

    forward_proposals: bool = True
    """Whether a follower passes proposals on to its leader; otherwise it drops them."""

    validate_conf_changes: bool = True
    """Whether the leader refuses a change that cannot take effect on the configuration that holds. Only a host that
    puts changes in order by itself may do without."""

    step_down_on_removal: bool = False
    """Whether a leader that a change removes or makes a learner stops leading when it applies the change."""

    def __post_init__(self) -> None:
        assert NOBODY < self.node_id < LOCAL_APPLY_THREAD, f"{self.node_id} is no node id"
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
