"""What a handler may know: the server's services, and who sent the request.

The connection never looks inside a request, and a handler never sees a socket; this is all that passes between the two
besides the request and its reply.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kio.schema.errors import ErrorCode

from logboom.base.errors import LogboomError
from logboom.kafka.errors import error_code
from logboom.kafka.handlers.paced_work import PacedWork

if TYPE_CHECKING:
    from logboom.base.dynamic import Current
    from logboom.broker.broker import Broker
    from logboom.broker.rate_limited_log import RateLimitedLog
    from logboom.kafka.admin.metadata_cache import MetadataCache
    from logboom.kafka.cluster.view import ClusterView
    from logboom.kafka.config import KafkaConfig
    from logboom.kafka.fetch.services import FetchServices
    from logboom.kafka.metrics import KafkaMetrics


@dataclass(frozen=True, slots=True)
class ServerContext:
    """What the handlers of one server share. Made once, by `server.services`."""

    config: Current[KafkaConfig]
    metrics: KafkaMetrics
    log: RateLimitedLog
    fetches: FetchServices
    cluster: ClusterView
    metadata_cache: MetadataCache
    leader_waits: PacedWork = field(default_factory=PacedWork)
    """Requests that wait for the next leader of a partition."""


@dataclass(frozen=True, slots=True)
class RequestContext:
    """The requests of one client on one connection, of one API version; they share it."""

    broker: Broker
    server: ServerContext
    client_id: str
    """Empty where the client sent none."""
    client_host: str
    api_version: int
    connection: Hashable
    """Identifies the connection: equal for all its requests, and for no other's."""

    def code_of(self, error: LogboomError | None) -> ErrorCode:
        """The error code for a response; a limit that the error names is counted and logged."""
        if error is not None and error.limit:
            self.server.log.limit_reached(error.limit, str(error), client=self.client_host, client_id=self.client_id)
        return error_code(error)
