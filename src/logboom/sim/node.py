"""One broker with its Kafka door as a simulated process, on a simulated disk that outlives it.

The broker is the real one, from its door down; threads, time, chance, network and disk are simulated. It can be killed
(what was written survives in the page cache), lose its power (what was not synced is lost, torn or kept, as the seed
has it), and be started again on what is left.
"""

from pathlib import Path
from typing import Any, Final

from logboom.base.errors import LogboomError
from logboom.base.ports import Disk
from logboom.broker.broker import Broker
from logboom.broker.config import BrokerConfig
from logboom.kafka.config import KafkaConfig
from logboom.kafka.server.door import KafkaDoor
from logboom.sim.device import Device, DiskTiming
from logboom.sim.disk import SimDisk
from logboom.sim.process import Process
from logboom.sim.simulation import Simulation

_STOP_GRACE_S: Final = 2.5
_PORT: Final = 9092


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
        self.device = Device(simulation.scheduler, name, simulation.fork(f"{name}/disk"), timing or DiskTiming())
        """What the disk is behind its files: how long it takes, and what goes wrong with it."""
        self.broker: Broker | None = None
        self.door: KafkaDoor | None = None
        self.process: Process | None = None
        self.address = (name, _PORT)
        self.flush_rounds = self.inline_flush_rounds = 0
        """Group commits of all its processes that have ended, and those of them that were made on the event loop."""
        self._simulation = simulation
        self._power_chance = simulation.fork(f"{name}/power")
        self._broker_config = BrokerConfig(data_dir=Path(f"/{name}"), **(broker or {}))
        self._kafka_config = {"listen": f"{name}:{_PORT}", **(kafka or {})}

    @property
    def running(self) -> bool:
        """Whether its process lives."""
        return self.process is not None and self.process.loop.alive

    async def start(self) -> None:
        """A new process on the disk as it is; returns when it serves. Raises what the broker raises."""
        assert not self.running
        process = self.process = self._simulation.process(self.name)
        disk = self.disk
        self.device.serve(disk, process.loop)
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
        self._kill_process()

    async def _end(self) -> None:
        assert self.broker is not None
        assert self.door is not None
        self.broker.groups.resign()
        await self.door.stop(_STOP_GRACE_S)
        await self.broker.stop()

    def kill(self) -> None:
        """End the process where it stands; the operating system still has what it wrote."""
        self._kill_process()
        self.disk = self.disk.after_kill()
        self.device.mend()

    def cut_power(self) -> None:
        """End the process, and with it the page cache: of what was not synced the seed decides."""
        self._kill_process()
        self.disk = self.disk.power_cut(self._power_chance)
        self.device.mend()

    def _kill_process(self) -> None:
        assert self.process is not None
        self.process.kill()
        if self.broker is not None:
            self.flush_rounds += self.broker.counters.flush_rounds
            self.inline_flush_rounds += self.broker.counters.inline_flush_rounds
            self.broker = None
