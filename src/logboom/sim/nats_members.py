"""Members of a group of streams that come and go while messages flow: one leaves the queue, and joins it again."""

from collections.abc import Sequence
from functools import partial
from typing import Final

from logboom.sim.client import SimClient
from logboom.sim.coverage import NATS_MEMBERS
from logboom.sim.nats_attached import MEMBERS, SHARED_SUBJECTS, SUBJECTS_SETTING
from logboom.sim.routing import Address
from logboom.sim.schedule import FaultKind, Lane
from logboom.sim.session import ask_once
from logboom.sim.simulation import Simulation

MEMBERS_LANE: Final = "nats members"
_AWAY_MAX_S: Final = 2.0
_ASK_AGAIN_MAX_S: Final = 0.2


class MembersTrouble(Lane):
    """The comings and goings of one run. Life: that of the run."""

    def __init__(self, simulation: Simulation, addresses: Sequence[Address]) -> None:
        """`addresses`: of brokers."""
        super().__init__(simulation, MEMBERS_LANE)
        self._addresses = addresses

    async def leave(self) -> None:
        """One stream leaves, and joins again; who is not answered asks no second time, so it may stay away."""
        name = self.chance.choice(list(MEMBERS))
        left = await self._attach(name, None)
        await self.last()
        if await self._attach(name, SHARED_SUBJECTS) and left:
            self.simulation.trace.met[NATS_MEMBERS] += 1

    async def settle(self) -> None:
        """Return once all are members; the caller bounds it."""
        for name in MEMBERS:
            while not await self._attach(name, SHARED_SUBJECTS):
                await self.pause(_ASK_AGAIN_MAX_S)

    async def _attach(self, name: str, subjects: str | None) -> bool:
        """Whether that was answered."""
        work = partial(_configured, name=name, subjects=subjects)
        return await ask_once(self._addresses, self.name, self.chance, work) is not None


async def _configured(client: SimClient, *, name: str, subjects: str | None) -> bool:
    await client.configure_stream(name, SUBJECTS_SETTING, subjects)
    return True


MEMBERS_FAULTS: Final[dict[str, FaultKind[MembersTrouble]]] = {
    "nats-member": FaultKind(MembersTrouble.leave, lasts_max_s=_AWAY_MAX_S),
}
"""What happens to the members of a group of streams, by name."""
