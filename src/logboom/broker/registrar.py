"""How a process of a broker is registered: by the controller, found directly or through any other broker.

A new broker knows only the addresses in its configuration. One that was registered before is a member of the metadata
group and so knows the controller, unless it was removed meanwhile: then nobody sends it anything of the group any more.
So a broker that finds no controller asks the other brokers, which forward its command and return the answer.

Life: that of the broker. On the loop.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from structlog.typing import FilteringBoundLogger

from logboom.base.dynamic import Current
from logboom.base.errors import BrokerRunsError, LogboomError, NotControllerError, OutcomeUnknownError
from logboom.base.ports import Clock
from logboom.broker.cluster_identity import ask_around, join_addresses
from logboom.broker.config import BrokerConfig
from logboom.broker.control import commands
from logboom.broker.control.broker_commands import PEER_LISTENER
from logboom.broker.control.channel import ControlChannel
from logboom.broker.control.incarnations import KnownProcesses
from logboom.broker.metadata_view import MetadataView
from logboom.broker.peers import Address, PeerRefusedError, Peers, PeerUnavailableError

_RETRY_S: Final = 0.5
_ANSWER_S: Final = 10.0
_LOG_EVERY_S: Final = 5.0
_LEASES: Final = 3
"""How many leases to wait for the end of an earlier process, which may have been killed a moment ago."""


class Registrar:
    """See the module."""

    def __init__(
        self,
        processes: KnownProcesses,
        channel: ControlChannel,
        peers: Peers,
        config: Current[BrokerConfig],
        *,
        metadata: MetadataView,
        joins: bool,
        clock: Clock,
        log: FilteringBoundLogger,
    ) -> None:
        """`joins`: whether this broker is new to its cluster and knows only the addresses in its configuration."""
        self._processes = processes
        self._channel = channel
        self._peers = peers
        self._config = config
        self._metadata = metadata
        self._joins = joins
        self._clock = clock
        self._log = log
        self._asked = 0

    async def registered(self, command: commands.RegisterBroker) -> commands.Registered:
        """Have a process registered, as long as it takes.

        Raises PeerRefusedError, what the controller says to a broker that cannot be part of the cluster, and
        DuplicateBrokerError where another broker knows that this data directory is an older copy.
        """
        logged_s = self._clock.monotonic_s()
        runs_since_s: float | None = None
        while True:
            try:
                return await self._ask(command)
            except PeerRefusedError:
                raise
            except BrokerRunsError:
                # Since the first such answer, and not since the first question, which may have waited for a controller
                # that then heard a late heartbeat of a process killed before: one that lives is heard again and again.
                now_s = self._clock.monotonic_s()
                runs_since_s = now_s if runs_since_s is None else runs_since_s
                if now_s - runs_since_s > _LEASES * self._config.now.lease_ms / 1_000:
                    raise
            except (PeerUnavailableError, NotControllerError, OutcomeUnknownError) as error:
                runs_since_s = None
                now_s = self._clock.monotonic_s()
                if now_s - logged_s > _LOG_EVERY_S:
                    logged_s = now_s
                    self._log.warning("waiting for the controller of the cluster", reason=str(error))
            await asyncio.sleep(_RETRY_S)
            if self._processes.older is not None:
                raise self._processes.older

    async def _ask(self, command: commands.RegisterBroker) -> commands.Registered:
        ask = partial(self._ask_address, command, commands.Registered)
        if self._joins:
            return await ask_around(join_addresses(self._config.now, self._peers.address), ask)
        try:
            answer: commands.Registered = await self._channel.submit(command, commands.Registered)
        except (NotControllerError, OutcomeUnknownError) as error:
            return await self._ask_others(ask, error)
        return answer

    async def _ask_others(self, ask: Callable[[Address], Any], reason: LogboomError) -> commands.Registered:
        try:
            answer: commands.Registered = await ask_around(self._others(), ask, patient=True)
        except PeerRefusedError:
            raise
        except (PeerUnavailableError, NotControllerError, OutcomeUnknownError):
            raise reason from None
        return answer

    async def ask_another(self, command: commands.AnyCommand) -> None:
        """Have one of the other brokers forward a command, a different one each time. Raises what the command raises,
        and PeerUnavailableError."""
        if others := self._others():
            self._asked += 1
            await self._ask_address(command, Any, others[self._asked % len(others)])

    def _others(self) -> list[Address]:
        """Where the other brokers were, as far as this one has heard."""
        return [
            Address(*one.listeners[PEER_LISTENER])
            for one in self._metadata.image.brokers.values()
            if PEER_LISTENER in one.listeners and one.id != self._processes.own
        ]

    async def _ask_address(self, command: commands.AnyCommand, kind: Any, address: Address) -> Any:
        return await self._channel.ask_address(address, command, kind, timeout_s=_ANSWER_S)
