"""Which streams exist and what was set at run time: an immutable image, and how records make the next one out of it.

Knows only what records say. It validates nothing (`commands` did, before a record was written); a record that does not
fit the image it meets is a broken promise and asserts.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final, TypeAlias

from logboom.base.ids import ProducerId, StreamId, StreamName
from logboom.metadata.quotas import QuotaEntity, Quotas, take_quotas
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
)
from logboom.metadata.stream_config import DEFAULT_STREAM_CONFIG, StreamConfig

BrokerConfigs: TypeAlias = Mapping[str, Mapping[str, str]]
"""Settings changed at run time, by broker; those for all brokers stand under the empty name."""


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
TOMBSTONES_MAX: Final = 10_000
"""Deleted streams that are remembered. What a broker still holds of one deleted before them it takes for unknown and
leaves alone, which costs disk and no data."""


@dataclass(frozen=True, slots=True)
class Image:
    """Everything the records so far say. The defaults are this broker's and are under every stream's own settings."""

    defaults: StreamConfig = DEFAULT_STREAM_CONFIG
    by_name: Mapping[StreamName, Stream] = field(default_factory=lambda: MappingProxyType({}))
    by_id: Mapping[StreamId, Stream] = field(default_factory=lambda: MappingProxyType({}))
    next_producer_id: ProducerId = _FIRST_PRODUCER_ID
    quotas: Mapping[QuotaEntity, Quotas] = field(default_factory=lambda: MappingProxyType({}))
    """What was set, by whom it is for; nobody is here without a quota."""
    broker_configs: BrokerConfigs = field(default_factory=lambda: MappingProxyType({}))
    tombstones: tuple[StreamId, ...] = ()
    """The streams deleted last, oldest first: a broker that finds one of their directories may remove it."""

    @property
    def partition_count(self) -> int:
        """Partitions of all streams together."""
        return sum(stream.partitions for stream in self.by_name.values())

    def __iter__(self) -> Iterator[Stream]:
        return iter(self.by_name.values())

    def with_defaults(self, defaults: StreamConfig) -> "Image":
        """The same streams over other defaults."""
        draft = _Draft(replace(self, defaults=defaults))
        for stream in self:
            draft.put(replace(stream, config=_config(defaults, stream.overrides, internal=stream.internal)))
        return draft.image()

    def snapshot(self) -> Iterator[MetadataRecord]:
        """Records that, applied to any image of the same defaults, give this one."""
        yield SnapshotBegun(deleted=self.tombstones)
        if self.next_producer_id > _FIRST_PRODUCER_ID:
            yield ProducerIdsAllocated(next_id=self.next_producer_id)
        for entity, quotas in self.quotas.items():
            yield ClientQuotasChanged(entity=dict(entity), quotas=dict(quotas))
        for broker, config in self.broker_configs.items():
            yield BrokerConfigChanged(broker=broker, config=dict(config))
        for stream in self:
            yield StreamCreated(
                name=stream.name,
                id=stream.id,
                partitions=stream.partitions,
                config=dict(stream.overrides),
                internal=stream.internal,
            )


def apply(image: Image, record: MetadataRecord) -> Image:
    """The image after one more record."""
    return apply_all(image, (record,))


def apply_all(image: Image, records: Iterable[MetadataRecord]) -> Image:
    """The image after more records; a million of them cost a million steps, however many streams there are."""
    draft = _Draft(image)
    for record in records:
        draft.take(record)
    return draft.image()


class _Draft:
    """An image in the making."""

    def __init__(self, image: Image) -> None:
        self._begin(image)

    def _begin(self, image: Image) -> None:
        self._defaults = image.defaults
        self._by_name = dict(image.by_name)
        self._by_id = dict(image.by_id)
        self._next_producer_id = image.next_producer_id
        self._quotas = dict(image.quotas)
        self._broker_configs = dict(image.broker_configs)
        self._tombstones = deque(image.tombstones, TOMBSTONES_MAX)

    def image(self) -> Image:
        return Image(
            defaults=self._defaults,
            by_name=MappingProxyType(self._by_name),
            by_id=MappingProxyType(self._by_id),
            next_producer_id=self._next_producer_id,
            quotas=MappingProxyType(self._quotas),
            broker_configs=MappingProxyType(self._broker_configs),
            tombstones=tuple(self._tombstones),
        )

    def take(self, record: MetadataRecord) -> None:
        match record:
            case StreamCreated():
                self._created(record)
            case PartitionsAdded():
                stream = self._by_id[record.id]
                assert record.total > stream.partitions, f"{stream.name} does not grow from {stream.partitions}"
                self.put(replace(stream, partitions=record.total))
            case StreamConfigChanged():
                stream = self._by_id[record.id]
                config = _config(self._defaults, record.config, internal=stream.internal)
                self.put(replace(stream, overrides=MappingProxyType(dict(record.config)), config=config))
            case StreamDeleted():
                del self._by_name[self._by_id.pop(record.id).name]
                self._tombstones.append(record.id)
            case ProducerIdsAllocated():
                assert record.next_id > self._next_producer_id, "producer ids are never given twice"
                self._next_producer_id = record.next_id
            case ClientQuotasChanged():
                take_quotas(self._quotas, record)
            case BrokerConfigChanged():
                self._broker_configs.pop(record.broker, None)
                if record.config:
                    self._broker_configs[record.broker] = MappingProxyType(dict(record.config))
            case SnapshotBegun():
                self._begin(Image(defaults=self._defaults, tombstones=record.deleted))

    def put(self, stream: Stream) -> None:
        self._by_name[stream.name] = self._by_id[stream.id] = stream

    def _created(self, record: StreamCreated) -> None:
        assert record.name not in self._by_name, f"{record.name} is created twice"
        assert record.id not in self._by_id, f"the id of {record.name} is taken"
        self.put(
            Stream(
                name=record.name,
                id=record.id,
                partitions=record.partitions,
                overrides=MappingProxyType(dict(record.config)),
                config=_config(self._defaults, record.config, internal=record.internal),
                internal=record.internal,
            )
        )


def _config(defaults: StreamConfig, overrides: Mapping[str, str], *, internal: bool) -> StreamConfig:
    """Streams of the node's own are kept short by who writes them: a default of retention is not meant for them."""
    if internal:
        defaults = replace(defaults, retention_ms=-1, retention_bytes=-1, retention_messages=-1)
    return defaults.with_overrides(overrides)
