"""The current configuration, each member's progress, and the votes of the current election."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from logboom.raft.inflights import Inflights
from logboom.raft.messages import ConfState, Index, NodeId
from logboom.raft.progress import Progress
from logboom.raft.quorum import JointConfig, VoteResult, describe_ids

ProgressMap = dict[NodeId, Progress]


@dataclass(frozen=True, slots=True)
class Configuration:
    """The voters and learners of the group. No member is both, in either half."""

    voters: JointConfig = field(default_factory=JointConfig)
    learners: frozenset[NodeId] = frozenset()
    learners_next: frozenset[NodeId] = frozenset()
    """Voters of the outgoing half that become learners when the joint configuration ends. Until then they are only
    voters."""

    auto_leave: bool = False

    def __str__(self) -> str:
        parts = [f"voters={self.voters}"]
        if self.learners:
            parts.append(f"learners={describe_ids(self.learners)}")
        if self.learners_next:
            parts.append(f"learners_next={describe_ids(self.learners_next)}")
        if self.auto_leave:
            parts.append("autoleave")
        return " ".join(parts)

    @property
    def conf_state(self) -> ConfState:
        """The same configuration in its stored form."""
        return ConfState(
            voters=tuple(sorted(self.voters.incoming)),
            learners=tuple(sorted(self.learners)),
            voters_outgoing=tuple(sorted(self.voters.outgoing)),
            learners_next=tuple(sorted(self.learners_next)),
            auto_leave=self.auto_leave,
        )

    @property
    def is_singleton(self) -> bool:
        """Whether there is a single voter, which decides alone."""
        return len(self.voters.incoming) == 1 and not self.voters.is_joint


class ProgressTracker:
    """Configuration, progress and votes as one node sees them. Progress is used on the leader only."""

    __slots__ = ("_max_inflight_bytes", "_max_inflight_messages", "config", "progress", "votes")

    def __init__(self, max_inflight_messages: int, max_inflight_bytes: int) -> None:
        self._max_inflight_messages = max_inflight_messages
        self._max_inflight_bytes = max_inflight_bytes
        self.config = Configuration()
        self.progress: ProgressMap = {}
        self.votes: dict[NodeId, bool] = {}

    def new_progress(self, next_index: Index, *, is_learner: bool) -> Progress:
        """The initial progress of a member."""
        inflights = Inflights(self._max_inflight_messages, self._max_inflight_bytes)
        return Progress(next_index=next_index, inflights=inflights, is_learner=is_learner)

    def forget_progress(self, next_index: Index) -> None:
        """Reset the progress of every member: in a new term it is not known what they have."""
        for node_id, progress in self.progress.items():
            self.progress[node_id] = self.new_progress(next_index, is_learner=progress.is_learner)

    def members(self) -> Iterator[tuple[NodeId, Progress]]:
        """Each member with its progress, sorted by id, so that the order is the same in every run."""
        yield from sorted(self.progress.items())

    def committed_index(self) -> Index:
        """The largest index that the configuration's majorities have acknowledged."""
        return self.config.voters.committed_index(self._match_index)

    def _match_index(self, node_id: NodeId) -> Index | None:
        progress = self.progress.get(node_id)
        return None if progress is None else progress.match_index

    def is_quorum_active(self) -> bool:
        """Whether a quorum of voters has sent something since the last quorum check."""
        active = {node_id: each.recent_active for node_id, each in self.progress.items() if not each.is_learner}
        return self.config.voters.vote_result(active) is VoteResult.WON

    def record_vote(self, node_id: NodeId, granted: bool) -> None:
        """Record a member's vote. Only its first answer counts."""
        self.votes.setdefault(node_id, granted)

    def vote_result(self) -> VoteResult:
        """State of the current election."""
        return self.config.voters.vote_result(self.votes)
