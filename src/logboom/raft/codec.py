"""Encodes messages, membership changes and snapshots, and checks decoded ones before they reach the core.

The encoding is MessagePack by msgspec, whose decoder checks types and allocates no more than its input justifies.
Decoded messages are checked for what the core relies on: the type is one that other nodes send, entries have
consecutive indexes, and their terms never decrease. A message that fails a check raises InvalidMessageError.
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
    """Encode a message for another node."""
    assert message.type not in LOCAL_MESSAGES, f"{message.type.name} stays on this node"
    return _ENCODER.encode(message)


def decode_message(data: bytes | memoryview) -> Message:
    """Decode and check a message of another node. Raises InvalidMessageError."""
    try:
        message = _MESSAGES.decode(data)
    except (msgspec.DecodeError, RecursionError) as error:
        raise InvalidMessageError(f"not a Raft message: {error}") from error
    _check(message)
    return message


def encode_conf_change(change: ConfChange | ConfChangeV2 | None) -> tuple[EntryType, bytes]:
    """Type and data of the entry for a membership change. None: the entry that leaves a joint configuration.

    That entry has no data, so the limit on the size of the uncommitted log never refuses it.
    """
    if change is None:
        return EntryType.CONF_CHANGE_V2, b""
    kind = EntryType.CONF_CHANGE if isinstance(change, ConfChange) else EntryType.CONF_CHANGE_V2
    return kind, _ENCODER.encode(change)


def decode_conf_change(entry: Entry) -> ConfChangeV2:
    """Decode the membership change of an entry. Raises InvalidMessageError."""
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
    """Raise InvalidMessageError if the configuration of a snapshot is not valid; otherwise restoring it would fail
    halfway."""
    state = snapshot.conf_state
    try:
        config, _ = restore(ProgressTracker(1, 0), snapshot.index, state)
    except ConfChangeError as error:
        raise InvalidMessageError(f"a snapshot with an impossible configuration: {error}") from error
    if config.conf_state != state.in_order() or snapshot.term > TERM_MAX:
        raise InvalidMessageError("a snapshot with an impossible configuration or term")


def _check_entries(message: Message) -> None:
    """Raise InvalidMessageError unless indexes are consecutive and terms never decrease nor exceed the leader's
    term."""
    last = EntryId(message.log_term, message.index)
    for entry in message.entries:
        if entry.index != last.index + 1 or entry.term < last.term:
            raise InvalidMessageError(f"entry {entry.index} of term {entry.term} follows {last.index} of {last.term}")
        last = entry.id
    if message.term < last.term:
        raise InvalidMessageError(f"a leader of term {message.term} sent an entry of term {last.term}")
