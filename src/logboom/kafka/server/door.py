"""The Kafka door: it listens, keeps the clock of its connections, and closes in good order.

What is said on a connection is the affair of `connection` and the handlers behind it.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from logboom.base.limits import Filling
from logboom.base.settings import split_address
from logboom.kafka.config import KafkaConfig
from logboom.kafka.connection.connection import Connection
from logboom.kafka.context import Shared
from logboom.kafka.metrics import KafkaMetrics
from logboom.kafka.quota.clients import QuotaDesk
from logboom.kafka.server.limits import door_crossings, door_limits

if TYPE_CHECKING:
    from logboom.broker.broker import Broker

_BACKLOG: Final = 1024
_TICK_S: Final = 1.0
_EVERYWHERE: Final = ("", "0.0.0.0", "::")  # noqa: S104  # compared with, not listened on


class KafkaDoor:
    """Life: `start`, once; `stop`, once, while the broker still works."""

    def __init__(self, broker: Broker, config: KafkaConfig) -> None:
        self._config = config
        self._shared = Shared(broker, config)
        self._server: asyncio.Server | None = None
        self._ticker: asyncio.TimerHandle | None = None

    @property
    def metrics(self) -> KafkaMetrics:
        """What the door counts."""
        return self._shared.metrics

    def limits(self) -> Iterator[Filling]:
        """How near each limit of the door is."""
        return door_limits(self._shared)

    def crossings(self) -> dict[str, int]:
        """How often each limit was reached."""
        return door_crossings(self._shared)

    @property
    def quotas(self) -> QuotaDesk:
        """Who used how much of which quota."""
        return self._shared.quotas

    async def start(self) -> tuple[str, int]:
        """Listen; the address that is listened on. Raises OSError where that cannot be had."""
        loop = asyncio.get_running_loop()
        host, port = split_address(self._config.listen)
        self._server = await loop.create_server(
            lambda: Connection(self._shared, loop), host or None, port, backlog=_BACKLOG, start_serving=False
        )
        bound = self._server.sockets[0].getsockname()
        port = bound[1]
        self._shared.advertised = self._advertised(host, port)
        await self._server.start_serving()
        self._ticker = loop.call_later(_TICK_S, self._tick)
        return host or bound[0], port

    def _advertised(self, host: str, port: int) -> tuple[str, int]:
        if self._config.advertised is None:
            return (socket.gethostname() if host in _EVERYWHERE else host), port
        host, advertised_port = split_address(self._config.advertised)
        return host or socket.gethostname(), advertised_port or port

    def _tick(self) -> None:
        loop = asyncio.get_running_loop()
        now_s = self._shared.clock.monotonic_s()
        for connection in tuple(self._shared.connections):
            connection.tick(now_s)
        self._shared.quotas.tick()
        self._ticker = loop.call_later(_TICK_S, self._tick)

    async def stop(self, grace_s: float) -> None:
        """Take no connections and no requests; answer what was begun, within `grace_s`; close everything."""
        shared = self._shared
        shared.stopping = True
        if self._server is not None:
            self._server.close()
        if self._ticker is not None:
            self._ticker.cancel()
        shared.purgatory.close()
        for connection in tuple(shared.connections):
            connection.schedule_turn()
        shared.note_departure()
        try:
            await asyncio.wait_for(shared.all_gone.wait(), grace_s)
        except TimeoutError:
            for connection in tuple(shared.connections):
                connection.abort()
