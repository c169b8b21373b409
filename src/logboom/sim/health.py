"""Which brokers of a cluster are well, and which of them hear each other: looked up in the machines and the network.

A broker is well whose process runs, whose disk works and has room, and which the metadata knows as this process of it.
What it makes of that, whether it is fenced or follows or says that it is ready, is not asked: that is what the checks
are about (`liveness`).
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Final

from logboom.base.ids import BrokerId
from logboom.base.units import MIB
from logboom.broker.broker import Broker
from logboom.metadata import Image
from logboom.sim.network import SimNetwork
from logboom.sim.node import SimNode

_ROOM_BYTES: Final = 64 * MIB
"""More than a run writes within a look."""


@dataclass(frozen=True, slots=True)
class Health:
    """What is true at one moment."""

    image: Image
    """The metadata as whoever has applied most of it has it, of those that are well."""
    brokers: dict[BrokerId, Broker]
    """Those that are well."""
    machines: dict[BrokerId, str]
    """Of all that run, by the ids that they have now."""
    hear: Callable[[str, str], bool]
    """Whether two machines hear each other."""
    controllers: tuple[BrokerId, ...]
    """Those of them that serve as the controller."""

    def all_well(self, members: Collection[BrokerId]) -> bool:
        """Whether all of these are well, and hear each other and a controller that is one and hears a majority."""
        return self._in_touch(members) and self._has_controller(members)

    def _in_touch(self, members: Collection[BrokerId]) -> bool:
        if not all(one in self.brokers for one in members):
            return False
        hosts = [self.machines[one] for one in members]
        return all(self.hear(one, other) for one in hosts for other in hosts)

    def _has_controller(self, members: Collection[BrokerId]) -> bool:
        """Where nobody is the controller, all brokers have to be well: then somebody should be."""
        if len(self.controllers) != 1:
            return self._in_touch([one.id for one in self.image.brokers.values() if not one.observer])
        controller = self.controllers[0]
        voters = [one.broker_id for one in self.brokers[controller].cluster.quorum().voters]
        with_it = [one for one in voters if self._in_touch((controller, one))]
        return 2 * len(with_it) > len(voters) and self._in_touch((*members, controller))


def health(nodes: Sequence[SimNode], network: SimNetwork) -> Health | None:
    """How a cluster is; None where no broker is well."""
    running = [(node, node.broker) for node in nodes if node.broker is not None and _works(node)]
    known = [one for _, one in running if one.cluster.registration.epoch is not None]
    if not known:
        return None
    image = max(known, key=lambda one: one.cluster.state.applied_index).cluster.state.image
    well: dict[BrokerId, Broker] = {}
    for node, broker in running:
        registered = image.brokers.get(node.broker_id)
        own = registered is not None and registered.epoch == broker.cluster.registration.epoch
        if own and registered is not None and not registered.shutting_down:
            well[node.broker_id] = broker
    return Health(
        image,
        well,
        {node.broker_id: node.name for node, _ in running},
        network.in_touch(),
        tuple(number for number, one in well.items() if one.cluster.view.serving),
    )


def _works(node: SimNode) -> bool:
    """Whether the process runs and its disk works."""
    process, broker = node.process, node.broker
    if process is None or broker is None or not node.running or process.loop.life.stands_still:
        return False
    has_room = node.disk.has_room(_ROOM_BYTES)
    return node.device.works and has_room and broker.health.log_dir_failure is None
