"""What is written to the metadata log: one record per fact, JSON with a type and a version.

Knows the shape and the bytes of facts, nothing of what they mean together (`image`) or who may state them (`commands`).

A version is raised when a field is added or changes its meaning; a program that meets a newer one stops by name instead
of guessing.
"""

from typing import Final, TypeAlias

import msgspec

from logboom.base.errors import FormatVersionError, StorageError
from logboom.base.ids import ProducerId, StreamId, StreamName


class Fact(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", forbid_unknown_fields=True):
    """Base of all metadata records."""

    version: int = 1


class StreamCreated(Fact, frozen=True, kw_only=True, tag="stream_created"):
    """A stream came to be, with all of its partitions."""

    name: StreamName
    id: StreamId
    partitions: int
    config: dict[str, str]
    """Only what was asked for; everything else follows the defaults of the day."""
    internal: bool = False


class PartitionsAdded(Fact, frozen=True, kw_only=True, tag="partitions_added"):
    """A stream grew to `total` partitions; those it had keep their numbers and records."""

    id: StreamId
    total: int


class StreamConfigChanged(Fact, frozen=True, kw_only=True, tag="stream_config_changed"):
    """The settings that a stream has of its own, whole."""

    id: StreamId
    config: dict[str, str]


class StreamDeleted(Fact, frozen=True, kw_only=True, tag="stream_deleted"):
    """A stream and all its records are gone; its id never comes back."""

    id: StreamId


class ProducerIdsAllocated(Fact, frozen=True, kw_only=True, tag="producer_ids_allocated"):
    """Every producer id below `next_id` was given away, or lost with the broker that held it, and is never reused."""

    next_id: ProducerId


class ClientQuotasChanged(Fact, frozen=True, kw_only=True, tag="client_quotas_changed"):
    """The quotas that an entity has, whole; without any it has none of its own."""

    entity: dict[str, str | None]
    """Name by type, as `client-id`; null is the default of the type."""
    quotas: dict[str, float]


class BrokerConfigChanged(Fact, frozen=True, kw_only=True, tag="broker_config_changed"):
    """The settings that were changed at run time, whole: of one broker, or of all of them where `broker` is empty."""

    broker: str
    config: dict[str, str]


class SnapshotBegun(Fact, frozen=True, kw_only=True, tag="snapshot_begun"):
    """The records behind this one, in the same batch, say all that the records before it said."""

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
    """The bytes of a record."""
    return _encoder.encode(record)


def decode(data: bytes) -> MetadataRecord:
    """The record of some bytes. Raises FormatVersionError for a newer one, StorageError for anything else."""
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
