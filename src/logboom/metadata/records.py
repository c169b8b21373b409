"""The records of the metadata log: one JSON object each, with a type and a version.

Knows their fields and bytes; what they make together is in `image`, and when they may be written in `commands`.

The version of a type is raised when a field is added or changes its meaning. A program that reads a newer version
refuses the log and says which program can read it.
"""

import contextlib
from collections.abc import Iterable, Sequence
from typing import Any, Final, TypeAlias

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import astuple, replace

from logboom.base.errors import FormatVersionError, StorageError
from logboom.base.ids import BrokerEpoch, BrokerId, DirectoryId, Epoch, PartitionEpoch, ProducerId, StreamId, StreamName
from logboom.metadata.assignment import Assignment, PartitionChange, Replicas


class _Record(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", forbid_unknown_fields=True):
    """Base of all metadata records."""

    version: int = 1


class Placed(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A partition of a record, as it stands then. As an array, since one record has up to ten thousand of them."""

    replicas: Replicas
    isr: Replicas
    leader: BrokerId
    leader_epoch: Epoch = Epoch(0)
    partition_epoch: PartitionEpoch = PartitionEpoch(0)
    elr: Replicas = ()
    last_known: Replicas = ()
    adding: Replicas = ()
    removing: Replicas = ()

    @classmethod
    def of(cls, assignment: Assignment) -> "Placed":
        """The same, to be written."""
        return cls(*(getattr(assignment, name) for name in cls.__struct_fields__))

    @property
    def assignment(self) -> Assignment:
        """The same, as the image has it."""
        return Assignment(*astuple(self))  # its first fields are these, in this order


Observers: TypeAlias = tuple[Replicas, ...] | UnsetType
"""The observers of each partition that a record places. Left out where no partition has one, so that programs from
before there were observers read the record on."""


def observed(assignments: Sequence[Assignment]) -> dict[str, Any]:
    """The version and the `observers` of a record that places these partitions."""
    groups = tuple(one.observers for one in assignments)
    return {"version": 3, "observers": groups} if any(groups) else {}


def _assigned(placed: Sequence[Placed], observers: Observers) -> tuple[Assignment, ...]:
    if observers is UNSET:
        return tuple(one.assignment for one in placed)
    return tuple(replace(one.assignment, observers=group) for one, group in zip(placed, observers, strict=True))


class StreamCreated(_Record, frozen=True, kw_only=True, tag="stream_created"):
    """A stream was created, with all of its partitions."""

    version: int = 2
    name: StreamName
    id: StreamId
    partitions: int
    config: dict[str, str]
    """The settings that were given; all others follow the broker's defaults, also when those change later."""
    internal: bool = False
    placed: tuple[Placed, ...] = ()
    """Who holds each partition. Records of version 1 have none: there was one broker (`PartitionsPlaced`)."""
    observers: Observers = UNSET
    """Of version 3."""

    @property
    def assignments(self) -> tuple[Assignment, ...]:
        """The partitions, as the image has them."""
        return _assigned(self.placed, self.observers)


class PartitionsAdded(_Record, frozen=True, kw_only=True, tag="partitions_added"):
    """A stream grew to `total` partitions; the existing ones keep their indexes and records."""

    version: int = 2
    id: StreamId
    total: int
    placed: tuple[Placed, ...] = ()
    """Who holds each of the new partitions. Records of version 1 have none."""
    observers: Observers = UNSET
    """Of version 3."""

    @property
    def assignments(self) -> tuple[Assignment, ...]:
        """The new partitions, as the image has them."""
        return _assigned(self.placed, self.observers)


class PartitionsPlaced(_Record, frozen=True, kw_only=True, tag="partitions_placed"):
    """Who holds the partitions of a stream that was created when there was one broker and nobody wrote it down."""

    id: StreamId
    placed: tuple[Placed, ...]


class PartitionsChanged(_Record, frozen=True, kw_only=True, tag="partitions_changed"):
    """Replicas, ISR, leader or observers of some partitions of a stream changed. Version 2 where observers did."""

    id: StreamId
    changes: tuple[PartitionChange, ...]


class BrokerRegistered(_Record, frozen=True, kw_only=True, tag="broker_registered"):
    """A process of a broker began. It is fenced at first. Every partition that an earlier one led has a new epoch."""

    id: BrokerId
    epoch: BrokerEpoch
    directory_id: DirectoryId
    incarnation: str
    """A random value of the process."""
    listeners: dict[str, tuple[str, int]]
    """Host and port by the name of the listener."""
    rack: str | None = None
    failure_domain: str = ""
    """What fails together with it, such as all processes of one machine; empty: nothing else."""
    software: str = ""
    """The version of the program, for people."""
    observer: bool | UnsetType = UNSET
    """True for a broker that only observes; else left out. Of version 2."""
    levels: tuple[int, int] | UnsetType = UNSET
    """The oldest and the newest metadata level that its program speaks (`levels`). Of version 3."""


class MetadataLevelSet(_Record, frozen=True, kw_only=True, tag="metadata_level_set"):
    """From here on records of this level are written (`levels`)."""

    level: int


class BrokerChanged(_Record, frozen=True, kw_only=True, tag="broker_changed"):
    """A broker was fenced or unfenced, or began to leave. None is not a change."""

    id: BrokerId
    fenced: bool | None = None
    shutting_down: bool | None = None
    draining: bool | None = None


class BrokerUnregistered(_Record, frozen=True, kw_only=True, tag="broker_unregistered"):
    """A broker left the cluster for good."""

    id: BrokerId


class StreamConfigChanged(_Record, frozen=True, kw_only=True, tag="stream_config_changed"):
    """A stream's own settings, all of them: those that are absent are at their defaults from now on."""

    id: StreamId
    config: dict[str, str]


class StreamDeleted(_Record, frozen=True, kw_only=True, tag="stream_deleted"):
    """A stream was deleted, with all its records. Its id is never used again."""

    id: StreamId


class ProducerIdsAllocated(_Record, frozen=True, kw_only=True, tag="producer_ids_allocated"):
    """Producer ids below `next_id` are never allocated again: they are in use, or were lost with a broker's block."""

    next_id: ProducerId


class ClientQuotasChanged(_Record, frozen=True, kw_only=True, tag="client_quotas_changed"):
    """All quotas of one entity; an empty mapping removes them."""

    entity: dict[str, str | None]
    """Name by type, such as `client-id`; null is the default of the type."""
    quotas: dict[str, float]


class BrokerConfigChanged(_Record, frozen=True, kw_only=True, tag="broker_config_changed"):
    """All settings changed at run time, of one broker, or the defaults of all brokers where `broker` is empty."""

    broker: str
    config: dict[str, str]


class SnapshotBegun(_Record, frozen=True, kw_only=True, tag="snapshot_begun"):
    """Begins a snapshot: the following records of the same batch replace all records before it."""

    version: int = 2
    deleted: tuple[StreamId, ...] = ()
    """Streams that were deleted, the latest last."""
    next_broker_epoch: BrokerEpoch = BrokerEpoch(0)


MetadataRecord: TypeAlias = (
    StreamCreated
    | PartitionsAdded
    | StreamConfigChanged
    | StreamDeleted
    | ProducerIdsAllocated
    | ClientQuotasChanged
    | BrokerConfigChanged
    | SnapshotBegun
    | PartitionsPlaced
    | PartitionsChanged
    | BrokerRegistered
    | BrokerChanged
    | BrokerUnregistered
    | MetadataLevelSet
)


class _Kind(msgspec.Struct):
    type: str
    version: int


_VERSIONS: Final = {
    "stream_created": 3,
    "partitions_added": 3,
    "stream_config_changed": 1,
    "stream_deleted": 1,
    "producer_ids_allocated": 1,
    "client_quotas_changed": 1,
    "broker_config_changed": 1,
    "snapshot_begun": 2,
    "partitions_placed": 1,
    "partitions_changed": 2,
    "broker_registered": 3,
    "broker_changed": 1,
    "broker_unregistered": 1,
    "metadata_level_set": 1,
}
LEVEL_OLDEST: Final = 1
LEVEL_NEWEST: Final = 3
LEVEL_OF: Final = {(MetadataLevelSet, 1): 2, (BrokerRegistered, 3): 2}
"""The metadata levels that versions of records need, where that is not the oldest one."""
_encoder: Final = msgspec.json.Encoder()
_kind_decoder: Final = msgspec.json.Decoder(_Kind)
_kinds_decoder: Final = msgspec.json.Decoder(list[_Kind])
_list_decoder: Final = msgspec.json.Decoder(list[msgspec.Raw])
_decoder: Final[msgspec.json.Decoder[MetadataRecord]] = msgspec.json.Decoder(MetadataRecord)
_all_decoder: Final[msgspec.json.Decoder[list[MetadataRecord]]] = msgspec.json.Decoder(list[MetadataRecord])


def encode(record: MetadataRecord) -> bytes:
    """A record as bytes."""
    return _encoder.encode(record)


def decode(data: bytes) -> MetadataRecord:
    """A record from bytes. Raises FormatVersionError for a newer version, StorageError for anything unreadable."""
    try:
        kind = _kind_decoder.decode(data)
        if kind.version > _VERSIONS.get(kind.type, 0):
            raise FormatVersionError(
                f"the metadata log holds a {kind.type!r} record of version {kind.version}, written by a newer Logboom; "
                "start that version, or a newer one, on this data directory"
            )
        record = _decoder.decode(data)
    except msgspec.DecodeError as error:
        raise StorageError(f"a record of the metadata log cannot be read: {error}") from None
    if isinstance(record, MetadataLevelSet) and record.level > LEVEL_NEWEST:
        raise FormatVersionError(
            f"the cluster is at metadata level {record.level}, and this program speaks levels up to {LEVEL_NEWEST}: "
            "start a newer version of Logboom on this data directory"
        )
    return record


def level_of(record: MetadataRecord) -> int:
    """The metadata level from which on a record is written."""
    return LEVEL_OF.get((type(record), record.version), LEVEL_OLDEST)


def encode_all(records: Iterable[MetadataRecord]) -> bytes:
    """Records that are committed together: one entry of the cluster's log, or a snapshot."""
    return _encoder.encode(list(records))


def decode_all(data: bytes) -> list[MetadataRecord]:
    """The records of `encode_all`. Raises as `decode`."""
    # All in one go, which takes half the time. Where something is wrong with one, a look at each of them tells what.
    with contextlib.suppress(msgspec.DecodeError):
        if all(kind.version <= _VERSIONS.get(kind.type, 0) for kind in _kinds_decoder.decode(data)):
            records = _all_decoder.decode(data)
            if all(one.level <= LEVEL_NEWEST for one in records if isinstance(one, MetadataLevelSet)):
                return records
    try:
        return [decode(bytes(one)) for one in _list_decoder.decode(data)]
    except msgspec.DecodeError as error:
        raise StorageError(f"an entry of the metadata log cannot be read: {error}") from None
