"""A leader's side of proposals: the bound on its uncommitted log, and one change of the configuration at a time."""

import msgspec

from logboom.raft.codec import decode_conf_change
from logboom.raft.confchange import Changer
from logboom.raft.core import Core
from logboom.raft.errors import ConfChangeError, InvalidMessageError, ProposalDroppedError
from logboom.raft.messages import ConfChangeV2, Entry, EntryType, Index, Message, MessageType, payload_size


class Proposals:
    """State of one leadership."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._uncommitted_bytes = 0
        # There may be a change among the entries that were there before; nobody looks, all of them are waited for.
        self.pending_conf_index = core.log.last_index()
        """No change is proposed before everything up to here is applied."""

    def prepare(self, entries: tuple[Entry, ...]) -> tuple[Entry, ...]:
        """Entries as they may be appended: a change that is not possible now becomes an empty entry.

        Raises ProposalDroppedError.
        """
        first = self._core.log.last_index() + 1
        return tuple(self._checked(entry, Index(first + number)) for number, entry in enumerate(entries))

    def append(self, entries: tuple[Entry, ...]) -> None:
        """Append entries with this term. Raises ProposalDroppedError if the uncommitted log would be too long."""
        core = self._core
        size = payload_size(entries)
        limit = core.config.max_uncommitted_bytes
        # One proposal of any size is let in when nothing else waits; empty entries always are: without them a leader
        # could not begin its term, and no joint configuration be left.
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
        """Entries were applied and no longer count as uncommitted, whoever appended them."""
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
        """Why a change cannot be proposed now.

        With nothing pending, the configuration that holds now is the one on which the change will be made. So it is
        also tried here: once committed, a change that cannot be made would stop every node.
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
