"""Messages, entries' membership changes and snapshots as bytes, and what of them is checked before the core sees it.

The encoding is MessagePack by msgspec, whose decoder checks types and never makes more than its input holds. Decoded
messages are checked for what the core relies on: that they are of a kind that comes from another node, and that their
entries follow one another with rising terms. What fails raises InvalidMessageError and changes nothing.
"""

from typing import Final

import msgspec

from logboom.raft.confchange import restore
from logboom.raft.errors import ConfChangeError, InvalidMessageError
from logboom.raft.messages import (
    LOCAL_APPLY_THREAD,
    LOCAL_MESSAGES,
    NO_LIMIT,
    NOBODY,
    TERM_MAX,
    ConfChange,
    ConfChangeV2,
    Entry,
    EntryId,
    EntryType,
    Message,
    MessageType,
    Snapshot,
)
from logboom.raft.tracker import ProgressTracker

_ENCODER: Final = msgspec.msgpack.Encoder()
_MESSAGES: Final = msgspec.msgpack.Decoder(Message)
_CHANGES: Final = msgspec.msgpack.Decoder(ConfChange)
_CHANGES_V2: Final = msgspec.msgpack.Decoder(ConfChangeV2)


def encode_message(message: Message) -> bytes:
    """A message for another node."""
    assert message.type not in LOCAL_MESSAGES, f"{message.type.name} stays on this node"
    return _ENCODER.encode(message)


def decode_message(data: bytes | memoryview) -> Message:
    """A message of another node, checked. Raises InvalidMessageError."""
    try:
        message = _MESSAGES.decode(data)
    except (msgspec.DecodeError, RecursionError) as error:
        raise InvalidMessageError(f"not a Raft message: {error}") from error
    _check(message)
    return message


def encode_conf_change(change: ConfChange | ConfChangeV2 | None) -> tuple[EntryType, bytes]:
    """Type and data of the entry for a change; None leaves a joint configuration.

    That one has no data, so that no limit on the size of the uncommitted log can ever refuse it.
    """
    if change is None:
        return EntryType.CONF_CHANGE_V2, b""
    kind = EntryType.CONF_CHANGE if isinstance(change, ConfChange) else EntryType.CONF_CHANGE_V2
    return kind, _ENCODER.encode(change)


def decode_conf_change(entry: Entry) -> ConfChangeV2:
    """The change that an entry holds. Raises InvalidMessageError."""
    assert entry.type is not EntryType.NORMAL
    try:
        if entry.type is EntryType.CONF_CHANGE:
            return _CHANGES.decode(entry.data).as_v2
        return _CHANGES_V2.decode(entry.data) if entry.data else ConfChangeV2()
    except msgspec.DecodeError as error:
        raise InvalidMessageError(f"not a membership change: {error}") from error


def _check(message: Message) -> None:
    if message.type in LOCAL_MESSAGES or message.responses:
        raise InvalidMessageError(f"{message.type.name} never comes from another node")
    if not (NOBODY < message.sender < LOCAL_APPLY_THREAD and NOBODY < message.to < LOCAL_APPLY_THREAD):
        raise InvalidMessageError(f"from node {message.sender} to node {message.to}: no such ids exist")
    if message.sender == message.to:
        raise InvalidMessageError(f"node {message.sender} does not send to itself")
    numbers = (message.term, message.log_term, message.index, message.commit, message.vote, message.reject_hint)
    if not all(0 <= number <= NO_LIMIT for number in numbers):
        raise InvalidMessageError(f"a number of the {message.type.name} is out of range")
    if max(message.term, message.log_term, *(entry.term for entry in message.entries)) > TERM_MAX:
        raise InvalidMessageError(f"a term of the {message.type.name} is above {TERM_MAX}")
    if message.type is MessageType.SNAP and (message.snapshot is None or message.snapshot.is_empty):
        raise InvalidMessageError("a SNAP without a snapshot")
    if message.snapshot is not None:
        _check_snapshot(message.snapshot)
    if message.type is MessageType.APP:
        _check_entries(message)
    for entry in message.entries:
        if entry.type is not EntryType.NORMAL:
            decode_conf_change(entry)


def _check_snapshot(snapshot: Snapshot) -> None:
    """Its configuration must be one that can hold: what a member would otherwise find out in the middle of a change."""
    state = snapshot.conf_state
    try:
        config, _ = restore(ProgressTracker(1, 0), snapshot.index, state)
    except ConfChangeError as error:
        raise InvalidMessageError(f"a snapshot with an impossible configuration: {error}") from error
    if config.conf_state != state.in_order() or snapshot.term > TERM_MAX:
        raise InvalidMessageError("a snapshot with an impossible configuration or term")


def _check_entries(message: Message) -> None:
    """Indexes without gaps, terms that only rise and end at the leader's: what makes a slice of a log."""
    last = EntryId(message.log_term, message.index)
    for entry in message.entries:
        if entry.index != last.index + 1 or entry.term < last.term:
            raise InvalidMessageError(f"entry {entry.index} of term {entry.term} follows {last.index} of {last.term}")
        last = entry.id
    if message.term < last.term:
        raise InvalidMessageError(f"a leader of term {message.term} sent an entry of term {last.term}")
