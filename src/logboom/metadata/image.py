"""Which streams exist: an immutable image, and how one record makes the next image out of it.

Knows only what records say. It validates nothing (`commands` did, before a record was written); a record that does not
fit the image it meets is a broken promise and asserts.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final

from logboom.base.ids import ProducerId, StreamId, StreamName
from logboom.metadata.quotas import QuotaEntity, Quotas
from logboom.metadata.records import (
    ClientQuotasChanged,
    MetadataRecord,
    PartitionsAdded,
    ProducerIdsAllocated,
    StreamConfigChanged,
    StreamCreated,
    StreamDeleted,
)
from logboom.metadata.stream_config import DEFAULT_STREAM_CONFIG, StreamConfig


@dataclass(frozen=True, slots=True)
class Stream:
    """One stream as everybody sees it."""

    name: StreamName
    id: StreamId
    partitions: int
    overrides: Mapping[str, str]
    """What was set for this stream, by Kafka's names."""
    config: StreamConfig
    """What it runs under."""
    internal: bool


_FIRST_PRODUCER_ID: Final = ProducerId(0)


@dataclass(frozen=True, slots=True)
class Image:
    """Everything the records so far say. The defaults are this broker's and are under every stream's own settings."""

    defaults: StreamConfig = DEFAULT_STREAM_CONFIG
    by_name: Mapping[StreamName, Stream] = field(default_factory=lambda: MappingProxyType({}))
    by_id: Mapping[StreamId, Stream] = field(default_factory=lambda: MappingProxyType({}))
    next_producer_id: ProducerId = _FIRST_PRODUCER_ID
    quotas: Mapping[QuotaEntity, Quotas] = field(default_factory=lambda: MappingProxyType({}))
    """What was set, by whom it is for; nobody is here without a quota."""

    @property
    def partition_count(self) -> int:
        """Partitions of all streams together."""
        return sum(stream.partitions for stream in self.by_name.values())

    def __iter__(self) -> Iterator[Stream]:
        return iter(self.by_name.values())


def apply(image: Image, record: MetadataRecord) -> Image:
    """The image after one more record."""
    match record:
        case StreamCreated():
            return _created(image, record)
        case PartitionsAdded():
            stream = image.by_id[record.id]
            assert record.total > stream.partitions, f"{stream.name} does not grow from {stream.partitions}"
            return _with(image, replace(stream, partitions=record.total))
        case StreamConfigChanged():
            stream = image.by_id[record.id]
            config = _config(image, record.config, internal=stream.internal)
            return _with(image, replace(stream, overrides=MappingProxyType(dict(record.config)), config=config))
        case StreamDeleted():
            return _without(image, image.by_id[record.id])
        case ProducerIdsAllocated():
            assert record.next_id > image.next_producer_id, "producer ids are never given twice"
            return replace(image, next_producer_id=record.next_id)
        case ClientQuotasChanged():
            return _with_quotas(image, tuple(sorted(record.entity.items())), record.quotas)


def _with_quotas(image: Image, entity: QuotaEntity, quotas: Quotas) -> Image:
    others = {other: values for other, values in image.quotas.items() if other != entity}
    mine = {entity: MappingProxyType(dict(quotas))} if quotas else {}
    return replace(image, quotas=MappingProxyType({**others, **mine}))


def _created(image: Image, record: StreamCreated) -> Image:
    assert record.name not in image.by_name, f"{record.name} is created twice"
    assert record.id not in image.by_id, f"the id of {record.name} is taken"
    stream = Stream(
        name=record.name,
        id=record.id,
        partitions=record.partitions,
        overrides=MappingProxyType(dict(record.config)),
        config=_config(image, record.config, internal=record.internal),
        internal=record.internal,
    )
    return _with(image, stream)


def _config(image: Image, overrides: Mapping[str, str], *, internal: bool) -> StreamConfig:
    """Streams of the node's own are kept short by who writes them: a default of retention is not meant for them."""
    defaults = image.defaults
    if internal:
        defaults = replace(defaults, retention_ms=-1, retention_bytes=-1, retention_messages=-1)
    return defaults.with_overrides(overrides)


def _with(image: Image, stream: Stream) -> Image:
    return replace(
        image,
        by_name=MappingProxyType({**image.by_name, stream.name: stream}),
        by_id=MappingProxyType({**image.by_id, stream.id: stream}),
    )


def _without(image: Image, stream: Stream) -> Image:
    return replace(
        image,
        by_name=MappingProxyType({name: other for name, other in image.by_name.items() if name != stream.name}),
        by_id=MappingProxyType({id_: other for id_, other in image.by_id.items() if id_ != stream.id}),
    )
