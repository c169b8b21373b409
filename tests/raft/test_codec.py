"""Bytes from the network: what was encoded is decoded, and nothing else gets past the checks."""

from uuid import UUID

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logboom.base.ids import BrokerId
from logboom.raft import (
    ConfChange,
    ConfChangeSingle,
    ConfChangeTransition,
    ConfChangeType,
    ConfChangeV2,
    ConfState,
    Entry,
    EntryType,
    Index,
    InvalidMessageError,
    Message,
    MessageType,
    NodeId,
    Snapshot,
    Term,
    Voter,
    decode_conf_change,
    decode_message,
    encode_message,
)
from logboom.raft.codec import encode_conf_change
from logboom.raft.messages import LOCAL_APPEND_THREAD, LOCAL_MESSAGES

NUMBERS = st.integers(0, 2**64 - 1)
IDS = st.integers(1, 2**63).map(NodeId)
REMOTE = st.sampled_from([kind for kind in MessageType if kind not in LOCAL_MESSAGES | {MessageType.SNAP}])
SNAPSHOTS = st.builds(
    Snapshot,
    st.integers(1, 2**62).map(Index),
    st.integers(1, 2**31 - 1).map(Term),
    st.builds(ConfState, st.lists(IDS, unique=True, max_size=4).map(lambda ids: tuple(sorted(ids)))),
    st.binary(max_size=100),
)


@st.composite
def messages(draw: st.DrawFn) -> Message:
    kind = draw(REMOTE | st.just(MessageType.SNAP))
    term, index = draw(st.integers(1, 2**31 - 1)), draw(st.integers(0, 2**40))
    count = draw(st.integers(0, 3))
    entries = tuple(
        Entry(Term(term), Index(index + 1 + number), data=draw(st.binary(max_size=30))) for number in range(count)
    )
    sender = draw(IDS)
    return Message(
        type=kind,
        sender=sender,
        to=draw(IDS.filter(lambda node_id: node_id != sender)),
        term=Term(term),
        index=Index(index),
        log_term=Term(draw(st.integers(0, term))),
        entries=entries,
        commit=draw(NUMBERS.map(Index)),
        reject=draw(st.booleans()),
        reject_hint=draw(NUMBERS.map(Index)),
        context=draw(st.binary(max_size=20)),
        snapshot=draw(SNAPSHOTS) if kind is MessageType.SNAP else None,
    )


@given(messages())
def test_a_message_comes_back_as_it_was(message: Message) -> None:
    assert decode_message(encode_message(message)) == message


@given(st.binary(max_size=300))
def test_garbage_is_refused(data: bytes) -> None:
    with pytest.raises(InvalidMessageError):
        decode_message(data)


@given(messages(), st.data())
def test_a_damaged_message_is_decoded_or_refused(message: Message, data: st.DataObject) -> None:
    encoded = bytearray(encode_message(message))
    for _ in range(data.draw(st.integers(1, 3))):
        encoded[data.draw(st.integers(0, len(encoded) - 1))] = data.draw(st.integers(0, 255))
    try:
        decoded = decode_message(bytes(encoded[: data.draw(st.integers(0, len(encoded)))]))
    except InvalidMessageError:
        return
    assert decode_message(encode_message(decoded)) == decoded


def entry(term: int, index: int, kind: EntryType = EntryType.NORMAL, data: bytes = b"") -> Entry:
    return Entry(Term(term), Index(index), kind, data)


def snapshot_of(voters: tuple[int, ...], learners: tuple[int, ...]) -> Snapshot:
    state = ConfState(tuple(map(NodeId, voters)), tuple(map(NodeId, learners)))
    return Snapshot(Index(5), Term(1), state)


def message(kind: MessageType, **fields: object) -> Message:
    return Message(type=kind, **{"sender": NodeId(1), "to": NodeId(2), "term": Term(3), **fields})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("refused", "reason"),
    [
        (message(MessageType.APP, sender=LOCAL_APPEND_THREAD), "no such ids"),
        (message(MessageType.APP, sender=NodeId(0)), "no such ids"),
        (message(MessageType.APP, to=NodeId(1)), "does not send to itself"),
        (message(MessageType.SNAP), "without a snapshot"),
        (message(MessageType.APP, index=Index(4), log_term=Term(3), entries=(entry(3, 6),)), "follows"),
        (message(MessageType.APP, index=Index(4), log_term=Term(3), entries=(entry(2, 5),)), "follows"),
        (message(MessageType.APP, index=Index(4), log_term=Term(3), entries=(entry(4, 5),)), "leader of term 3"),
        (message(MessageType.APP, index=Index(-1)), "out of range"),
        (message(MessageType.VOTE, term=Term(2**31)), "is above"),
        (message(MessageType.SNAP, snapshot=snapshot_of((1, 1), ())), "impossible configuration"),
        (message(MessageType.SNAP, snapshot=snapshot_of((1, 2), (2,))), "impossible configuration"),
        (message(MessageType.SNAP, snapshot=snapshot_of((), (3,))), "impossible configuration"),
        (message(MessageType.APP, responses=(message(MessageType.APP),)), "never comes from another node"),
        (message(MessageType.PROP, entries=(entry(0, 0, EntryType.CONF_CHANGE, b"?"),)), "not a membership change"),
    ],
)
def test_what_no_member_sends_is_refused(refused: Message, reason: str) -> None:
    with pytest.raises(InvalidMessageError, match=reason):
        decode_message(encode_message(refused))


def test_a_member_says_some_things_only_to_itself() -> None:
    data = msgspec.msgpack.encode(message(MessageType.HUP))
    with pytest.raises(InvalidMessageError, match="never comes from another node"):
        decode_message(data)


@given(
    st.lists(st.builds(ConfChangeSingle, st.sampled_from(ConfChangeType), IDS), max_size=4),
    st.sampled_from(ConfChangeTransition),
    st.binary(max_size=50),
)
def test_changes_of_members_come_back_as_they_were(
    changes: list[ConfChangeSingle], transition: ConfChangeTransition, context: bytes
) -> None:
    general = ConfChangeV2(tuple(changes), transition, context)
    kind, data = encode_conf_change(general)
    assert decode_conf_change(entry(1, 1, kind, data)) == general
    for change in changes:
        kind, data = encode_conf_change(ConfChange(change, context))
        assert decode_conf_change(entry(1, 1, kind, data)).changes == (change,)
    kind, data = encode_conf_change(None)
    assert decode_conf_change(entry(1, 1, kind, data)).leaves_joint
    assert not data


@given(st.integers(0, 2**31 - 1).map(BrokerId), st.uuids(), st.uuids())
def test_another_directory_is_another_voter(broker_id: BrokerId, directory: UUID, other: UUID) -> None:
    node_id = Voter(broker_id, directory).node_id
    assert 0 < node_id < 2**63
    assert node_id == Voter(broker_id, directory).node_id
    assert (Voter(broker_id, other).node_id == node_id) is (other == directory)
