"""One broker with its Kafka door as a simulated process, on a simulated disk that outlives it.

The broker is the real one, from its door down; threads, time, chance, network and disk are simulated. It can be killed
(what was written survives in the page cache), lose its power (what was not synced is lost, torn or kept, as the seed
has it), and be started again on what is left.
"""

import errno
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Final

from logboom.base.errors import LogboomError
from logboom.base.ports import Disk
from logboom.broker.broker import Broker
from logboom.broker.config import BrokerConfig
from logboom.kafka.config import KafkaConfig
from logboom.kafka.server.door import KafkaDoor
from logboom.sim.disk import SimDisk
from logboom.sim.process import Process
from logboom.sim.simulation import Simulation
from logboom.sim.threads import Killed, Wait, current, must_wait, sleep

_STOP_GRACE_S: Final = 2.5


@dataclass(frozen=True, slots=True)
class DiskTiming:
    """How long operations of a disk take, in seconds, at least and at most.

    Reads take none: storage reads under the lock of an index, for which another thread may wait meanwhile.
    """

    write_s: tuple[float, float] = (5e-6, 300e-6)
    sync_s: tuple[float, float] = (50e-6, 20e-3)

    def of(self, operation: str, chance: Random) -> float:
        """How long this one takes; 0 for those that only touch names or memory."""
        if operation in ("sync", "sync_dir"):
            low, high = self.sync_s
        elif operation == "write":
            low, high = self.write_s
        else:
            return 0.0
        return float(low * (high / low) ** chance.random())


@dataclass
class DiskFaults:
    """What goes wrong on one node's disk, until it is `mended`."""

    failing: frozenset[str] = frozenset()
    """Operations that fail with EIO."""
    hanging: bool = False
    """Whether writes and syncs do not return."""
    waits: list[Wait] = field(default_factory=list)

    def mend(self) -> None:
        """From now on the disk works, and what hung goes on."""
        self.failing, self.hanging = frozenset(), False
        for wait in self.waits:
            wait.end()
        self.waits.clear()


class SimNode:
    """Life: made; `start`, then `stop`, `kill` or `cut_power`, any number of times."""

    def __init__(
        self,
        simulation: Simulation,
        name: str,
        *,
        broker: dict[str, Any] | None = None,
        kafka: dict[str, Any] | None = None,
        disk: SimDisk | None = None,
        timing: DiskTiming | None = None,
    ) -> None:
        self.name = name
        self.disk = disk or SimDisk()
        self.faults = DiskFaults()
        self.broker: Broker | None = None
        self.door: KafkaDoor | None = None
        self.process: Process | None = None
        self.address = (name, 0)
        self._simulation = simulation
        self._chance = simulation.fork(f"{name}/disk")
        self._timing = timing or DiskTiming()
        self._broker_config = BrokerConfig(data_dir=Path(f"/{name}"), **(broker or {}))
        self._kafka_config = {"listen": f"{name}:9092", **(kafka or {})}

    @property
    def running(self) -> bool:
        """Whether its process lives."""
        return self.process is not None and self.process.loop.alive

    async def start(self) -> None:
        """A new process on the disk as it is; returns when it serves. Raises what the broker raises."""
        assert not self.running
        process = self.process = self._simulation.process(self.name)
        disk = self.disk
        disk.fault = self._before(process, disk)
        try:
            self.broker, self.door, self.address = await process.run(self._begin(process, disk))
        except (LogboomError, OSError):
            process.kill()  # as a real one ends when its broker cannot start
            raise

    async def _begin(self, process: Process, disk: Disk) -> tuple[Broker, KafkaDoor, tuple[str, int]]:
        broker = await Broker.start(
            self._broker_config, runtime=process.runtime, log=process.log, open_disk=lambda _: disk
        )
        door = KafkaDoor(broker, KafkaConfig.model_validate(self._kafka_config), process.log)
        return broker, door, await door.start()

    async def stop(self) -> None:
        """Stop in good order; the process ends."""
        assert self.process is not None
        await self.process.run(self._end())
        self.process.kill()

    async def _end(self) -> None:
        assert self.broker is not None
        assert self.door is not None
        self.broker.groups.resign()
        await self.door.stop(_STOP_GRACE_S)
        await self.broker.stop()

    def kill(self) -> None:
        """End the process where it stands; the operating system still has what it wrote."""
        assert self.process is not None
        self.process.kill()
        self.disk = self.disk.after_kill()
        self.faults.mend()

    def cut_power(self) -> None:
        """End the process, and with it the page cache: of what was not synced the seed decides."""
        assert self.process is not None
        self.process.kill()
        self.disk = self.disk.power_cut(self._chance)
        self.faults.mend()

    def _before(self, process: Process, disk: SimDisk) -> Callable[[str, str], None]:
        """What happens before each operation of the disk: it takes its time, hangs, or fails."""

        def fault(operation: str, path: str) -> None:
            if not process.loop.alive:
                raise Killed
            self._simulation.scheduler.record("disk", f"{self.name} {operation} {path}")
            if current() is not None:
                self._take_time(operation, path)
            if operation in self.faults.failing:
                raise OSError(errno.EIO, "the simulated disk fails", path)

        return fault

    def _take_time(self, operation: str, path: str) -> None:
        seconds = self._timing.of(operation, self._chance)
        if not seconds:
            return
        sleep(seconds, f"{operation} of {path}")
        if self.faults.hanging:
            wait = must_wait(f"{operation} of {path}, which hangs")
            self.faults.waits.append(wait)
            wait.park()
