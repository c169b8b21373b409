"""A follower's progress as its leader sees it: what it has, what it is sent next, and how fast.

    PROBE       its last index is not known: at most one message for each heartbeat, until one is acknowledged
    REPLICATE   messages are sent ahead, as far as the window of in-flight messages allows
    SNAPSHOT    what it needs is no longer in the log: nothing is sent until it has a snapshot

The rules are those of etcd's tracker.Progress.
"""

import copy
from enum import Enum

from logboom.raft.inflights import Inflights
from logboom.raft.messages import Index


class ProgressState(Enum):
    """How the leader deals with a follower. The values are etcd's names."""

    PROBE = "StateProbe"
    REPLICATE = "StateReplicate"
    SNAPSHOT = "StateSnapshot"


class Progress:
    """State of one follower. Always `match_index < next_index`."""

    __slots__ = (
        "_sent_commit",
        "flow_paused",
        "inflights",
        "is_learner",
        "match_index",
        "next_index",
        "pending_snapshot",
        "recent_active",
        "state",
    )

    def __init__(self, *, next_index: Index, inflights: Inflights, is_learner: bool) -> None:
        self.match_index = Index(0)
        """Up to here its log is known to be the leader's."""

        self.next_index = next_index
        """The first entry of the next message; in SNAPSHOT the one behind the snapshot."""

        self._sent_commit = Index(0)
        self.state = ProgressState.PROBE
        self.pending_snapshot = Index(0)
        """In SNAPSHOT: the index of the snapshot it was sent."""

        self.recent_active = False
        """Whether anything came from it since quorum was last checked."""

        self.flow_paused = False
        """Whether nothing is sent until the next heartbeat is answered: a probe is out, or the window is full."""

        self.inflights = inflights
        self.is_learner = is_learner

    def __str__(self) -> str:
        parts = [f"{self.state.value} match={self.match_index} next={self.next_index}"]
        if self.is_learner:
            parts.append("learner")
        if self.is_paused:
            parts.append("paused")
        if self.pending_snapshot > 0:
            parts.append(f"pendingSnap={self.pending_snapshot}")
        if not self.recent_active:
            parts.append("inactive")
        if len(self.inflights) > 0:
            parts.append(f"inflight={len(self.inflights)}" + ("[full]" if self.inflights.is_full else ""))
        return " ".join(parts)

    def clone(self) -> "Progress":
        """A copy whose role and indexes can change; the window of messages is shared."""
        return copy.copy(self)

    @property
    def is_paused(self) -> bool:
        """Whether it is sent no entries for now."""
        return self.state is ProgressState.SNAPSHOT or self.flow_paused

    def _reset(self, state: ProgressState) -> None:
        self.flow_paused = False
        self.pending_snapshot = Index(0)
        self.state = state
        self.inflights.clear()

    def become_probe(self) -> None:
        """Find out what it has; behind the snapshot it was sent, if it was sent one."""
        after_snapshot = self.pending_snapshot if self.state is ProgressState.SNAPSHOT else Index(0)
        self._reset(ProgressState.PROBE)
        self.next_index = Index(max(self.match_index, after_snapshot) + 1)
        self._sent_commit = min(self._sent_commit, Index(self.next_index - 1))

    def become_replicate(self) -> None:
        """Send ahead from what it is known to have."""
        self._reset(ProgressState.REPLICATE)
        self.next_index = Index(self.match_index + 1)

    def become_snapshot(self, snapshot_index: Index) -> None:
        """Wait until it has the snapshot that was sent."""
        self._reset(ProgressState.SNAPSHOT)
        self.pending_snapshot = snapshot_index
        self.next_index = Index(snapshot_index + 1)
        self._sent_commit = snapshot_index

    def sent_entries(self, count: int, size_bytes: int) -> None:
        """A message with `count` entries from `next_index` on was sent."""
        assert self.state is not ProgressState.SNAPSHOT, "nothing is appended while a snapshot is on its way"
        if self.state is ProgressState.PROBE:
            self.flow_paused = self.flow_paused or count > 0
            return
        if count > 0:
            self.next_index = Index(self.next_index + count)
            self.inflights.add(Index(self.next_index - 1), size_bytes)
        # A message into a full window is a probe: the next one waits for a heartbeat's answer.
        self.flow_paused = self.inflights.is_full

    def sent_commit(self, commit: Index) -> None:
        """This committed index was sent to it."""
        self._sent_commit = commit

    def can_bump_commit(self, commit: Index) -> bool:
        """Whether `commit` may let it commit more than what was sent to it so far."""
        return commit > self._sent_commit and self._sent_commit < self.next_index - 1

    def maybe_update(self, acked: Index) -> bool:
        """It acknowledged up to `acked`; False if that was known."""
        if acked <= self.match_index:
            return False
        self.match_index = acked
        self.next_index = max(self.next_index, Index(acked + 1))
        self.flow_paused = False
        return True

    def maybe_decrease(self, rejected: Index, hint: Index) -> bool:
        """It refused the message whose entries follow `rejected`, and may agree up to `hint`.

        False, and nothing changes, where that answers an older message: one at or below what it has acknowledged
        since, or, while it is probed, not the one that is out.
        """
        if self.state is ProgressState.REPLICATE:
            if rejected <= self.match_index:
                return False
            self.next_index = Index(self.match_index + 1)
        else:
            if self.next_index - 1 != rejected:
                return False
            self.next_index = Index(max(min(rejected, hint + 1), self.match_index + 1))
            self.flow_paused = False
        # What was sent before has hardly been applied.
        self._sent_commit = min(self._sent_commit, Index(self.next_index - 1))
        return True
