"""Which connections are accepted: how many at a time, how many from one address, and how fast from one address.

Knows counts and addresses; no sockets.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from logboom.kafka.config import parse_overrides
from logboom.metadata import CONNECTION_CREATION_RATE

if TYPE_CHECKING:
    from logboom.base.dynamic import Current
    from logboom.broker.quotas.clients import ClientQuotaManager
    from logboom.kafka.config import KafkaConfig
    from logboom.kafka.connection.registry import ConnectionRegistry


class Refusal(NamedTuple):
    """Why a connection is closed."""

    limit: str
    """The name of the limit that was reached; empty for none."""
    why: str
    throttle_ms: int = 0
    """Not 0: the connection is closed after this many milliseconds, and keeps its place until then."""


class Admission:
    """The admission of one server."""

    def __init__(self, config: Current[KafkaConfig], registry: ConnectionRegistry, quotas: ClientQuotaManager) -> None:
        self._config = config
        self._registry = registry
        self._quotas = quotas
        self._by_address: Counter[str] = Counter()
        self._overrides: dict[str, int] = {}
        self._overrides_text = ""

    @property
    def most_from_one_address(self) -> int:
        """The number of connections of the address that has most."""
        return max(self._by_address.values(), default=0)

    def admit(self, address: str) -> Refusal | None:
        """A connection arrives. If it is refused with `throttle_ms`, or not refused, call `release` when it closes."""
        config = self._config.now
        if self._registry.stopping:
            return Refusal("", "the broker is stopping")
        if len(self._registry) >= config.max_connections:
            return Refusal(
                "kafka.max_connections", f"there are {config.max_connections} connections, as many as allowed"
            )
        limit = self._limit_of(address)
        if limit is not None and self._by_address[address] >= limit:
            return Refusal(
                "kafka.max_connections_per_address", f"{address} has {limit} connections, as many as allowed"
            )
        self._by_address[address] += 1
        throttle_ms = self._quotas.charge_connection(address)
        if throttle_ms:
            return Refusal(CONNECTION_CREATION_RATE, f"{address} connects faster than its quota allows", throttle_ms)
        return None

    def release(self, address: str) -> None:
        """An admitted connection was closed."""
        self._by_address[address] -= 1
        if not self._by_address[address]:
            del self._by_address[address]

    def _limit_of(self, address: str) -> int | None:
        config = self._config.now
        if config.max_connections_per_address_overrides != self._overrides_text:
            self._overrides_text = config.max_connections_per_address_overrides
            self._overrides = parse_overrides(self._overrides_text)
        return self._overrides.get(address, config.max_connections_per_address)
