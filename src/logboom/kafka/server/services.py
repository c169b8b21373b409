"""Making everything that the connections of one server share, and keeping it up to date.

This is the one place that knows all of it: what is made here is handed on as narrow arguments, or as one of two frozen
records, ServerContext for handlers and ConnectionServices for connections.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from logboom.broker.rate_limited_log import RateLimitedLog
from logboom.kafka.admin.metadata_cache import MetadataCache
from logboom.kafka.apis import load_handlers
from logboom.kafka.cluster.read_replica import ReadReplicas
from logboom.kafka.cluster.view import ClusterView
from logboom.kafka.connection.admission import Admission
from logboom.kafka.connection.frames import SCRATCH_BYTES
from logboom.kafka.connection.registry import ConnectionRegistry
from logboom.kafka.connection.request_budget import RequestBudget
from logboom.kafka.connection.services import ConnectionServices
from logboom.kafka.fetch.purgatory import FetchPurgatory
from logboom.kafka.fetch.reply_budget import ReplyBudget
from logboom.kafka.fetch.services import FetchServices
from logboom.kafka.fetch.sessions import FetchSessions
from logboom.kafka.handlers.context import ServerContext
from logboom.kafka.handlers.route import Routes
from logboom.kafka.handlers.template_cache import TemplateCache
from logboom.kafka.metrics import KafkaMetrics

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger

    from logboom.base.dynamic import Current
    from logboom.base.ports import Ids
    from logboom.broker.broker import Broker
    from logboom.kafka.config import KafkaConfig

_SESSION_IDS: Final = 2**31 - 1


def make_services(
    broker: Broker,
    config: Current[KafkaConfig],
    log: FilteringBoundLogger,
    advertised: Callable[[], tuple[str, int]],
) -> ConnectionServices:
    """The services of one server. `advertised` returns the address that clients are told to connect to."""
    metrics = KafkaMetrics()
    limited_log = RateLimitedLog(log, broker.clock, metrics.limit_hits)
    budget = RequestBudget(config, metrics, limited_log, broker.flusher)
    registry = ConnectionRegistry(budget, metrics)
    broker.quotas.add_door(registry.client_ids)
    cluster = ClusterView(broker, advertised)
    fetches = FetchServices(
        broker=broker,
        cluster=cluster,
        read_replicas=ReadReplicas(cluster, broker.clock, metrics),
        config=config,
        metrics=metrics,
        quotas=broker.quotas,
        sessions=FetchSessions(
            config.now.max_fetch_sessions,
            config.now.max_fetch_session_partitions,
            partial(_random_session_id, broker.runtime.ids),
            metrics.fetch_sessions,
        ),
        purgatory=FetchPurgatory(config, metrics, limited_log),
        budget=ReplyBudget(config, metrics, limited_log),
    )
    services = ConnectionServices(
        broker=broker,
        server=ServerContext(config, metrics, limited_log, fetches, cluster, MetadataCache(broker.catalog, cluster)),
        routes=Routes(load_handlers(), metrics),
        templates=TemplateCache(),
        quotas=broker.quotas,
        flusher=broker.flusher,
        budget=budget,
        registry=registry,
        admission=Admission(config, registry, broker.quotas),
        scratch=memoryview(bytearray(SCRATCH_BYTES)),
    )
    _subscribe(services)
    return services


def _random_session_id(ids: Ids) -> int:
    return ids.below(_SESSION_IDS) + 1


def _subscribe(services: ConnectionServices) -> None:
    """Follow changes of the settings, of quotas and of the append queues' capacity."""
    registry, fetch_sessions = services.registry, services.server.fetches.sessions

    def settings_changed(config: KafkaConfig) -> None:
        for connection in registry.connections:
            connection.configure(config)
        fetch_sessions.sessions_max = config.max_fetch_sessions
        fetch_sessions.partitions_max = config.max_fetch_session_partitions
        registry.resume_paused()

    def quotas_changed() -> None:
        for connection in registry.connections:
            connection.quotas_changed()

    services.server.config.subscribe(settings_changed)
    services.broker.catalog.watch_quotas(quotas_changed)
    services.flusher.on_capacity(registry.resume_paused)
