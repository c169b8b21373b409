"""Membership changes, checked before they take effect (thesis, chapter 4; etcd's package confchange).

A single change is safe by itself, because majorities of sets that differ in one voter overlap. Several changes at once
go through a joint configuration, in which a decision needs a majority of the old set and one of the new set:

    simple        (1 2 3)           ->  (1 2 3 4)
    enter_joint   (1 2 3)           ->  (1 2 4)&&(1 2 3)
    leave_joint   (1 2 4)&&(1 2 3)  ->  (1 2 4)

A change takes effect when its entry is applied, not when it is appended. That differs from the thesis. It is as safe,
as long as no change is proposed while the log holds another one that is not applied.
"""

from collections.abc import Iterable, Sequence

from logboom.raft.errors import ConfChangeError
from logboom.raft.messages import (
    NOBODY,
    ConfChangeSingle,
    ConfChangeType,
    ConfChangeV2,
    ConfState,
    Index,
    NodeId,
)
from logboom.raft.quorum import JointConfig
from logboom.raft.tracker import Configuration, ProgressMap, ProgressTracker


class _Draft:
    """A configuration that is being changed."""

    def __init__(
        self, config: Configuration, progress: ProgressMap, last_index: Index, tracker: ProgressTracker
    ) -> None:
        self.incoming = set(config.voters.incoming)
        self.outgoing = set(config.voters.outgoing)
        self.learners = set(config.learners)
        self.learners_next = set(config.learners_next)
        self.auto_leave = config.auto_leave
        self.progress = {node_id: each.clone() for node_id, each in progress.items()}
        self._last_index = last_index
        self._tracker = tracker

    def apply(self, changes: Iterable[ConfChangeSingle]) -> None:
        """Apply the changes to the incoming half."""
        for change in changes:
            if change.node_id == NOBODY:
                continue  # the application cancelled this change
            match change.type:
                case ConfChangeType.ADD_NODE:
                    self._make_voter(change.node_id)
                case ConfChangeType.ADD_LEARNER_NODE:
                    self._make_learner(change.node_id)
                case ConfChangeType.REMOVE_NODE:
                    self._remove(change.node_id)
                case ConfChangeType.UPDATE_NODE:
                    pass
        if not self.incoming:
            raise ConfChangeError("removed all voters")

    def finish(self) -> tuple[Configuration, ProgressMap]:
        """The changed configuration, checked."""
        config = Configuration(
            voters=JointConfig(frozenset(self.incoming), frozenset(self.outgoing)),
            learners=frozenset(self.learners),
            learners_next=frozenset(self.learners_next),
            auto_leave=self.auto_leave,
        )
        check_invariants(config, self.progress)
        return config, self.progress

    def _make_voter(self, node_id: NodeId) -> None:
        progress = self.progress.get(node_id)
        if progress is None:
            self._start(node_id, is_learner=False)
            return
        progress.is_learner = False
        self.learners.discard(node_id)
        self.learners_next.discard(node_id)
        self.incoming.add(node_id)

    def _make_learner(self, node_id: NodeId) -> None:
        progress = self.progress.get(node_id)
        if progress is None:
            self._start(node_id, is_learner=True)
            return
        if progress.is_learner:
            return
        self._remove(node_id)
        self.progress[node_id] = progress
        if node_id in self.outgoing:
            # This member still votes in the outgoing half, and no member is voter and learner at the same time.
            self.learners_next.add(node_id)
        else:
            progress.is_learner = True
            self.learners.add(node_id)

    def _remove(self, node_id: NodeId) -> None:
        if node_id not in self.progress:
            return
        self.incoming.discard(node_id)
        self.learners.discard(node_id)
        self.learners_next.discard(node_id)
        if node_id not in self.outgoing:
            del self.progress[node_id]

    def _start(self, node_id: NodeId, *, is_learner: bool) -> None:
        (self.learners if is_learner else self.incoming).add(node_id)
        # Probing begins at the last index: most likely the node has nothing and gets a snapshot.
        progress = self._tracker.new_progress(Index(max(self._last_index, 1)), is_learner=is_learner)
        # Otherwise a quorum check before this member's first answer could end the leadership.
        progress.recent_active = True
        self.progress[node_id] = progress


class Changer:
    """Computes the next configuration from the one in `tracker`. Does not change `tracker`.

    `last_index` is the index of the leader's last entry, where probing of new members begins. Every method returns the
    new configuration and the progress of its members, or raises ConfChangeError.
    """

    def __init__(self, tracker: ProgressTracker, last_index: Index) -> None:
        self._tracker = tracker
        self._last_index = last_index

    def enter_joint(
        self, changes: Sequence[ConfChangeSingle], *, auto_leave: bool
    ) -> tuple[Configuration, ProgressMap]:
        """Keep the current voters as the outgoing half and apply the changes to a copy of them (C_new,old of section
        4.3)."""
        draft = self._draft()
        if draft.outgoing:
            raise ConfChangeError("config is already joint")
        if not draft.incoming:
            raise ConfChangeError("can't make a zero-voter config joint")
        draft.outgoing = set(draft.incoming)
        draft.apply(changes)
        draft.auto_leave = auto_leave
        return draft.finish()

    def leave_joint(self) -> tuple[Configuration, ProgressMap]:
        """Drop the outgoing half, so that the incoming one decides alone (C_new). `learners_next` become learners."""
        draft = self._draft()
        if not draft.outgoing:
            raise ConfChangeError("can't leave a non-joint config")
        for node_id in draft.learners_next:
            draft.learners.add(node_id)
            draft.progress[node_id].is_learner = True
        draft.learners_next.clear()
        for node_id in draft.outgoing - draft.incoming - draft.learners:
            del draft.progress[node_id]
        draft.outgoing.clear()
        draft.auto_leave = False
        return draft.finish()

    def simple(self, changes: Sequence[ConfChangeSingle]) -> tuple[Configuration, ProgressMap]:
        """Apply changes that together add or remove at most one voter."""
        draft = self._draft()
        if draft.outgoing:
            raise ConfChangeError("can't apply simple config change in joint config")
        draft.apply(changes)
        if len(self._tracker.config.voters.incoming ^ draft.incoming) > 1:
            raise ConfChangeError("more than one voter changed without entering joint config")
        return draft.finish()

    def change(self, change: ConfChangeV2) -> tuple[Configuration, ProgressMap]:
        """Apply a change directly or through a joint configuration, as the change says or requires."""
        if change.leaves_joint:
            return self.leave_joint()
        if change.enters_joint:
            return self.enter_joint(change.changes, auto_leave=change.auto_leave)
        return self.simple(change.changes)

    def _draft(self) -> _Draft:
        config, progress = self._tracker.config, self._tracker.progress
        check_invariants(config, progress)
        return _Draft(config, progress, self._last_index, self._tracker)


def restore(tracker: ProgressTracker, last_index: Index, state: ConfState) -> tuple[Configuration, ProgressMap]:
    """Rebuild a snapshot's configuration by applying changes to an empty one, so that it passes the same checks.

    `tracker` must have no members; it is modified.
    """

    def adopt(made: tuple[Configuration, ProgressMap]) -> None:
        tracker.config, tracker.progress = made

    incoming = [
        *(ConfChangeSingle(ConfChangeType.REMOVE_NODE, node_id) for node_id in state.voters_outgoing),
        *(ConfChangeSingle(ConfChangeType.ADD_NODE, node_id) for node_id in state.voters),
        *(ConfChangeSingle(ConfChangeType.ADD_LEARNER_NODE, node_id) for node_id in state.learners),
        *(ConfChangeSingle(ConfChangeType.ADD_LEARNER_NODE, node_id) for node_id in state.learners_next),
    ]
    for node_id in state.voters_outgoing:
        adopt(Changer(tracker, last_index).simple([ConfChangeSingle(ConfChangeType.ADD_NODE, node_id)]))
    if state.voters_outgoing:
        adopt(Changer(tracker, last_index).enter_joint(incoming, auto_leave=state.auto_leave))
    else:
        for change in incoming:
            adopt(Changer(tracker, last_index).simple([change]))
    return tracker.config, tracker.progress


def check_invariants(config: Configuration, progress: ProgressMap) -> None:
    """Check the invariants of a configuration. The empty one passes, because every first configuration is built from
    it."""
    voters = config.voters
    for node_id in sorted(voters.ids | config.learners | config.learners_next):
        if node_id not in progress:
            raise ConfChangeError(f"no progress for {node_id}")
    for node_id in sorted(config.learners_next):
        if node_id not in voters.outgoing:
            raise ConfChangeError(f"{node_id} is in LearnersNext, but not Voters[1]")
        if progress[node_id].is_learner:
            raise ConfChangeError(f"{node_id} is in LearnersNext, but is already marked as learner")
    for node_id in sorted(config.learners):
        if node_id in voters.outgoing:
            raise ConfChangeError(f"{node_id} is in Learners and Voters[1]")
        if node_id in voters.incoming:
            raise ConfChangeError(f"{node_id} is in Learners and Voters[0]")
        if not progress[node_id].is_learner:
            raise ConfChangeError(f"{node_id} is in Learners, but is not marked as learner")
    if not voters.is_joint and (config.learners_next or config.auto_leave):
        raise ConfChangeError("LearnersNext and AutoLeave belong to a joint configuration")
