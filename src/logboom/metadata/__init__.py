"""Row 2, pure: which streams exist, as records to replay.

Commands read the immutable image and give records, or one typed error; the shell makes the records durable and applies
them. Nothing here knows the log they are kept in, time or chance.
"""

from logboom.metadata.commands import (
    CreateStream,
    Limits,
    add_partitions,
    allocate_producer_ids,
    change_config,
    check_name,
    create_stream,
    delete_stream,
)
from logboom.metadata.image import Image, Stream, apply
from logboom.metadata.records import (
    MetadataRecord,
    PartitionsAdded,
    ProducerIdsAllocated,
    StreamConfigChanged,
    StreamCreated,
    StreamDeleted,
    decode,
    encode,
)
from logboom.metadata.stream_config import (
    DEFAULT_STREAM_CONFIG,
    MAX_MESSAGE_BYTES_DEFAULT,
    STREAM_SETTINGS,
    Flush,
    SettingType,
    StreamConfig,
    StreamSetting,
    TimestampType,
    stream_setting,
)

__all__ = [
    "DEFAULT_STREAM_CONFIG",
    "MAX_MESSAGE_BYTES_DEFAULT",
    "STREAM_SETTINGS",
    "CreateStream",
    "Flush",
    "Image",
    "Limits",
    "MetadataRecord",
    "PartitionsAdded",
    "ProducerIdsAllocated",
    "SettingType",
    "Stream",
    "StreamConfig",
    "StreamConfigChanged",
    "StreamCreated",
    "StreamDeleted",
    "StreamSetting",
    "TimestampType",
    "add_partitions",
    "allocate_producer_ids",
    "apply",
    "change_config",
    "check_name",
    "create_stream",
    "decode",
    "delete_stream",
    "encode",
    "stream_setting",
]
