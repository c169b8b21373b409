"""What the parts of replication on one broker have in common: the way to the cluster, partitions, settings, the log."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from structlog.typing import FilteringBoundLogger

from logboom.base.dynamic import Current
from logboom.base.errors import LogboomError
from logboom.base.ids import BrokerEpoch, BrokerId
from logboom.broker.config import BrokerConfig
from logboom.broker.metadata_view import MetadataView
from logboom.broker.metrics import Counters
from logboom.broker.partition.replica import Partition
from logboom.broker.partition.replication_port import StreamIdPartition
from logboom.broker.rate_limited_log import RateLimitedLog
from logboom.broker.replication.ports import ClusterPorts
from logboom.broker.runtime import Runtime

_UNKNOWN: Final = BrokerEpoch(-1)


@dataclass(frozen=True, slots=True)
class ReplicationContext:
    """See the module."""

    cluster: ClusterPorts
    broker_id: BrokerId
    """Of this broker."""
    find: Callable[[StreamIdPartition], Partition]
    """Raises LogboomError for a partition that is not here."""
    metadata: MetadataView
    config: Current[BrokerConfig]
    runtime: Runtime
    counters: Counters
    log: FilteringBoundLogger
    limited_log: RateLimitedLog
    """For what many partitions meet at the same time."""

    def find_or_none(self, key: StreamIdPartition) -> Partition | None:
        """A partition, or None if it is not here."""
        try:
            return self.find(key)
        except LogboomError:
            return None

    def registered_epoch(self, broker: BrokerId) -> BrokerEpoch:
        """The epoch of a broker according to the metadata, -1 for one that is not registered."""
        found = self.metadata.image.brokers.get(broker)
        return _UNKNOWN if found is None else found.epoch
