"""What all fetches of one server share."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from logboom.base.dynamic import Current
    from logboom.broker.broker import Broker
    from logboom.broker.quotas.clients import ClientQuotaManager
    from logboom.kafka.cluster.read_replica import ReadReplicas
    from logboom.kafka.cluster.view import ClusterView
    from logboom.kafka.config import KafkaConfig
    from logboom.kafka.fetch.purgatory import FetchPurgatory
    from logboom.kafka.fetch.reply_budget import ReplyBudget
    from logboom.kafka.fetch.sessions import FetchSessions
    from logboom.kafka.metrics import KafkaMetrics


@dataclass(frozen=True, slots=True)
class FetchServices:
    """Made once per server."""

    broker: Broker
    cluster: ClusterView
    read_replicas: ReadReplicas
    config: Current[KafkaConfig]
    metrics: KafkaMetrics
    quotas: ClientQuotaManager
    sessions: FetchSessions
    purgatory: FetchPurgatory
    budget: ReplyBudget

    def connection_closed(self, connection: Hashable) -> None:
        """Forget the state of a closed connection."""
        self.sessions.connection_closed(connection)
        self.read_replicas.connection_closed(connection)

    def now_ms(self) -> int:
        """Monotonic milliseconds."""
        return int(self.broker.clock.monotonic_s() * 1_000)
