"""Requests to the controller that come a second time, late, while somebody changes settings and sets them right again.

A broker whose request gets no answer sends it again, and the connection that broke may bring the first one when all is
settled, for instance to a process that stood still. On simulated connections that is rare, since those that are silent
are ended within seconds; so here a copy of any request to a controller, whatever it is, comes seconds later.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final

from logboom.base.errors import LogboomError
from logboom.base.ids import StreamName
from logboom.base.ports import Bytes
from logboom.broker.broker import Broker
from logboom.broker.metadata_state import MetadataState
from logboom.broker.peers import FrameKind, PartsRequestHandler, PeerIdentity, SendPart
from logboom.peer.server import PeerServer
from logboom.sim.administration import Operator
from logboom.sim.client import SimClient
from logboom.sim.coverage import REQUESTS_REPEATED
from logboom.sim.history import History
from logboom.sim.node import SimNode
from logboom.sim.schedule import FaultKind, Lane
from logboom.sim.session import ask_once
from logboom.sim.simulation import Simulation

LATE_LANE: Final = "requests"
_LASTS_MAX_S: Final = 8.0
_LATE_CHANCE: Final = 0.5
_LATE_MAX_S: Final = 3.0
_PAUSE_MAX_S: Final = 0.5
_SETTING: Final = "retention.ms"
_FIRST: Final = 10**10
"""Far more than a run takes: nothing is deleted."""


class LateTrouble(Lane):
    """The late requests of one run, and who changes settings meanwhile. Life: that of the run.

    It sets a number on a stream, a higher one each time, and only once the one before was acknowledged. So whoever
    knows that must not see a lower one any more.
    """

    def __init__(self, simulation: Simulation, operator: Operator, history: History) -> None:
        """`operator`: who knows which brokers there are."""
        super().__init__(simulation, LATE_LANE)
        self._operator = operator
        self._history = history
        self._tapped: dict[str, Broker] = {}
        self._streams = 0
        self._acked: dict[StreamName, tuple[int, int]] = {}
        """Of each stream the number that was acknowledged last, and an entry of the metadata log that is not before."""

    async def repeat(self) -> None:
        """Have requests come again for as long as the fault is to last, and settings be changed; see what they are."""
        loop = asyncio.get_running_loop()
        until_s = loop.time() + self.length_s
        while loop.time() < until_s:
            self._tap()
            await self._change_settings(until_s)
            await self.pause(_PAUSE_MAX_S)
        await asyncio.sleep(_LATE_MAX_S)
        self._check()

    async def _change_settings(self, until_s: float) -> None:
        """Of one stream, until a change is not acknowledged, which may be made at any later time."""
        self._streams += 1
        name, number = StreamName(f"late-{self._streams}"), _FIRST
        create = partial(SimClient.create_stream, name=name, partitions=1, config={}, replicas=self._operator.replicas)
        while await self._done(create if number == _FIRST else partial(_set, name=name, number=number)):
            if number > _FIRST:
                self._acked[name] = (number, max((one.applied_index for one in self._metadata()), default=0))
            self._check()
            if asyncio.get_running_loop().time() >= until_s:
                return
            await self.pause(_PAUSE_MAX_S)
            self._tap()
            number += 1

    async def _done(self, work: Callable[[SimClient], Awaitable[None]]) -> bool:
        async def done(client: SimClient) -> bool:
            await work(client)
            return True

        return await ask_once(self._operator.addresses, self.name, self.chance, done) is not None

    def _metadata(self) -> list[MetadataState]:
        return [one.broker.cluster.state for one in self._nodes if one.broker is not None]

    def _check(self) -> None:
        """What was acknowledged still holds, wherever it has arrived."""
        for name, (number, index) in self._acked.items():
            for state in self._metadata():
                stream = state.image.by_name.get(name)
                if stream is None or state.applied_index < index:
                    continue
                there = int(stream.overrides.get(_SETTING, 0))
                if there < number:
                    self._history.violated(f"{_SETTING} of {name} was set to {number}, and is {there} again")

    @property
    def _nodes(self) -> list[SimNode]:
        return [self._operator.members[broker] for broker in self._operator.holders]

    # --- requests that come again --------------------------------------------------------------------------------

    def _tap(self) -> None:
        """See to it that each process that serves now hears some requests twice."""
        for node in self._nodes:
            broker = node.broker
            if broker is None or self._tapped.get(node.name) is broker:
                continue
            self._tapped[node.name] = broker
            assert isinstance(broker.peers, PeerServer)
            requests = broker.peers._services.handlers.requests  # noqa: SLF001 - between the network and the product
            requests[FrameKind.CONTROL] = partial(self._heard, node, requests[FrameKind.CONTROL])

    async def _heard(
        self, node: SimNode, serve: PartsRequestHandler, sender: PeerIdentity, body: memoryview, send_part: SendPart
    ) -> Sequence[Bytes]:
        if self.chance.random() < _LATE_CHANCE:
            again = partial(self._again, serve, sender, bytes(body), send_part)
            asyncio.get_running_loop().call_later(
                self.chance.uniform(0, _LATE_MAX_S), lambda: asyncio.ensure_future(again())
            )
        return await serve(sender, body, send_part)

    async def _again(self, serve: PartsRequestHandler, sender: PeerIdentity, body: bytes, send_part: SendPart) -> None:
        self.simulation.trace.met[REQUESTS_REPEATED] += 1
        with contextlib.suppress(LogboomError):  # whoever asked is gone
            await serve(sender, memoryview(body), send_part)


async def _set(client: SimClient, *, name: str, number: int) -> None:
    await client.configure_stream(name, _SETTING, str(number))


LATE_FAULTS: Final[dict[str, FaultKind[LateTrouble]]] = {
    "late-requests": FaultKind(LateTrouble.repeat, lasts_max_s=_LASTS_MAX_S),
}
"""What happens to requests to the controller, by name."""
