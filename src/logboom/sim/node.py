"""One node, a broker with its Kafka and HTTP servers, as a simulated process on a simulated disk that outlives it.

The node is the real one (`app.node`); threads, time, chance, network and disk are simulated. It can be killed
(what was written survives in the page cache), lose its power (what was not synced is lost, torn or kept, as the seed
has it), and be started again on what is left.
"""

from collections.abc import Collection, Sequence
from typing import Any, Final

from logboom.app.config import NodeConfig
from logboom.app.node import Node
from logboom.base.errors import LogboomError
from logboom.base.ids import BrokerId
from logboom.broker.broker import Broker
from logboom.broker.cluster_identity import found_cluster
from logboom.sim.coverage import UNSYNCED_LOST
from logboom.sim.device import Device, DiskTiming
from logboom.sim.disk import SimDisk
from logboom.sim.machine import SimClock, SimIds
from logboom.sim.process import Process
from logboom.sim.simulation import Simulation

_PORT: Final = 9092
_HTTP_PORT: Final = 9644
_PEER_PORT: Final = 9192
_KEY: Final = bytes(range(32))
"""Of all simulated clusters; the sockets are simulated too."""


def peer_address(node: "SimNode") -> str:
    """Where other brokers connect, as a setting names it."""
    host, port = node.peer_address
    return f"{host}:{port}"


class SimNode:
    """Life: made; `start`, then `stop`, `kill` or `cut_power`, any number of times."""

    def __init__(
        self,
        simulation: Simulation,
        name: str,
        *,
        broker: dict[str, Any] | None = None,
        kafka: dict[str, Any] | None = None,
        http: dict[str, Any] | None = None,
        peer: dict[str, Any] | None = None,
        nats: dict[str, Any] | None = None,
        disk: SimDisk | None = None,
        clock: SimClock | None = None,
        timing: DiskTiming | None = None,
    ) -> None:
        """`peer`: settings of the listener for other brokers; without it the node is alone. `nats`: without it nothing
        is taken from there."""
        self.name = name
        self.disk = disk or SimDisk()
        self.device = Device(simulation.scheduler, name, simulation.fork(f"{name}/disk"), timing or DiskTiming())
        """What the disk is behind its files: how long it takes, and what goes wrong with it."""
        self.clock = clock or SimClock(simulation.scheduler)
        """Of its machine."""
        self.lost_files_of: set[str] = set()
        """Directories of which files were ever lost."""
        self.process: Process | None = None
        self.address = (name, _PORT)
        self.http_address = (name, _HTTP_PORT)
        self.peer_address = (name, _PEER_PORT)
        self.flush_rounds = self.inline_flush_rounds = 0
        """Group commits of all its processes that have ended, and those of them that were made on the event loop."""
        self._simulation = simulation
        self._power_chance = simulation.fork(f"{name}/power")
        self._settings = {
            "broker": {"data_dir": f"/{name}", **(broker or {})},
            "kafka": {"listen": f"{name}:{_PORT}", **(kafka or {})},
            "http": {"listen": f"{name}:{_HTTP_PORT}", **(http or {})},
            "peer": {} if peer is None else {"listen": f"{name}:{_PEER_PORT}", "key_file": "simulated", **peer},
            "nats": nats or {},
        }
        self._config = NodeConfig.model_validate(self._settings)
        self._node: Node | None = None

    @property
    def broker_id(self) -> BrokerId:
        """The id that its next process has, or the one that lives."""
        return BrokerId(self._config.broker.broker_id)

    @property
    def broker(self) -> Broker | None:
        """The broker of the process that lives; None before it has recovered, and after the end."""
        return None if self._node is None else self._node.broker

    @property
    def running(self) -> bool:
        """Whether its process lives."""
        return self.process is not None and self.process.loop.life.alive

    def lose_files(self, directory: str, names: Collection[str]) -> None:
        """These files are not on the disk any more, whatever was synced. While no process lives."""
        assert not self.running
        for name in names:
            self.disk.nodes.pop(f"{directory}/{name}")
            self.disk.durable_names.pop(f"{directory}/{name}", None)
        if names:
            self.lost_files_of.add(directory)

    async def start(self) -> None:
        """A new process on the disk as it is; returns when it serves. Raises what the broker raises."""
        assert not self.running
        process = self.process = self._simulation.process(self.name, self.clock)
        disk = self.disk
        self.device.serve(disk, process.loop)
        self._node = Node(
            self._config,
            process.log,
            runtime=process.runtime,
            open_disk=lambda _: disk,
            read_key=lambda _: (_KEY,),
        )
        try:
            await process.run(self._node.start())
        except (LogboomError, OSError):
            process.kill()  # as a real one ends when its broker cannot start
            raise

    def found_cluster(self) -> None:
        """Make its empty disk that of the first broker of a new cluster, as `logboom cluster found` does."""
        config = self._config.broker
        chance = self._simulation.fork(f"{self.name}/founding")
        found_cluster(
            config.data_dir,
            self.disk,
            broker_id=self.broker_id,
            cluster_id=config.cluster_id,
            ids=SimIds(chance),
            log=self._simulation.director.log,
        )

    async def stop(self) -> None:
        """Stop in good order; the process ends."""
        assert self.process is not None
        assert self._node is not None
        broker = self.broker
        await self.process.run(self._node.stop())
        self._count_rounds(broker)
        self._kill_process()

    def kill(self) -> None:
        """End the process where it stands; the operating system still has what it wrote."""
        self._kill_process()
        self.disk = self.disk.after_kill()
        self.device.mend()

    def cut_power(self) -> None:
        """End the process, and with it the page cache: of what was not synced the seed decides."""
        self._kill_process()
        self._simulation.trace.met[UNSYNCED_LOST] += not self.disk.is_settled
        self.disk = self.disk.power_cut(self._power_chance)
        self.device.mend()

    def wipe(self, join: Sequence[str], broker_id: int | None = None) -> None:
        """Give it an empty disk, the addresses of brokers of the cluster that it is to join, and another id, unless it
        keeps its own. Not while it runs."""
        assert not self.running
        self.disk = type(self.disk)(self.disk.capacity_bytes)
        self._settings["broker"]["join"] = tuple(one for one in join if one != peer_address(self))
        if broker_id is not None:
            self._settings["broker"]["broker_id"] = broker_id
        self._config = NodeConfig.model_validate(self._settings)

    def _kill_process(self) -> None:
        assert self.process is not None
        self.process.kill()
        self._count_rounds(self.broker)
        self._node = None

    def _count_rounds(self, broker: Broker | None) -> None:
        if broker is not None:
            self.flush_rounds += broker.counters.flush_rounds
            self.inline_flush_rounds += broker.counters.inline_flush_rounds
