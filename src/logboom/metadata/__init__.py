"""Row 2, pure: which streams exist and what was set at run time, as records to replay.

    command(image, arguments) -> records, or one typed error      `commands`, `quotas`
    the caller makes the records durable                          `broker.catalog`, through its commit port
    apply_all(image, records) -> the next image                   `image`
    delta_of(image, records) -> what that changes                 `delta`

State changes in no other way. A command only reads the image, so two commands must not run at a time; replay checks
nothing, so it gives the same image on every broker and at every start. Random values (stream ids) are arguments.

An Image is immutable, so a reference to one is a consistent view. It contains nothing of one broker's own: a stream has
only the settings that it was given (`Stream.overrides`), and `Stream.config_over` lays them over a broker's defaults.
`Image.version` and `Stream.version` grow with every change, for caches.

Records are JSON with a type and a version (`records`); a newer version stops the start with the name of what is needed.
A snapshot is a SnapshotBegun followed by the records of an image, in one batch; everything before it is ignored.
Deleted streams are remembered as tombstones (`Image.tombstones`), so that a broker can tell the directory of a deleted
stream, which it may remove, from one that it does not know, which it leaves alone.

The cluster is part of the same image: `brokers` registers them, `assignment` has the state of a partition (replicas,
ISR, eligible leader replicas, leader, both epochs) and the rules by which it changes, and these have the commands:

    membership      brokers register, are fenced and unfenced, shut down, drain, leave; what that does to partitions
    leadership      a leader's proposal of an ISR, elections, rebalancing, recovery after all replicas were killed
    reassignment    replicas move (KIP-455)
    placement       which brokers get the replicas of new partitions
    observers       which brokers have copies for readers alone
    leases          who is alive: a state of the controller, in no record
    levels          which versions of records are written, so that all brokers can read them
    revisions       which entry of the log changed what last, so that a late command is known

The controller alone calls what changes something (`broker.control`).

`stream_config` is the one table of stream settings, with Kafka's names, defaults and rules; `named_settings` has those
of its rows that are read by name or change nothing, `setting_values` the kinds of their values, and `attachment` those
of the settings that attach a stream to NATS.
"""

from logboom.metadata.commands import (
    CreateStream,
    add_partitions,
    allocate_producer_ids,
    change_broker_config,
    change_config,
    check_client_may_write,
    check_name,
    create_stream,
    delete_stream,
)
from logboom.metadata.delta import ImageDelta, delta_of
from logboom.metadata.image import BROKERS_OWN, BrokerConfigs, Image, Stream, apply, apply_all
from logboom.metadata.limits import MetadataLimits
from logboom.metadata.named_settings import StreamSetting
from logboom.metadata.placement import replication_factor_max
from logboom.metadata.quotas import (
    CLIENT_ID,
    CONNECTION_CREATION_RATE,
    CONSUMER_BYTE_RATE,
    IP,
    PRODUCER_BYTE_RATE,
    QUOTA_KINDS,
    REQUEST_PERCENTAGE,
    USER,
    QuotaEntity,
    QuotaKind,
    Quotas,
    apply_quotas,
    change_quotas,
    quota_entity,
    quota_for,
)
from logboom.metadata.records import (
    BrokerConfigChanged,
    ClientQuotasChanged,
    MetadataRecord,
    PartitionsAdded,
    ProducerIdsAllocated,
    SnapshotBegun,
    StreamConfigChanged,
    StreamCreated,
    StreamDeleted,
    decode,
    decode_all,
    encode,
    encode_all,
)
from logboom.metadata.setting_values import INT64_MAX, Choice, Flag, Number, Ratio, SettingType, Unit
from logboom.metadata.stream_config import (
    DEFAULT_STREAM_CONFIG,
    MAX_MESSAGE_BYTES_DEFAULT,
    STREAM_SETTINGS,
    Compression,
    Flush,
    ObserverReads,
    StreamConfig,
    TimestampType,
    refused_settings,
    stream_setting,
)

__all__ = [
    "BROKERS_OWN",
    "CLIENT_ID",
    "CONNECTION_CREATION_RATE",
    "CONSUMER_BYTE_RATE",
    "DEFAULT_STREAM_CONFIG",
    "INT64_MAX",
    "IP",
    "MAX_MESSAGE_BYTES_DEFAULT",
    "PRODUCER_BYTE_RATE",
    "QUOTA_KINDS",
    "REQUEST_PERCENTAGE",
    "STREAM_SETTINGS",
    "USER",
    "BrokerConfigChanged",
    "BrokerConfigs",
    "Choice",
    "ClientQuotasChanged",
    "Compression",
    "CreateStream",
    "Flag",
    "Flush",
    "Image",
    "ImageDelta",
    "MetadataLimits",
    "MetadataRecord",
    "Number",
    "ObserverReads",
    "PartitionsAdded",
    "ProducerIdsAllocated",
    "QuotaEntity",
    "QuotaKind",
    "Quotas",
    "Ratio",
    "SettingType",
    "SnapshotBegun",
    "Stream",
    "StreamConfig",
    "StreamConfigChanged",
    "StreamCreated",
    "StreamDeleted",
    "StreamSetting",
    "TimestampType",
    "Unit",
    "add_partitions",
    "allocate_producer_ids",
    "apply",
    "apply_all",
    "apply_quotas",
    "change_broker_config",
    "change_config",
    "change_quotas",
    "check_client_may_write",
    "check_name",
    "create_stream",
    "decode",
    "decode_all",
    "delete_stream",
    "delta_of",
    "encode",
    "encode_all",
    "quota_entity",
    "quota_for",
    "refused_settings",
    "replication_factor_max",
    "stream_setting",
]
