"""The cluster's own streams (`__consumer_offsets`, `__advisories`), for the services of this broker that keep records
in them: find or create a stream, find its partitions here, report a damaged log."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from logboom.base.ids import BrokerId, StreamName
from logboom.broker.metadata_view import MetadataView
from logboom.broker.partition.replica import Partition
from logboom.metadata import Stream


class EnsureStream(Protocol):
    """Returns the internal stream of a name with these settings; creates it where there is none, with this many
    replicas of each partition, or as many as the brokers there are can hold. `Catalog.ensure_internal_stream`."""

    async def __call__(
        self, name: str, *, partitions: int, replication_factor: int, config: Mapping[str, str]
    ) -> Stream: ...


@dataclass(frozen=True, slots=True)
class InternalStreams:
    """See the module."""

    broker_id: BrokerId
    """Of this broker."""
    metadata: MetadataView
    ensure: EnsureStream
    find_partition: Callable[[str, int], Partition]
    """Raises LogboomError for a partition that is not here."""
    found_damage: Callable[[str, int], bool]
    """Reports that the log of a partition is damaged; returns whether another broker takes over."""

    def find(self, name: StreamName) -> Stream | None:
        """The stream of a name, where it exists."""
        return self.metadata.image.by_name.get(name)
