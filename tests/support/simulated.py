"""Tests in simulated time: `run` a coroutine on a simulated loop, and the broker that it starts is simulated with it.

For tests that wait for timers, or for which the real disk and sockets are nothing but slow. The seed is the name of the
test, so a test runs alike each time; LOGBOOM_SIM_SEED tries another.
"""

import asyncio
import os
import zlib
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any, Final, TypeVar
from weakref import WeakKeyDictionary

from logboom.base.ports import Disk
from logboom.broker.runtime import Runtime
from logboom.host import OsDisk
from logboom.sim.disk import SimDisk
from logboom.sim.loop import SimLoop
from logboom.sim.simulation import Simulation

WAIT_S: Final = 600.0
"""Simulated seconds that a test may take."""
_SYNC_S: Final = 0.0005
"""How long a sync beside the loop takes; the disk does all else at once."""

Result = TypeVar("Result")

_simulations: "WeakKeyDictionary[SimLoop, Simulation]" = WeakKeyDictionary()
_disks: "WeakKeyDictionary[Simulation, dict[str, SimDisk]]" = WeakKeyDictionary()


def run(body: Callable[[], Awaitable[Result]], *, seed: int | None = None) -> Result:
    """Run one test's coroutine, bounded in simulated time."""
    simulation = Simulation(_seed() if seed is None else seed)
    simulation.director.loop.life.host = "127.0.0.1"
    _simulations[simulation.director.loop] = simulation
    _disks[simulation] = {}

    async def main() -> Result:
        return await body()

    work: Coroutine[Any, Any, Result] = main()
    try:
        return simulation.run(work, max_s=WAIT_S)
    finally:
        # Each holds its own key, so that without this every simulation would stay to the end of the process.
        del _simulations[simulation.director.loop], _disks[simulation]


def _seed() -> int:
    chosen = os.environ.get("LOGBOOM_SIM_SEED", os.environ.get("PYTEST_CURRENT_TEST", ""))
    return zlib.crc32(chosen.partition(" (")[0].encode())


def machine() -> tuple[Runtime, Callable[[str], Disk]]:
    """Runtime and disks for a broker on the loop that runs: the real ones on a real loop."""
    loop = asyncio.get_running_loop()
    if not isinstance(loop, SimLoop):
        return Runtime(), OsDisk
    simulation = _simulations[loop]
    disks = _disks[simulation]

    def open_disk(path: str) -> Disk:
        disk = disks.setdefault(path, SimDisk())
        disk.complete_later = partial(_end_later, loop)
        return disk

    return simulation.director.runtime, open_disk


def replace_disk(path: str, disk: SimDisk) -> None:
    """The next broker on `path` finds this disk, such as what a power cut has left of the one before."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, SimLoop)
    _disks[_simulations[loop]][path] = disk


def stand_still(seconds: float) -> None:
    """Nothing runs for so long, on any machine of the test."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, SimLoop)
    _simulations[loop].scheduler.pass_time(seconds)


def _end_later(loop: SimLoop, path: str, ended: Callable[[OSError | None], None]) -> None:
    loop.call_later(_SYNC_S, ended, None)
