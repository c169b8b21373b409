"""What goes wrong in a cluster: each node has its own trouble (`faults`), and the network between them has some too.

They come at the same time, so a majority may be gone for a while. What is cut is joined again, and who was stopped goes
on, before the next fault of the same kind is drawn.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Final

from logboom.base.units import DAY_MS, HOUR_MS
from logboom.sim.coverage import BITS_FLIPPED, DISKS_WIPED, FILES_LOST
from logboom.sim.faults import FAULTS, Fault, Trouble
from logboom.sim.link_config import LinkConfig
from logboom.sim.node import SimNode
from logboom.sim.process import ProcessEndedError
from logboom.sim.schedule import FaultKind, Lane
from logboom.sim.simulation import Simulation

NETWORK_LANE: Final = "network"
_LOOK_S: Final = 0.1
_FAR_CHANCE: Final = 0.7
_FAR_MS: Final = (-DAY_MS, 30 * DAY_MS)
"""Back by less than records are kept, and ahead by more (`cluster_scenario.FAR_CLOCKS_CONFIG`)."""
_LOSES_FILES_CHANCE: Final = 0.6
"""Of each partition of a broker that loses files."""
_PAUSE_MAX_S: Final = 4.0
"""Several times the lease."""
_DOWN_MAX_S: Final = 5.0
_FULL_MAX_S: Final = 6.0
_CUT_MAX_S: Final = 6.0
_SLOW: Final = LinkConfig(latency_min_s=10e-3, latency_max_s=200e-3)


async def _pause(trouble: Trouble) -> None:
    """SIGSTOP, and SIGCONT some time later."""
    process = trouble.node.process
    assert process is not None
    await trouble.sync_under_way()
    process.pause()
    await trouble.last()
    process.resume()


async def _clock_jumps(trouble: Trouble) -> None:
    """Somebody sets the wall clock, which nothing about leaders may depend on, and no record that is kept for days."""
    clock, chance = trouble.node.clock, trouble.chance
    if trouble.has_far_clock and chance.random() < _FAR_CHANCE:
        clock.wall_offset_ms = chance.randint(*_FAR_MS)
    else:
        clock.wall_offset_ms += chance.randint(-HOUR_MS, HOUR_MS)


async def _until_whole(trouble: Trouble) -> bool:
    """What is lost now must be on other disks; a majority that lose theirs lose records, which no promise is about."""
    loop = asyncio.get_running_loop()
    until_s = loop.time() + trouble.length_s
    while not trouble.is_whole():
        if loop.time() >= until_s:
            return False
        await asyncio.sleep(_LOOK_S)
    return True


async def _wipe(trouble: Trouble) -> None:
    """The disk is lost, and the machine comes back without it."""
    assert trouble.replace is not None
    if await _until_whole(trouble):
        trouble.node.kill()
        trouble.simulation.trace.met[DISKS_WIPED] += 1
        await trouble.replace(trouble.node)


async def _flip(trouble: Trouble) -> None:
    """One bit of the records that were synced is another one from now on."""
    if not await _until_whole(trouble):
        return
    files = trouble.node.disk.nodes
    paths = [path for path in sorted(files) if path.startswith("streams/") and path.endswith(".log")]
    sizes = {path: len(files[path].durable.rstrip(b"\0")) for path in paths}
    filled = [path for path in paths if sizes[path]]
    if filled:
        path = trouble.chance.choice(filled)
        files[path].flip(trouble.chance.randrange(8 * sizes[path]))
        trouble.simulation.trace.met[BITS_FLIPPED] += 1


def _to_lose(chance: Random, names: Sequence[str]) -> Sequence[str]:
    """Which files of a partition get lost: all, some, those of the last segments, or of the first one and what says
    where the log begins."""
    logs = [name for name in names if name.endswith(".log")]
    kind = chance.choice(("all", "some", "last", "first"))
    if kind == "some" or not logs:
        return [name for name in names if chance.random() < 0.5]
    if kind == "last":
        return logs[chance.randrange(len(logs)) :]
    stem = logs[0].removesuffix(".log")
    return [name for name in names if kind == "all" or name.startswith(stem) or name == "durable-end"]


async def _lose_files(trouble: Trouble) -> None:
    """A broker is stopped or killed, and finds some of its partitions without some of their files: a file system that
    was repaired, or somebody who wanted room. Not the mark whose directory it is: what has none is as a lost disk."""
    if not await _until_whole(trouble):
        return
    node, chance = trouble.node, trouble.chance
    if chance.random() < 0.5:
        node.kill()
    else:
        try:
            await node.stop()
        except ProcessEndedError:
            return
    files = [path for path in sorted(node.disk.nodes) if path.startswith("streams/")]
    for directory in sorted({path.rpartition("/")[0] for path in files if path.endswith(".log")}):
        if chance.random() < _LOSES_FILES_CHANCE:
            names = [path.removeprefix(f"{directory}/") for path in files if path.startswith(f"{directory}/")]
            lost = _to_lose(chance, [name for name in names if name != "owner.json"])
            node.lose_files(directory, lost)
            trouble.simulation.trace.met[FILES_LOST] += len(lost)
    await trouble.start()


NODE_FAULTS: Final[dict[str, Fault]] = {
    **{name: replace(FAULTS[name], lasts_max_s=_DOWN_MAX_S) for name in ("kill", "power", "stop")},
    **{name: FAULTS[name] for name in ("eio", "eio-once", "hang", "slow")},
    "full": replace(FAULTS["full"], lasts_max_s=_FULL_MAX_S),
    "pause": Fault(_pause, lasts_max_s=_PAUSE_MAX_S),
    "clock": Fault(_clock_jumps),
}
"""What happens to one node, by name."""

DISK_LOSSES: Final[dict[str, Fault]] = {
    "wipe": Fault(_wipe, lasts_max_s=10.0),
    "flip": Fault(_flip, lasts_max_s=10.0),
    "lose-files": Fault(_lose_files, lasts_max_s=10.0),
}
"""What happens to one node alone in each run, since no promise is about records that lose the disks of all replicas."""


class NetworkTrouble(Lane):
    """The faults of the network of one run. Life: that of the run."""

    def __init__(self, simulation: Simulation, nodes: Sequence[SimNode]) -> None:
        super().__init__(simulation, NETWORK_LANE)
        self.network = simulation.network
        self.names = [node.name for node in nodes]

    def pair(self) -> tuple[str, str]:
        """Two brokers."""
        one, other = self.chance.sample(self.names, 2)
        return one, other

    def cut_some(self) -> None:
        """Break about half of all connections."""
        for link in tuple(self.network.links):
            if self.chance.random() < 0.5:
                link.cut()

    async def heal_later(self) -> None:
        """Let it last, then let everything through between brokers."""
        await self.last()
        self.network.heal(self.names)


NetworkFault = FaultKind[NetworkTrouble]


async def _one_way(trouble: NetworkTrouble) -> None:
    trouble.network.block(*trouble.pair())
    await trouble.heal_later()


async def _split(trouble: NetworkTrouble) -> None:
    trouble.network.split(*trouble.pair())
    await trouble.heal_later()


async def _isolate(trouble: NetworkTrouble) -> None:
    """No other broker reaches one; clients do."""
    one = trouble.chance.choice(trouble.names)
    for other in trouble.names:
        if other != one:
            trouble.network.split(one, other)
    await trouble.heal_later()


async def _deafen(trouble: NetworkTrouble) -> None:
    """One broker hears no other one, and is heard."""
    one = trouble.chance.choice(trouble.names)
    for other in trouble.names:
        if other != one:
            trouble.network.block(other, one)
    await trouble.heal_later()


async def _slow_links(trouble: NetworkTrouble) -> None:
    """Connections that are made from now on are slow; about half of the others are broken, so that there are some."""
    network = trouble.network
    whole = network.config
    network.config = replace(whole, latency_min_s=_SLOW.latency_min_s, latency_max_s=_SLOW.latency_max_s)
    trouble.cut_some()
    await trouble.last()
    network.config = whole


async def _cut(trouble: NetworkTrouble) -> None:
    """Connections break, and can be made anew at once."""
    trouble.cut_some()


NETWORK_FAULTS: Final[dict[str, NetworkFault]] = {
    "one-way": NetworkFault(_one_way, lasts_max_s=_CUT_MAX_S),
    "split": NetworkFault(_split, lasts_max_s=_CUT_MAX_S),
    "isolate": NetworkFault(_isolate, lasts_max_s=_CUT_MAX_S),
    "deafen": NetworkFault(_deafen, lasts_max_s=_CUT_MAX_S),
    "slow-links": NetworkFault(_slow_links, lasts_max_s=_CUT_MAX_S),
    "cut": NetworkFault(_cut),
}
"""What happens to the network, by name."""
