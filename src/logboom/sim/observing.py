"""A consumer that reads from one observer alone, as consumers do whom leaders have sent there.

It must see what all others see: every record at its offset, none twice, none that is not there in the end. Where the
observer sends it back to the leader it waits for the observer instead, so that nothing else reads in its place.
"""

import asyncio
from typing import Final

from kio.schema.errors import ErrorCode

from logboom.base.ids import Offset
from logboom.sim.client import AskError, RefusedError, SimClient
from logboom.sim.routing import Address
from logboom.sim.session import OF_CLUSTERS, TRANSIENT, ClientContext

_POLL_WAIT_MS: Final = 200
_REST_MAX_S: Final = 0.2
_PAUSE_S: Final = 0.05
_PASSES: Final = TRANSIENT | OF_CLUSTERS | {ErrorCode.offset_out_of_range}
"""What an observer may say. An offset is out of its range where its copy was made anew and is not complete yet."""


class ObserverReader:
    """See the module. Life: a phase of the run."""

    def __init__(self, context: ClientContext, observer: Address) -> None:
        self.name = context.name
        self._context = context
        self._observer = observer
        self._history = context.history
        self._phase = context.phase
        self._chance = context.chance
        self._positions = dict.fromkeys(context.partitions, Offset(0))
        self._client: SimClient | None = None

    async def run(self) -> None:
        """Read until the phase ends."""
        while self._phase.consuming:
            try:
                await self._poll()
                await self._context.rest(_REST_MAX_S)
            except AskError:
                self._hang_up()
                await asyncio.sleep(_PAUSE_S)
            except RefusedError as error:
                if error.code not in _PASSES:
                    self._history.violated(f"{self.name} was refused for {error.code.name}")
                await asyncio.sleep(_PAUSE_S)
        self._hang_up()

    async def _poll(self) -> None:
        if self._client is None:
            self._client = await SimClient.connect(self._observer, self.name)
        where = self._chance.choice(tuple(self._positions))
        position = self._positions[where]
        polled = await self._client.fetch(where, position, _POLL_WAIT_MS)
        self._history.poll(where, position, [(offset, int(value)) for offset, value in polled.records])
        self._positions[where] = polled.next_offset

    def _hang_up(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None
