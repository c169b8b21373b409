"""A leader's view of one follower: the entries it has, the next entries to send, and flow control.

    PROBE       the follower's last index is not known: one message per heartbeat, until one is acknowledged
    REPLICATE   messages are sent without waiting for answers, up to the limits of the in-flight window
    SNAPSHOT    the log no longer has the entries it needs: no entries are sent until it has a snapshot

The rules are those of etcd's tracker.Progress.
"""

import copy
from enum import Enum

from logboom.raft.inflights import Inflights
from logboom.raft.messages import Index


class ProgressState(Enum):
    """How the leader sends to a follower. The values are etcd's names."""

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
        """The follower's log is known to match the leader's up to this index."""

        self.next_index = next_index
        """The first entry of the next message; in SNAPSHOT the one after the snapshot."""

        self._sent_commit = Index(0)
        self.state = ProgressState.PROBE
        self.pending_snapshot = Index(0)
        """In SNAPSHOT: the index of the snapshot that was sent."""

        self.recent_active = False
        """Whether the follower has sent anything since the last quorum check."""

        self.flow_paused = False
        """True if no entries are sent until the next heartbeat is answered: a probe is unanswered, or the window is
        full."""

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
        """A copy with its own role and indexes. The in-flight window is shared with the original."""
        return copy.copy(self)

    @property
    def is_paused(self) -> bool:
        """Whether no entries are sent for now."""
        return self.state is ProgressState.SNAPSHOT or self.flow_paused

    def _reset(self, state: ProgressState) -> None:
        self.flow_paused = False
        self.pending_snapshot = Index(0)
        self.state = state
        self.inflights.clear()

    def become_probe(self) -> None:
        """Probe for the follower's last index, after the snapshot if one was sent."""
        after_snapshot = self.pending_snapshot if self.state is ProgressState.SNAPSHOT else Index(0)
        self._reset(ProgressState.PROBE)
        self.next_index = Index(max(self.match_index, after_snapshot) + 1)
        self._sent_commit = min(self._sent_commit, Index(self.next_index - 1))

    def become_replicate(self) -> None:
        """Send entries after `match_index` without waiting for answers."""
        self._reset(ProgressState.REPLICATE)
        self.next_index = Index(self.match_index + 1)

    def become_snapshot(self, snapshot_index: Index) -> None:
        """Wait until the follower has the snapshot that was sent."""
        self._reset(ProgressState.SNAPSHOT)
        self.pending_snapshot = snapshot_index
        self.next_index = Index(snapshot_index + 1)
        self._sent_commit = snapshot_index

    def sent_entries(self, count: int, size_bytes: int) -> None:
        """A message with `count` entries from `next_index` on was sent."""
        assert self.state is not ProgressState.SNAPSHOT, "entries were sent while a snapshot is being sent"
        if self.state is ProgressState.PROBE:
            self.flow_paused = self.flow_paused or count > 0
            return
        if count > 0:
            self.next_index = Index(self.next_index + count)
            self.inflights.add(Index(self.next_index - 1), size_bytes)
        # After a message with a full window, the next one waits for a heartbeat's answer, as after a probe.
        self.flow_paused = self.inflights.is_full

    def sent_commit(self, commit: Index) -> None:
        """The commit index `commit` was sent to the follower."""
        self._sent_commit = commit

    def can_bump_commit(self, commit: Index) -> bool:
        """Whether the follower could commit more entries if it knew `commit`."""
        return commit > self._sent_commit and self._sent_commit < self.next_index - 1

    def maybe_update(self, acked: Index) -> bool:
        """The follower acknowledged entries up to `acked`; returns False if that was known."""
        if acked <= self.match_index:
            return False
        self.match_index = acked
        self.next_index = max(self.next_index, Index(acked + 1))
        self.flow_paused = False
        return True

    def maybe_decrease(self, rejected: Index, hint: Index) -> bool:
        """The follower rejected the message whose entries follow `rejected`. Its log may match up to `hint`.

        Returns False and changes nothing if this is the answer to an old message: in REPLICATE, one at or below
        `match_index`; in the other states, one that is not the last probe.
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
        # The follower has probably not committed beyond this.
        self._sent_commit = min(self._sent_commit, Index(self.next_index - 1))
        return True
