"""The Kafka server of one broker: it listens, ticks once a second, and stops in order.

What happens on a connection is in `kafka.connection` and the handlers after it.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from logboom.base.limits import LimitUsage
from logboom.base.settings import split_address
from logboom.kafka.config import KafkaConfig
from logboom.kafka.connection.connection import Connection
from logboom.kafka.metrics import KafkaMetrics
from logboom.kafka.server.limits import limit_hits, limit_usage
from logboom.kafka.server.services import make_services

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger

    from logboom.broker.broker import Broker

_BACKLOG: Final = 1024
_TICK_S: Final = 1.0
_EVERYWHERE: Final = ("", "0.0.0.0", "::")  # noqa: S104  # compared with, not listened on


class KafkaServer:
    """`start`, once; `stop`, once, while the broker still works."""

    def __init__(self, broker: Broker, config: KafkaConfig, log: FilteringBoundLogger) -> None:
        self._config = config
        self._advertised = ("", 0)
        settings = broker.dynamic_settings.add("kafka", config)
        self._services = make_services(broker, settings, log, lambda: self._advertised)
        self._server: asyncio.Server | None = None
        self._ticker: asyncio.TimerHandle | None = None

    @property
    def metrics(self) -> KafkaMetrics:
        """What the server counts."""
        return self._services.server.metrics

    def limits(self) -> Iterator[LimitUsage]:
        """How much of each limit is used."""
        return limit_usage(self._services)

    def limit_hits(self) -> dict[str, int]:
        """How often each limit was reached."""
        return limit_hits(self._services)

    async def start(self) -> tuple[str, int]:
        """Listen. Returns the address that is listened on; raises OSError where that cannot be had."""
        loop = asyncio.get_running_loop()
        host, port = split_address(self._config.listen)
        self._server = await loop.create_server(
            lambda: Connection(self._services, loop), host or None, port, backlog=_BACKLOG, start_serving=False
        )
        bound = self._server.sockets[0].getsockname()
        port = bound[1]
        self._advertised = advertised_address(self._config, port)
        await self._server.start_serving()
        self._ticker = loop.call_later(_TICK_S, self._tick)
        return host or bound[0], port

    def _tick(self) -> None:
        loop, services = asyncio.get_running_loop(), self._services
        now_s = services.broker.clock.monotonic_s()
        for connection in services.registry.connections:
            connection.tick(now_s)
        services.quotas.tick()
        self._ticker = loop.call_later(_TICK_S, self._tick)

    async def stop(self, grace_s: float) -> None:
        """Accept no connections and begin no requests; answer those in flight, within `grace_s` seconds; close all."""
        if self._server is not None:
            self._server.close()
        if self._ticker is not None:
            self._ticker.cancel()
        self._services.server.fetches.purgatory.close()
        await self._services.registry.stop(grace_s)


def advertised_address(config: KafkaConfig, port: int | None = None) -> tuple[str, int]:
    """What clients are told to connect to. `port`: the one that is listened on, where the settings leave it open."""
    host, listened_port = split_address(config.listen)
    port = listened_port if port is None else port
    if config.advertised is None:
        return (socket.gethostname() if host in _EVERYWHERE else host), port
    host, advertised_port = split_address(config.advertised)
    return host or socket.gethostname(), advertised_port or port
