"""Appends proposals on the leader: limits the uncommitted log, and allows one membership change at a time."""

import msgspec

from logboom.raft.codec import decode_conf_change
from logboom.raft.confchange import Changer
from logboom.raft.core import Core
from logboom.raft.errors import ConfChangeError, InvalidMessageError, ProposalDroppedError
from logboom.raft.messages import ConfChangeV2, Entry, EntryType, Index, Message, MessageType, payload_size


class Proposals:
    """The proposals of one leadership."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._uncommitted_bytes = 0
        # The existing entries may contain a change. Instead of searching them, wait until all of them are applied.
        self.pending_conf_index = core.log.last_index()
        """No change is proposed before the entries up to this index are applied."""

    def prepare(self, entries: tuple[Entry, ...]) -> tuple[Entry, ...]:
        """Check entries before they are appended. A membership change that is not possible now becomes an empty entry.

        Raises ProposalDroppedError.
        """
        first = self._core.log.last_index() + 1
        return tuple(self._checked(entry, Index(first + number)) for number, entry in enumerate(entries))

    def append(self, entries: tuple[Entry, ...]) -> None:
        """Append entries with the current term. Raises ProposalDroppedError if the uncommitted log would be too
        large."""
        core = self._core
        size = payload_size(entries)
        limit = core.config.max_uncommitted_bytes
        # A proposal of any size is accepted if nothing else is uncommitted. Empty entries are always accepted: without
        # them a leader could not begin its term, nor end a joint configuration.
        if self._uncommitted_bytes > 0 and size > 0 and self._uncommitted_bytes + size > limit:
            raise ProposalDroppedError("raft proposal dropped")
        self._uncommitted_bytes += size
        first = core.log.last_index() + 1
        last = core.log.append(
            tuple(
                msgspec.structs.replace(entry, term=core.term, index=Index(first + number))
                for number, entry in enumerate(entries)
            )
        )
        # The leader acknowledges its own entries once they are durable, by this message to itself.
        core.send(Message(type=MessageType.APP_RESP, to=core.node_id, index=last))

    def applied(self, entries: tuple[Entry, ...]) -> None:
        """Entries were applied and no longer count as uncommitted, no matter which leader appended them."""
        self._uncommitted_bytes = max(0, self._uncommitted_bytes - payload_size(entries))

    def _checked(self, entry: Entry, index: Index) -> Entry:
        if entry.type is EntryType.NORMAL:
            return entry
        try:
            change = decode_conf_change(entry)
        except InvalidMessageError as error:
            raise ProposalDroppedError("raft proposal dropped") from error
        if self._core.config.validate_conf_changes and self._refusal(change) is not None:
            return Entry(entry.term, entry.index)
        self.pending_conf_index = index
        return entry

    def _refusal(self, change: ConfChangeV2) -> str | None:
        """The reason why a change cannot be proposed now; None if it can.

        If no change is pending, the change will be applied to the current configuration. So it is tried here: a
        committed change that cannot be applied would stop every node.
        """
        core = self._core
        is_joint = core.tracker.config.voters.is_joint
        if self.pending_conf_index > core.log.applying.applied:
            return f"possible unapplied conf change at index {self.pending_conf_index}"
        if is_joint and not change.leaves_joint:
            return "must transition out of joint config first"
        if not is_joint and not change.changes:
            return "not in joint state; refusing empty conf change"
        try:
            Changer(core.tracker, core.log.last_index()).change(change)
        except ConfChangeError as error:
            return str(error)
        return None
