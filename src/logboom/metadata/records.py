"""The records of the metadata log: one JSON object each, with a type and a version.

Knows their fields and bytes; what they make together is in `image`, and when they may be written in `commands`.

The version of a type is raised when a field is added or changes its meaning. A program that reads a newer version
refuses the log and says which program can read it.
"""

from typing import Final, TypeAlias

import msgspec

from logboom.base.errors import FormatVersionError, StorageError
from logboom.base.ids import ProducerId, StreamId, StreamName


class _Record(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", forbid_unknown_fields=True):
    """Base of all metadata records."""

    version: int = 1


class StreamCreated(_Record, frozen=True, kw_only=True, tag="stream_created"):
    """A stream was created, with all of its partitions."""

    name: StreamName
    id: StreamId
    partitions: int
    config: dict[str, str]
    """The settings that were given; all others follow the broker's defaults, also when those change later."""
    internal: bool = False


class PartitionsAdded(_Record, frozen=True, kw_only=True, tag="partitions_added"):
    """A stream grew to `total` partitions; the existing ones keep their indexes and records."""

    id: StreamId
    total: int


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

    deleted: tuple[StreamId, ...] = ()
    """Streams that were deleted, the latest last."""


MetadataRecord: TypeAlias = (
    StreamCreated
    | PartitionsAdded
    | StreamConfigChanged
    | StreamDeleted
    | ProducerIdsAllocated
    | ClientQuotasChanged
    | BrokerConfigChanged
    | SnapshotBegun
)


class _Kind(msgspec.Struct):
    type: str
    version: int


_VERSIONS: Final = {
    "stream_created": 1,
    "partitions_added": 1,
    "stream_config_changed": 1,
    "stream_deleted": 1,
    "producer_ids_allocated": 1,
    "client_quotas_changed": 1,
    "broker_config_changed": 1,
    "snapshot_begun": 1,
}
_encoder: Final = msgspec.json.Encoder()
_kind_decoder: Final = msgspec.json.Decoder(_Kind)
_decoder: Final[msgspec.json.Decoder[MetadataRecord]] = msgspec.json.Decoder(MetadataRecord)


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
        return _decoder.decode(data)
    except msgspec.DecodeError as error:
        raise StorageError(f"a record of the metadata log cannot be read: {error}") from None
