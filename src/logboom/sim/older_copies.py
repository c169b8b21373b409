"""The disk of one broker is put back to an older copy of itself while all brokers are down.

Somebody restores a backup or a snapshot of a machine, made while the process ran that was killed last: nothing tells it
from what that process left. What was acknowledged since is on the other disks alone, and stays, since the controller
compares the logs before anybody leads (`control.unclean_recovery`). Nothing at all may be lost, under these conditions,
which are those of the promise:

- the copy is of one broker, and of its last process: a copy from before that is refused (`test_older_copies`);
- every record is on all its replicas when they are killed, so that others have what the copy lacks;
- the copy has all replicas that the broker holds. Where one is missing, the others wait 10 s for it, or, if
  `min.insync.replicas` is 1, for an operator: whoever is fenced last may have committed records alone;
- these are back within the time for which the controller waits for them;
- the metadata group is in the term in which the copy was made, and all other voters have all of its entries: a voter
  that forgets a vote or an entry may undo a change of the metadata, which docs/operations.md says.

It comes once all other faults are over, for these bring brokers back by themselves, each at its time; clients go on
through it.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

from logboom.base.ids import BrokerId
from logboom.broker.partition.replication_port import StreamIdPartition
from logboom.sim.coverage import DISKS_PUT_BACK
from logboom.sim.disk import SimDisk
from logboom.sim.node import SimNode
from logboom.sim.schedule import FaultKind, Lane
from logboom.sim.simulation import Simulation

OLDER_COPY_LANE: Final = "older copy"
TRIES_WITHIN_S: Final = 1.0
"""When the fault may begin, from when all else is healed."""
_COPIED_BEFORE_MAX_S: Final = 3.0
_WHOLE_MAX_S: Final = 20.0
_LOOK_S: Final = 0.05
_DOWN_MAX_S: Final = 5.0
"""The last one has to be up within the 10 s for which the controller waits."""


class OlderCopy(Lane):
    """See the module. Life: that of the run."""

    def __init__(
        self,
        simulation: Simulation,
        members: Mapping[BrokerId, SimNode],
        observing: set[BrokerId],
        whole: Callable[[], bool],
    ) -> None:
        """`members`: the brokers, as the operator knows them; `observing`: those that hold no replicas. `whole`:
        whether every record is on all its replicas, and all voters have all of the metadata."""
        super().__init__(simulation, OLDER_COPY_LANE)
        self._members = members
        self._observing = observing
        self._is_whole = whole

    async def put_back(self) -> None:
        """Copy a disk, kill all brokers some time later, and start them again, one of them on the copy."""
        victim = self._members[self.chance.choice(sorted(self._members.keys() - self._observing))]
        until_s = asyncio.get_running_loop().time() + _WHOLE_MAX_S
        copy, process, term = self._copied(victim), victim.process, _term(victim)
        copied = _copies_of_others(victim)
        await self.last()
        while not self._is_whole():
            if asyncio.get_running_loop().time() >= until_s:
                return
            await asyncio.sleep(_LOOK_S)
        if victim.process is not process or _term(victim) != term or not _copies_of_others(victim) <= copied:
            return
        for node in self._members.values():
            (node.kill if self.chance.random() < 0.5 else node.cut_power)()
        victim.disk = copy
        self.simulation.trace.met[DISKS_PUT_BACK] += 1
        await asyncio.gather(
            *(self._start(node, self.chance.uniform(0, _DOWN_MAX_S)) for node in self._members.values())
        )

    def _copied(self, node: SimNode) -> SimDisk:
        """As a snapshot of the file system has it, or as a snapshot of the machine's disk beneath."""
        return node.disk.copy() if self.chance.random() < 0.5 else node.disk.power_cut(self.chance)

    @staticmethod
    async def _start(node: SimNode, after_s: float) -> None:
        await asyncio.sleep(after_s)
        await node.start()


def _term(node: SimNode) -> int:
    """The term of the metadata group, as a broker that runs knows it."""
    return -1 if node.broker is None else node.broker.cluster.view.leadership.term


def _copies_of_others(node: SimNode) -> set[StreamIdPartition]:
    """The replicas of a broker of which there are others."""
    held = () if node.broker is None else node.broker.replicas
    return {
        StreamIdPartition(one.stream.id, one.index)
        for one in held
        if len(one.stream.assignments[one.index].replicas) > 1
    }


OLDER_COPY_FAULTS: Final[dict[str, FaultKind[OlderCopy]]] = {
    "put-back": FaultKind(OlderCopy.put_back, lasts_max_s=_COPIED_BEFORE_MAX_S)
}
"""What happens to a disk of which there is a copy, by name."""
