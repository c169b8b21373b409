"""What the connections of one server share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from logboom.broker.broker import Broker
    from logboom.broker.disk.flusher import Flusher
    from logboom.broker.quotas.clients import ClientQuotaManager
    from logboom.kafka.connection.admission import Admission
    from logboom.kafka.connection.registry import ConnectionRegistry
    from logboom.kafka.connection.request_budget import RequestBudget
    from logboom.kafka.handlers.context import ServerContext
    from logboom.kafka.handlers.route import Routes
    from logboom.kafka.handlers.template_cache import TemplateCache


@dataclass(frozen=True, slots=True)
class ConnectionServices:
    """Made once, by `server.services`."""

    broker: Broker
    server: ServerContext
    """For the handlers, and for what they and the connections share: settings, counters, log."""
    routes: Routes
    templates: TemplateCache
    quotas: ClientQuotaManager
    flusher: Flusher
    """Says whether the append queues have capacity."""
    budget: RequestBudget
    registry: ConnectionRegistry
    admission: Admission
    scratch: memoryview
    """The buffer that all connections read into between frames."""
