"""The open connections of one server: all of them, those that wait for others, and how they end."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Collection

    from logboom.kafka.config import KafkaConfig
    from logboom.kafka.connection.request_budget import RequestBudget
    from logboom.kafka.metrics import KafkaMetrics


class OpenConnection(Protocol):
    """What the server does with a connection; `connection.Connection` is one."""

    @property
    def client_id(self) -> str:
        """What the client calls itself."""

    @property
    def inflight(self) -> tuple[int, int]:
        """Requests in flight, and their memory in bytes."""

    def schedule_turn(self) -> None:
        """Look at replies, backlog and reading soon."""

    def configure(self, config: KafkaConfig) -> None:
        """Apply changed settings."""

    def quotas_changed(self) -> None:
        """Some client's quota has changed."""

    def server_stops(self) -> None:
        """Begin no more requests; close once those in flight are answered."""

    def tick(self, now_s: float) -> None:
        """About a second has passed."""

    def abort(self) -> None:
        """Close now."""


class ConnectionRegistry:
    """See the module. Iteration is in the order of arrival: a set's order would differ from run to run."""

    def __init__(self, budget: RequestBudget, metrics: KafkaMetrics) -> None:
        self._budget = budget
        self._metrics = metrics
        self._connections: dict[OpenConnection, None] = {}
        self.paused: dict[OpenConnection, None] = {}
        """Connections that wait for SERVER_MEMORY or APPEND_CAPACITY."""
        self.stopping = False
        """Whether the server stops."""
        self._all_closed = asyncio.Event()

    @property
    def connections(self) -> Collection[OpenConnection]:
        """All open connections; a copy, so that they may close meanwhile."""
        return tuple(self._connections)

    def __len__(self) -> int:
        return len(self._connections)

    def client_ids(self) -> set[str]:
        """What the connected clients call themselves."""
        return {connection.client_id for connection in self._connections}

    def add(self, connection: OpenConnection) -> None:
        """A connection was accepted."""
        self._connections[connection] = None
        self._metrics.connections = len(self._connections)

    def remove(self, connection: OpenConnection) -> bool:
        """A connection was lost; returns whether it had been added."""
        self.paused.pop(connection, None)
        if connection not in self._connections:
            return False
        del self._connections[connection]
        self._metrics.connections = len(self._connections)
        if self.stopping and not self._connections:
            self._all_closed.set()
        return True

    def set_paused(self, connection: OpenConnection, paused: bool) -> None:
        """Whether a connection waits for memory or capacity that others must free."""
        if paused:
            self.paused[connection] = None
        else:
            self.paused.pop(connection, None)

    def resume_paused(self) -> None:
        """Let the paused connections look again, if there is memory."""
        if self.paused and not self._budget.is_exhausted:
            for connection in tuple(self.paused):
                connection.schedule_turn()

    async def stop(self, grace_s: float) -> None:
        """Answer what has begun, within `grace_s` seconds; then close everything."""
        self.stopping = True
        for connection in self.connections:
            connection.server_stops()
        if not self._connections:
            return
        try:
            await asyncio.wait_for(self._all_closed.wait(), grace_s)
        except TimeoutError:
            for connection in self.connections:
                connection.abort()
