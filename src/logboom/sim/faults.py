"""What goes wrong with a node: faults planned from the seed, one after the other, each of them mended.

A fault is a coroutine that takes the node, hurts it, and leaves it so that it serves again, or is started again.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from logboom.base.units import KIB
from logboom.sim.node import SimNode
from logboom.sim.process import ProcessEndedError
from logboom.sim.schedule import FaultKind, Lane
from logboom.sim.simulation import Simulation

_EARLY_END_CHANCE: Final = 0.3
_START_TRIES_MAX: Final = 5
_MID_SYNC_CHANCE: Final = 0.7
_MID_SYNC_TRIES_MAX: Final = 100


class Trouble(Lane):
    """The faults of one node. Life: that of the run."""

    def __init__(self, simulation: Simulation, node: SimNode) -> None:
        super().__init__(simulation, node.name)
        self.node = node
        self.replace: Callable[[SimNode], Awaitable[None]] | None = None
        """What puts a broker in the place of one whose disk is lost; only clusters can do that."""
        self.is_whole: Callable[[], bool] = lambda: True
        """Whether every record is on all its replicas, so that one of them may be lost."""
        self.has_far_clock = False
        """Whether the wall clock may be days off."""

    async def sync_under_way(self) -> None:
        """Now and then, wait for a moment in which a sync is under way: that is when a crash tells most."""
        if self.chance.random() < _MID_SYNC_CHANCE:
            for _ in range(_MID_SYNC_TRIES_MAX):
                if self.node.device.syncs_under_way:
                    await self.pause(0.005)
                    break
                await asyncio.sleep(0.001)

    def end(self) -> None:
        """Kill the process, or the machine."""
        if self.chance.random() < 0.5:
            self.node.kill()
        else:
            self.node.cut_power()

    async def start(self, after_s: float = 0.0) -> None:
        """Start the node again some time later; now and then it dies once more on the way."""
        await asyncio.sleep(after_s)
        for _ in range(_START_TRIES_MAX):
            await self.pause(0.5)
            starting = asyncio.ensure_future(self.node.start())
            if self.chance.random() >= _EARLY_END_CHANCE:
                break
            await self.pause(0.05)
            if self.node.running:
                self.end()
            await asyncio.gather(starting, return_exceptions=True)
        else:
            starting = asyncio.ensure_future(self.node.start())
        await starting

    async def heal(self) -> None:
        """Everything works again, and the node is there and takes records."""
        node = self.node
        node.device.mend()
        node.disk.capacity_bytes = ROOM_BYTES
        if node.running and node.broker is not None and node.broker.health.log_dir_failure is not None:
            self.chance = self.simulation.fork(f"heal/{self.name}")
            self.end()
        if not node.running:
            await node.start()


Fault = FaultKind[Trouble]
ROOM_BYTES: Final = 1 << 40


async def _kill(trouble: Trouble) -> None:
    await trouble.sync_under_way()
    trouble.node.kill()
    await trouble.start(trouble.length_s)


async def _cut_power(trouble: Trouble) -> None:
    await trouble.sync_under_way()
    trouble.node.cut_power()
    await trouble.start(trouble.length_s)


async def _stop(trouble: Trouble) -> None:
    try:
        await trouble.node.stop()
    except ProcessEndedError:
        return
    await trouble.start(trouble.length_s)


async def _disk_fails(trouble: Trouble) -> None:
    """The disk returns EIO; the log dir is offline from then on, so it takes a restart."""
    operation = trouble.chance.choice(("sync", "write", "sync_dir"))
    trouble.node.device.failing = frozenset((operation,))
    await trouble.last()
    trouble.end()
    await trouble.start()


async def _disk_fails_once(trouble: Trouble) -> None:
    """One operation returns EIO, and whatever is tried after it works: what it was about is in doubt all the same.

    A broker that says that its log dir is offline is started again, as whoever looks after it would do.
    """
    device = trouble.node.device
    device.failing_once = frozenset((trouble.chance.choice(("sync", "write", "sync_dir")),))
    await trouble.last()
    device.failing_once = frozenset()
    broker = trouble.node.broker
    if broker is not None and broker.health.log_dir_failure is not None:
        trouble.end()
    if not trouble.node.running:
        await trouble.start()


async def _disk_full(trouble: Trouble) -> None:
    disk = trouble.node.disk
    used_bytes = disk.capacity_bytes - disk.free_bytes
    disk.capacity_bytes = used_bytes + trouble.chance.choice((0, KIB, 100 * KIB))
    await trouble.last()
    if trouble.chance.random() < _EARLY_END_CHANCE:
        trouble.end()
        trouble.node.disk.capacity_bytes = ROOM_BYTES
        await trouble.start()
    disk.capacity_bytes = ROOM_BYTES


async def _disk_hangs(trouble: Trouble) -> None:
    trouble.node.device.hanging = frozenset(("write", "sync", "sync_dir"))
    await _until_mended(trouble)


async def _reads_hang(trouble: Trouble) -> None:
    """A read does not return; everything that needs none goes on."""
    trouble.node.device.hanging = frozenset(("read",))
    await _until_mended(trouble)


async def _until_mended(trouble: Trouble) -> None:
    await trouble.last()
    if trouble.chance.random() < _EARLY_END_CHANCE:
        trouble.end()
        await trouble.start()
    trouble.node.device.mend()


async def _disk_slow(trouble: Trouble) -> None:
    """Writes and syncs take so long that small rounds go by the thread, and come back to the loop afterwards."""
    trouble.node.device.slow = True
    await trouble.last()
    trouble.node.device.mend()


async def _cut_connections(trouble: Trouble) -> None:
    for link in tuple(trouble.simulation.network.links):
        if trouble.chance.random() < 0.5:
            link.cut()


FAULTS: Final[dict[str, Fault]] = {
    "kill": Fault(_kill),
    "power": Fault(_cut_power),
    "stop": Fault(_stop),
    "eio": Fault(_disk_fails, lasts_max_s=1.0),
    "eio-once": Fault(_disk_fails_once, lasts_max_s=3.0),
    "full": Fault(_disk_full, lasts_max_s=2.0),
    "hang": Fault(_disk_hangs, lasts_max_s=15.0),
    "reads": Fault(_reads_hang, lasts_max_s=8.0),
    "slow": Fault(_disk_slow, lasts_max_s=3.0),
    "cut": Fault(_cut_connections),
}
"""Every fault by its name."""
