"""The records of `__consumer_offsets`: Kafka's bytes, read back whole, and any other bytes survived."""

import struct
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.groups.harness import subscription

from logboom.groups import Coordinator, GroupLimits, LogRecord, Now
from logboom.groups.errors import GroupRecordError
from logboom.groups.placement import java_string_hash, partition_of_group
from logboom.groups.protocol import subscribed_streams
from logboom.groups.records import (
    CommittedOffset,
    GroupKey,
    OffsetKey,
    StoredGroup,
    StoredMember,
    decode_group_value,
    decode_key,
    decode_offset_value,
    encode_group_key,
    encode_group_value,
    encode_offset_key,
    encode_offset_value,
)

NAMES = st.text(max_size=30)
INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
OFFSETS = st.builds(
    CommittedOffset, offset=INT64, leader_epoch=INT32, metadata=NAMES, commit_timestamp_ms=INT64
) | st.builds(
    CommittedOffset,
    offset=INT64,
    leader_epoch=st.just(-1),
    metadata=NAMES,
    commit_timestamp_ms=INT64,
    expire_timestamp_ms=INT64,
)
MEMBERS = st.builds(
    StoredMember,
    member_id=NAMES,
    instance_id=st.none() | NAMES,
    client_id=NAMES,
    client_host=NAMES,
    rebalance_timeout_ms=st.integers(0, 2**31 - 1),
    session_timeout_ms=INT32,
    subscription=st.binary(max_size=40),
    assignment=st.binary(max_size=40),
)


@st.composite
def groups(draw: st.DrawFn) -> StoredGroup:
    members = draw(
        st.lists(
            MEMBERS,
            max_size=4,
            unique_by=(lambda m: m.member_id, lambda m: m if m.instance_id is None else m.instance_id),
        )
    )
    return StoredGroup(
        protocol_type=draw(NAMES),
        generation=draw(INT32),
        protocol=draw(NAMES if members else st.none() | NAMES),
        leader=draw(st.none() | NAMES),
        state_timestamp_ms=draw(INT64),
        members=tuple(members),
    )


@given(OFFSETS)
def test_offsets_round_trip(value: CommittedOffset) -> None:
    assert decode_offset_value(encode_offset_value(value)) == value


@given(groups())
def test_groups_round_trip(value: StoredGroup) -> None:
    assert decode_group_value(encode_group_value(value)) == value


@given(NAMES, NAMES, INT32)
def test_keys_round_trip(group_id: str, stream: str, partition: int) -> None:
    key = OffsetKey(group_id, stream, partition)
    assert decode_key(encode_offset_key(key)) == key
    assert decode_key(encode_group_key(group_id)) == GroupKey(group_id)


def test_the_bytes_are_kafkas_own() -> None:
    key = encode_offset_key(OffsetKey("g", "t", 2))
    assert key == b"\0\1" + b"\0\1g" + b"\0\1t" + b"\0\0\0\2"
    assert encode_group_key("g") == b"\0\2" + b"\0\1g"
    value = encode_offset_value(CommittedOffset(5, 7, "m", 9))
    assert value == struct.pack(">hqi", 3, 5, 7) + b"\0\1m" + struct.pack(">q", 9)
    value = encode_offset_value(CommittedOffset(5, -1, "m", 9, 11))
    assert value == struct.pack(">hq", 1, 5) + b"\0\1m" + struct.pack(">qq", 9, 11)
    empty = encode_group_value(StoredGroup("consumer", 4, None, None, 6, ()))
    assert empty == b"\0\3" + b"\0\x08consumer" + struct.pack(">ihhqi", 4, -1, -1, 6, 0)


def test_older_and_newer_versions_are_read() -> None:
    assert decode_offset_value(struct.pack(">hq", 0, 5) + b"\0\1m" + struct.pack(">q", 9)).offset == 5
    assert decode_offset_value(struct.pack(">hq", 2, 5) + b"\0\1m" + struct.pack(">q", 9)).leader_epoch == -1
    flexible = struct.pack(">hqi", 4, 5, 7) + b"\2m" + struct.pack(">q", 9) + b"\0"
    assert decode_offset_value(flexible) == CommittedOffset(5, 7, "m", 9)
    member = b"\2m\0" + b"\2c\2h" + struct.pack(">ii", 1, 2) + b"\2s\2a" + b"\1\5\1x"
    group = b"\0\4" + b"\2t" + struct.pack(">i", 3) + b"\2p\2m" + struct.pack(">q", 6) + b"\2" + member + b"\0"
    assert decode_group_value(group) == StoredGroup(
        "t", 3, "p", "m", 6, (StoredMember("m", None, "c", "h", 1, 2, b"s", b"a"),)
    )
    oldest = b"\0\0" + b"\0\1t" + struct.pack(">i", 3) + b"\0\1p\0\1m" + struct.pack(">i", 1)
    oldest += b"\0\1m\0\1c\0\1h" + struct.pack(">i", 9) + struct.pack(">i", 0) * 2
    assert decode_group_value(oldest).members[0].rebalance_timeout_ms == 9
    assert decode_key(b"\0\5anything") is None, "kinds of records of later protocols are left alone"


@settings(max_examples=300)
@given(st.none() | st.binary(max_size=80), st.none() | st.binary(max_size=200))
def test_any_bytes_are_a_record_or_refused(key: bytes | None, value: bytes | None) -> None:
    """No other exception than GroupRecordError comes out of a reader, whatever the bytes are."""
    with suppress(GroupRecordError):
        decode_key(key)
    with suppress(GroupRecordError):
        decode_offset_value(value or b"")
    with suppress(GroupRecordError):
        decode_group_value(value or b"")


@settings(max_examples=300)
@given(groups(), st.data())
def test_mutated_records_leave_the_coordinator_whole(value: StoredGroup, data: st.DataObject) -> None:
    encoded = bytearray(encode_group_value(value))
    for _ in range(data.draw(st.integers(1, 3))):
        encoded[data.draw(st.integers(0, len(encoded) - 1))] = data.draw(st.integers(0, 255))
    coordinator, now = Coordinator(GroupLimits()), Now(0, 0, 0)
    try:
        coordinator.replay(LogRecord(encode_group_key("g"), bytes(encoded)), now)
    except GroupRecordError:
        assert coordinator.overview() == []
    coordinator.start(now)
    coordinator.describe("g")


@pytest.mark.parametrize("count", [2**31 - 1, -1, 1_000_000])
def test_a_claimed_count_of_members_is_checked_before_it_is_believed(count: int) -> None:
    value = b"\0\3" + b"\0\1t" + struct.pack(">i", 3) + b"\0\1p\0\1m" + struct.pack(">qi", 0, count)
    with pytest.raises(GroupRecordError):
        decode_group_value(value + bytes(100))


def test_subscriptions() -> None:
    assert subscribed_streams(subscription("a", "b")) == frozenset("ab")
    assert subscribed_streams(b"\0\3" + subscription("a")[2:] + b"more of later versions") == frozenset("a")
    for bad in (b"", b"\0", b"\xff\xff", b"\0\0\x7f\xff\xff\xff", subscription("a")[:8], b"\0\0\0\0\0\1\0\1\xff"):
        assert subscribed_streams(bad) is None


def test_groups_are_placed_as_java_does() -> None:
    # From java: "…".hashCode()
    assert java_string_hash("console-consumer-1") == 35782224
    assert java_string_hash("żółw-😀") == 913633828
    assert java_string_hash("polygenelubricants") == -(2**31)
    assert partition_of_group("polygenelubricants", 50) == 0
    assert partition_of_group("", 8) == 0


@given(st.text(max_size=50), st.integers(1, 100))
def test_every_group_has_a_place(group_id: str, partitions: int) -> None:
    assert 0 <= partition_of_group(group_id, partitions) < partitions
