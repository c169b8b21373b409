"""What all clients of a run share: a connection that is made anew when it breaks, and what a broker in trouble may say.

A client is a process of its own. Each of its requests has one of three outcomes: it is answered, it is refused with an
error that passes (`TRANSIENT`, and `OF_CLUSTERS` where there are several brokers), or nobody knows (AskError). Any
other refusal is a violation.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Final

from kio.schema.errors import ErrorCode

from logboom.sim.client import AskError, RefusedError, SimClient, TopicPartition
from logboom.sim.history import History
from logboom.sim.routing import Address, RoutedClient

_PAUSE_AFTER_ERROR_S: Final = 0.05
_PAUSE_AFTER_ERROR_MAX_S: Final = 1.0

TRANSIENT: Final = frozenset(
    (
        ErrorCode.kafka_storage_error,
        ErrorCode.not_leader_or_follower,
        ErrorCode.not_enough_replicas,
        ErrorCode.not_enough_replicas_after_append,
        ErrorCode.leader_not_available,
        ErrorCode.request_timed_out,
        ErrorCode.coordinator_not_available,
        ErrorCode.coordinator_load_in_progress,
        ErrorCode.not_coordinator,
    )
)
"""Refusals that a broker in trouble may give."""

OF_CLUSTERS: Final = frozenset(
    (
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.offset_not_available,
        ErrorCode.fenced_leader_epoch,
        ErrorCode.unknown_leader_epoch,
        ErrorCode.not_controller,
        ErrorCode.broker_not_available,
    )
)
"""What a broker may say that has not heard of everything yet, or leads since a moment ago."""


NEVER_APPENDED: Final = frozenset((ErrorCode.not_enough_replicas, ErrorCode.unknown_topic_or_partition))
"""Refusals that say that nothing was written. Of the others some may come after it, such as of a leader that lost its
leadership."""


@dataclass
class Phase:
    """What the clients are told to do; changed by the scenario."""

    producing: bool = True
    """Whether anything is still written, created or deleted."""
    consuming: bool = True


@dataclass(frozen=True, slots=True)
class ClientContext:
    """What every client of a run is given."""

    name: str
    addresses: Sequence[Address]
    """Of the brokers' Kafka servers."""
    partitions: Sequence[TopicPartition]
    """Those that it works on."""
    history: History
    phase: Phase
    chance: Random
    stretch: float = 1.0
    """How many times as long as usual its pauses are."""

    def session(self) -> "Session":
        """A connection to the broker, or to those of the cluster."""
        pause_s = min(_PAUSE_AFTER_ERROR_S * self.stretch, _PAUSE_AFTER_ERROR_MAX_S)
        return Session(self.addresses, self.name, self.history, self.chance, pause_s)

    async def rest(self, max_s: float) -> None:
        """A pause between two reads where pauses are longer than usual; else reads follow each other at once."""
        if self.stretch > 1:
            await asyncio.sleep(self.chance.uniform(0, max_s * self.stretch))


async def connect(addresses: Sequence[Address], name: str, chance: Random) -> SimClient:
    """A client of one broker, or of a cluster. Raises AskError."""
    if len(addresses) == 1:
        return await SimClient.connect(addresses[0], name)
    return await RoutedClient.connect(chance.choice(addresses), name)


async def ask_once(
    addresses: Sequence[Address], name: str, chance: Random, work: Callable[[SimClient], Awaitable[Any]]
) -> Any:
    """Do some work as a client; None where it is refused, or not answered."""
    try:
        client = await connect(addresses, name, chance)
    except AskError:
        return None
    try:
        return await work(client)
    except (AskError, RefusedError):
        return None
    finally:
        client.close()


class Session:
    """A client's connection to the broker, or to those of a cluster, made anew after each error."""

    def __init__(
        self,
        addresses: Sequence[Address],
        name: str,
        history: History,
        chance: Random,
        pause_after_error_s: float = _PAUSE_AFTER_ERROR_S,
    ) -> None:
        self.name = name
        self._pause_after_error_s = pause_after_error_s
        self._addresses = addresses
        self._chance = chance
        self.history = history
        self._client: SimClient | None = None

    async def client(self) -> SimClient:
        """The connection. Raises AskError where none can be had."""
        if self._client is None:
            self._client = await connect(self._addresses, self.name, self._chance)
        return self._client

    def close(self) -> None:
        """Hang up."""
        if self._client is not None:
            self._client.close()
            self._client = None

    async def failed(self) -> None:
        """The last request failed: hang up, and wait a little."""
        self.close()
        await asyncio.sleep(self._pause_after_error_s)

    async def refused(self, error: RefusedError) -> None:
        """The same where the broker answered with an error, which must be one that passes."""
        self.check_passes(error)
        await self.failed()

    def check_passes(self, error: RefusedError) -> None:
        """It is a violation where an error is none that passes."""
        if error.code not in TRANSIENT and not (len(self._addresses) > 1 and error.code in OF_CLUSTERS):
            self.history.violated(f"{self.name} was refused for {error.code.name}")
