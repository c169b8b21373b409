"""The records of `__consumer_offsets`, in Kafka's own format, so that Kafka's tools can read them.

Written: OffsetCommitKey v1 with OffsetCommitValue v3 (v1 where the commit named a retention time, as in Kafka),
GroupMetadataKey v2 with GroupMetadataValue v3, and null values as tombstones. Read: every version Kafka ever wrote.
Decoders take any bytes and raise GroupRecordError alone; a key of a kind that later protocols use (KIP-848) gives None.
Source: group-coordinator/src/main/resources/common/message in Apache Kafka.
"""

from dataclasses import dataclass
from struct import Struct
from typing import Final, NamedTuple

from logboom.groups.errors import GroupRecordError
from logboom.groups.wire import GroupRecordReader, Writer

_OFFSET_KEY_VERSIONS: Final = (0, 1)
_GROUP_KEY_VERSION: Final = 2
_VALUE_VERSION_MAX: Final = 4
_FLEXIBLE_VALUE_VERSION: Final = 4
_MEMBER_BYTES_MIN: Final = 8
"""The least that one member takes in any version; an array that claims more members than fit is refused unread."""

_VERSION_AND_LENGTH: Final = Struct(">hh")
_LENGTH: Final = Struct(">h")
_PARTITION: Final = Struct(">i")
_OFFSET_VALUE_HEAD: Final = Struct(">hqih")
_TIMESTAMP: Final = Struct(">q")

NO_EXPIRY: Final = -1


class LogRecord(NamedTuple):
    """Key and value of a record; the value None is a tombstone."""

    key: bytes
    value: bytes | None


class OffsetKey(NamedTuple):
    """The key of a committed offset."""

    group_id: str
    stream: str
    partition: int


class GroupKey(NamedTuple):
    """The key of a group's metadata."""

    group_id: str


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """A committed offset: the next one that the group will read."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    """Wall time of the commit."""
    expire_timestamp_ms: int = NO_EXPIRY
    """Wall time at which it expires, where the commit named a retention time (OffsetCommit v2 to v4)."""


@dataclass(frozen=True, slots=True)
class StoredMember:
    """A member in the value of a record."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True)
class StoredGroup:
    """A generation of a group as its record in the log has it."""

    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    state_timestamp_ms: int
    """Wall time of the last change of state; -1 where unknown."""
    members: tuple[StoredMember, ...]


def encode_offset_key(key: OffsetKey) -> bytes:
    """OffsetCommitKey v1. Packed without `Writer`, as its value is: commits write one of each for every partition."""
    group_id, stream = key.group_id.encode(), key.stream.encode()
    head, middle = _VERSION_AND_LENGTH.pack(1, len(group_id)), _LENGTH.pack(len(stream))
    return b"".join((head, group_id, middle, stream, _PARTITION.pack(key.partition)))


def encode_group_key(group_id: str) -> bytes:
    """GroupMetadataKey v2."""
    return Writer().i16(_GROUP_KEY_VERSION).string(group_id).to_bytes()


def encode_offset_value(value: CommittedOffset) -> bytes:
    """OffsetCommitValue v3; v1 where the offset has an expiry of its own, a field that later versions dropped."""
    if value.expire_timestamp_ms != NO_EXPIRY:
        writer = Writer().i16(1).i64(value.offset).string(value.metadata)
        return writer.i64(value.commit_timestamp_ms).i64(value.expire_timestamp_ms).to_bytes()
    metadata = value.metadata.encode()
    head = _OFFSET_VALUE_HEAD.pack(3, value.offset, value.leader_epoch, len(metadata))
    return b"".join((head, metadata, _TIMESTAMP.pack(value.commit_timestamp_ms)))


def encode_group_value(value: StoredGroup) -> bytes:
    """GroupMetadataValue v3."""
    writer = Writer().i16(3).string(value.protocol_type).i32(value.generation)
    writer.string(value.protocol).string(value.leader).i64(value.state_timestamp_ms).i32(len(value.members))
    for member in value.members:
        writer.string(member.member_id).string(member.instance_id)
        writer.string(member.client_id).string(member.client_host)
        writer.i32(member.rebalance_timeout_ms).i32(member.session_timeout_ms)
        writer.byte_array(member.subscription).byte_array(member.assignment)
    return writer.to_bytes()


def decode_key(key: bytes | None) -> OffsetKey | GroupKey | None:
    """The key of a record; None for the kinds of KIP-848 and later, which are not used here.

    Raises GroupRecordError.
    """
    if key is None:
        raise GroupRecordError("a record without a key")
    reader = GroupRecordReader(key)
    version = reader.i16()
    if version in _OFFSET_KEY_VERSIONS:
        group_id = reader.string(flexible=False)
        return OffsetKey(group_id, reader.string(flexible=False), reader.i32())
    if version == _GROUP_KEY_VERSION:
        return GroupKey(reader.string(flexible=False))
    if version < 0:
        raise GroupRecordError(f"key version {version}")
    return None


def _value_version(reader: GroupRecordReader) -> int:
    version = reader.i16()
    if not 0 <= version <= _VALUE_VERSION_MAX:
        raise GroupRecordError(f"value version {version}")
    return version


def decode_offset_value(value: bytes) -> CommittedOffset:
    """OffsetCommitValue v0 to v4."""
    reader = GroupRecordReader(value)
    version = _value_version(reader)
    offset = reader.i64()
    leader_epoch = reader.i32() if version >= 3 else -1
    metadata = reader.string(flexible=version >= _FLEXIBLE_VALUE_VERSION)
    commit_timestamp_ms = reader.i64()
    expire_timestamp_ms = reader.i64() if version == 1 else NO_EXPIRY
    return CommittedOffset(offset, leader_epoch, metadata, commit_timestamp_ms, expire_timestamp_ms)


def decode_group_value(value: bytes) -> StoredGroup:
    """GroupMetadataValue v0 to v4. Raises GroupRecordError also for members that contradict each other."""
    reader = GroupRecordReader(value)
    version = _value_version(reader)
    flexible = version >= _FLEXIBLE_VALUE_VERSION
    protocol_type = reader.string(flexible=flexible)
    generation = reader.i32()
    protocol = reader.nullable_string(flexible=flexible)
    leader = reader.nullable_string(flexible=flexible)
    state_timestamp_ms = reader.i64() if version >= 2 else -1
    count = reader.count(_MEMBER_BYTES_MIN, flexible=flexible)
    members = tuple(_decode_member(reader, version) for _ in range(count))
    _check_members(protocol, members)
    return StoredGroup(protocol_type, generation, protocol, leader, state_timestamp_ms, members)


def _decode_member(reader: GroupRecordReader, version: int) -> StoredMember:
    flexible = version >= _FLEXIBLE_VALUE_VERSION
    member_id = reader.string(flexible=flexible)
    instance_id = reader.nullable_string(flexible=flexible) if version >= 3 else None
    client_id = reader.string(flexible=flexible)
    client_host = reader.string(flexible=flexible)
    rebalance_timeout_ms = reader.i32() if version >= 1 else -1
    session_timeout_ms = reader.i32()
    member = StoredMember(
        member_id=member_id,
        instance_id=instance_id,
        client_id=client_id,
        client_host=client_host,
        rebalance_timeout_ms=session_timeout_ms if rebalance_timeout_ms == -1 else rebalance_timeout_ms,
        session_timeout_ms=session_timeout_ms,
        subscription=reader.byte_array(flexible=flexible),
        assignment=reader.byte_array(flexible=flexible),
    )
    if flexible:
        reader.skip_tags()
    return member


def _check_members(protocol: str | None, members: tuple[StoredMember, ...]) -> None:
    if members and protocol is None:
        raise GroupRecordError("members without a protocol")
    if len({member.member_id for member in members}) < len(members):
        raise GroupRecordError("two members of one id")
    instances = [member.instance_id for member in members if member.instance_id is not None]
    if len(set(instances)) < len(instances):
        raise GroupRecordError("two members of one instance id")
