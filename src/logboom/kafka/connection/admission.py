"""Who may connect: how many at one time, how many from one address, and how fast they may come from there.

Knows counts and addresses; not sockets.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from logboom.kafka.config import parse_overrides
from logboom.metadata import CONNECTION_CREATION_RATE

if TYPE_CHECKING:
    from logboom.kafka.context import Shared


class Refusal(NamedTuple):
    """Why a connection is closed."""

    limit: str
    """The name of what was reached; empty where nothing was."""
    why: str
    wait_ms: int = 0
    """Not at once, but after so long: it has its place until then."""


class Admission:
    """Every connection of one door, by address. Life: that of the door."""

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._by_address: Counter[str] = Counter()
        self._overrides: dict[str, int] = {}
        self._overrides_text = ""

    @property
    def most_from_one_address(self) -> int:
        """How many connections the address has that has most."""
        return max(self._by_address.values(), default=0)

    def enter(self, address: str) -> Refusal | None:
        """Somebody connects; a refusal without a wait does not count as being there."""
        shared = self._shared
        config = shared.config
        if shared.stopping:
            return Refusal("", "the broker is stopping")
        if len(shared.connections) >= config.max_connections:
            return Refusal(
                "kafka.max_connections", f"there are {config.max_connections} connections, as many as allowed"
            )
        limit = self._limit_of(address)
        if limit is not None and self._by_address[address] >= limit:
            return Refusal(
                "kafka.max_connections_per_address", f"{address} has {limit} connections, as many as allowed"
            )
        self._by_address[address] += 1
        wait_ms = shared.quotas.charge_connection(address)
        if wait_ms:
            return Refusal(CONNECTION_CREATION_RATE, f"{address} connects faster than its quota allows", wait_ms)
        return None

    def leave(self, address: str) -> None:
        """Somebody who was admitted is gone."""
        self._by_address[address] -= 1
        if not self._by_address[address]:
            del self._by_address[address]

    def _limit_of(self, address: str) -> int | None:
        config = self._shared.config
        if config.max_connections_per_address_overrides != self._overrides_text:
            self._overrides_text = config.max_connections_per_address_overrides
            self._overrides = parse_overrides(self._overrides_text)
        return self._overrides.get(address, config.max_connections_per_address)
