"""Sends a leader's messages: entries within each follower's window, snapshots for followers too far behind,
heartbeats."""

from logboom.raft.core import Core
from logboom.raft.errors import CompactedError, SnapshotTemporarilyUnavailableError, UnavailableError
from logboom.raft.messages import Entry, Index, Message, MessageType, NodeId, Term, payload_size
from logboom.raft.progress import Progress, ProgressState


class Replicator:
    """The sending side of one leadership."""

    def __init__(self, core: Core) -> None:
        self._core = core

    def followers(self) -> list[tuple[NodeId, Progress]]:
        """All members but this one, by id."""
        return [member for member in self._core.tracker.members() if member[0] != self._core.node_id]

    def broadcast_append(self) -> None:
        """Send new entries and the commit index to all followers."""
        for node_id, _ in self.followers():
            self.send_append(node_id)

    def broadcast_heartbeat(self, context: bytes) -> None:
        """Send a heartbeat to all followers."""
        for node_id, progress in self.followers():
            self._send_heartbeat(node_id, progress, context)

    def send_append(self, to: NodeId, *, if_empty: bool = True) -> bool:
        """Send the next entries or a snapshot to a follower; False if nothing was sent.

        `if_empty`: send a message even without entries, to pass the commit index or to probe the follower.
        """
        core = self._core
        progress = core.tracker.progress[to]
        if progress.is_paused:
            return False
        before = Index(progress.next_index - 1)
        try:
            before_term = core.log.term(before)
            entries = self._next_entries(progress)
        except (CompactedError, UnavailableError):
            return self._send_snapshot(to, progress)
        if not entries and not if_empty:
            return False
        self._send_entries(to, progress, before, before_term, entries)
        return True

    def _next_entries(self, progress: Progress) -> tuple[Entry, ...]:
        # If the window is full, send an empty message: if all messages of the window were lost, only its answer frees
        # the window.
        if progress.state is ProgressState.REPLICATE and progress.inflights.is_full:
            return ()
        return self._core.log.entries(progress.next_index, self._core.config.max_message_bytes)

    def _send_entries(
        self, to: NodeId, progress: Progress, before: Index, before_term: Term, entries: tuple[Entry, ...]
    ) -> None:
        committed = self._core.log.committed
        self._core.send(
            Message(type=MessageType.APP, to=to, index=before, log_term=before_term, entries=entries, commit=committed)
        )
        progress.sent_entries(len(entries), payload_size(entries))
        progress.sent_commit(committed)

    def _send_snapshot(self, to: NodeId, progress: Progress) -> bool:
        if not progress.recent_active:
            return False  # the follower is probably down, and snapshots are large
        try:
            snapshot = self._core.log.snapshot()
        except SnapshotTemporarilyUnavailableError:
            return False
        assert not snapshot.is_empty, "the log was shortened without a snapshot"
        progress.become_snapshot(snapshot.index)
        self._core.send(Message(type=MessageType.SNAP, to=to, snapshot=snapshot))
        return True

    def _send_heartbeat(self, to: NodeId, progress: Progress, context: bytes) -> None:
        # The follower must not commit entries beyond those that are known to match.
        commit = min(progress.match_index, self._core.log.committed)
        self._core.send(Message(type=MessageType.HEARTBEAT, to=to, commit=commit, context=context))
        progress.sent_commit(commit)

    def send_timeout_now(self, to: NodeId) -> None:
        """Ask a follower to campaign at once."""
        self._core.send(Message(type=MessageType.TIMEOUT_NOW, to=to))
