"""Who administers a cluster while things go wrong: replicas are moved, leaders elected, streams and settings changed,
brokers drained, added and removed.

Each step is a fault like others (`schedule`): it comes at its time and lasts. What a request asks for may be refused,
or get no answer and be carried out at any later time; either is right, so nothing is made of the answers. What must
hold, whatever was asked for, is what holds of the records. At the end (`settle`) what is under way is over.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final
from zlib import crc32

from kio.schema.errors import ErrorCode

from logboom.base.errors import DuplicateBrokerError, UnknownBrokerError
from logboom.base.ids import BrokerId
from logboom.client.messages import Api
from logboom.kafka.wire.messages import milliseconds
from logboom.sim.client import SimClient
from logboom.sim.coverage import STRANGERS
from logboom.sim.node import SimNode, peer_address
from logboom.sim.schedule import FaultKind, Lane
from logboom.sim.scheduler import SimulationError
from logboom.sim.session import ask_once
from logboom.sim.simulation import Simulation

OPERATOR_LANE: Final = "operator"
_METADATA: Final[Api] = (3, 8)
_DELETE_TOPICS: Final[Api] = (20, 3)
_ELECT_LEADERS: Final[Api] = (43, 1)
_ALTER_CONFIGS: Final[Api] = (44, 0)
_REASSIGN: Final[Api] = (45, 0)
_LIST_REASSIGNMENTS: Final[Api] = (46, 0)
_UNREGISTER: Final[Api] = (64, 0)
_STREAM_RESOURCE, _BROKER_RESOURCE = 2, 4
_SET, _DELETE = 0, 1
_PREFERRED, _UNCLEAN = 0, 1
_NOBODY: Final = -1
_PATIENCE_S: Final = 10.0
"""How long partitions may wait for a disk that is lost, before another copy has to do."""
_TIMEOUT_MS: Final = 5_000
_ASK_AGAIN_S: Final = 0.5
_FEWER_REPLICAS_CHANCE: Final = 0.2

Placed = Mapping[tuple[str, int], Sequence[int]]
"""The replicas of each partition."""


class Operator(Lane):
    """One person with the cluster's own tools. Life: that of the run."""

    def __init__(self, simulation: Simulation, nodes: Sequence[SimNode], spare: SimNode, stream: str) -> None:
        """`stream`: the one whose records are checked. `spare` is not part of the cluster until it is added."""
        super().__init__(simulation, OPERATOR_LANE)
        self.members = {BrokerId(number): node for number, node in enumerate(nodes, 1)}
        """The brokers of the cluster; the spare too, from when it is added until it is stopped for good."""
        self.observing: set[BrokerId] = set()
        """Those of them that only observe, and hold no replicas."""
        self.spare = spare
        self.next_id = len(nodes) + 2
        """Of the next broker that takes a lost one's place."""
        self.stream = stream
        self.replicas = min(len(nodes), 3)
        """Of each partition."""
        self.made = 0
        self.asked_uncleanly: set[tuple[str, int]] = set()
        """Partitions for which it was ever said that whoever has most shall lead."""
        self.joined_through = [peer_address(node) for node in nodes]
        self.addresses = [node.address for node in nodes]
        """Where clients begin."""

    @property
    def holders(self) -> list[BrokerId]:
        """The brokers that may hold replicas."""
        return sorted(self.members.keys() - self.observing)

    async def ask(self, api: Api, **fields: Any) -> Any:
        """Ask any broker; None where it refuses or does not answer."""
        return await self._as_client(lambda client: client.ask(api, **fields))

    async def _as_client(self, work: Callable[[SimClient], Awaitable[Any]]) -> Any:
        return await ask_once(self.addresses, self.name, self.chance, work)

    async def create(self, name: str, partitions: int) -> None:
        """Create a stream."""
        await self._as_client(lambda client: client.create_stream(name, partitions, {}, self.replicas))

    async def _metadata(self) -> Any:
        """What some broker knows of all streams; None where none answers."""
        return await self.ask(
            _METADATA,
            topics=None,
            allow_auto_topic_creation=False,
            include_cluster_authorized_operations=False,
            include_topic_authorized_operations=False,
        )

    async def placed(self) -> Placed:
        """Who holds what, as some broker knows, observers aside; nothing where none answers."""
        answer = await self._metadata()
        return {
            (topic.name, one.partition_index): [
                int(broker) for broker in one.replica_nodes if broker not in self.observing
            ]
            for topic in (answer.topics if answer is not None else ())
            for one in topic.partitions
        }

    async def _going(self) -> Placed:
        """The replicas that moves take away, as some broker knows."""
        answer = await self.ask(_LIST_REASSIGNMENTS, timeout=milliseconds(_TIMEOUT_MS), topics=None)
        return {
            (topic.name, one.partition_index): one.removing_replicas
            for topic in (answer.topics if answer is not None else ())
            for one in topic.partitions
        }

    async def move(self, wanted: Mapping[tuple[str, int], Sequence[int] | None]) -> None:
        """Ask for these replicas; None cancels."""
        topics: dict[str, list[dict[str, Any]]] = {}
        for (stream, index), replicas in wanted.items():
            to = None if replicas is None else tuple(replicas)
            topics.setdefault(stream, []).append({"partition_index": index, "replicas": to})
        asked = [{"name": name, "partitions": partitions} for name, partitions in topics.items()]
        await self.ask(_REASSIGN, timeout=milliseconds(_TIMEOUT_MS), topics=asked)

    async def configure(self, kind: int, name: str, setting: str, value: str | None) -> None:
        """Change one setting; None gives it back to its default."""
        change = {"name": setting, "config_operation": _DELETE if value is None else _SET, "value": value}
        resource = {"resource_type": kind, "resource_name": name, "configs": [change]}
        await self.ask(_ALTER_CONFIGS, resources=[resource], validate_only=False)

    async def evacuate(self, broker: BrokerId) -> None:
        """Ask that a broker holds nothing, as far as there are others to take it.

        What is on the move goes where it was to go. Whoever takes the replicas that it has meanwhile for those that it
        is to have asks for more and more of them, also for one that is lost: such a move never ends.
        """
        going = await self._going()
        wanted: dict[tuple[str, int], Sequence[int]] = {}
        for where, replicas in (await self.placed()).items():
            stay = [one for one in replicas if one not in going.get(where, ())]
            others = [one for one in self.holders if one not in stay]
            if broker in stay and len(stay) > self.replicas:
                wanted[where] = [one for one in stay if one != broker]
            elif broker in stay and others:
                # The same one each time: over slow links an answer may come too late, and a move that is asked for
                # again to another place begins again.
                instead = others[crc32(f"{where}".encode()) % len(others)]
                wanted[where] = [instead if one == broker else one for one in stay]
        if wanted:
            await self.move(wanted)

    async def give_away(self, broker: BrokerId) -> None:
        """Return once a broker holds nothing, as far as some other one knows."""
        while not (placed := await self.placed()) or any(broker in replicas for replicas in placed.values()):
            await self.evacuate(broker)
            await asyncio.sleep(_ASK_AGAIN_S)

    async def _give_up(self, broker: BrokerId) -> None:
        """What a broker held that lost its disk others hold; returns once none of it waits for that broker.

        Where it alone counts as having everything, nobody else leads by himself, since nobody but a person knows that
        the disk is gone.
        """
        loop = asyncio.get_running_loop()
        patient_until_s = loop.time() + _PATIENCE_S
        while not (placed := await self.placed()) or any(broker in replicas for replicas in placed.values()):
            if loop.time() >= patient_until_s:
                await self._elect_without(broker)
            await self.evacuate(broker)
            await asyncio.sleep(_ASK_AGAIN_S)

    async def _elect_without(self, broker: BrokerId) -> None:
        """Where nobody leads what a broker held, whoever has most shall: once all others are there to be asked."""
        answer = await self._metadata()
        if answer is None or not {*self.members} <= {one.node_id for one in answer.brokers}:
            return
        waiting: dict[str, list[int]] = {}
        for topic in answer.topics:
            for one in topic.partitions:
                if one.leader_id == _NOBODY and broker in one.replica_nodes:
                    waiting.setdefault(topic.name, []).append(one.partition_index)
        if waiting:
            self.asked_uncleanly.update((name, index) for name, indexes in waiting.items() for index in indexes)
            await self.elect(_UNCLEAN, waiting)

    async def elect(self, kind: int, wanted: Mapping[str, Sequence[int]]) -> None:
        """Ask for elections in these partitions of streams."""
        topics = [{"topic": name, "partitions": tuple(indexes)} for name, indexes in wanted.items()]
        timeout = milliseconds(_TIMEOUT_MS)
        await self.ask(_ELECT_LEADERS, election_type=kind, topic_partitions=topics, timeout=timeout)

    async def remove(self, broker: BrokerId) -> None:
        """Have the cluster forget a broker that has ended; returns once it has."""
        gone = (ErrorCode.none, ErrorCode.broker_id_not_registered)
        while (answer := await self.ask(_UNREGISTER, broker_id=broker)) is None or answer.error_code not in gone:
            await self.evacuate(broker)  # what it was asked to hold meanwhile
            await asyncio.sleep(_ASK_AGAIN_S)

    async def stop_and_remove(self, node: SimNode) -> None:
        """Have the cluster forget a broker that held nothing, as some other one knew.

        That one may have been behind. What this broker alone has others get only from itself, so it comes back where
        the cluster goes on to refuse that (seed 620019).
        """
        while True:
            await node.stop()
            try:
                async with asyncio.timeout(_PATIENCE_S):
                    await self.remove(node.broker_id)
                return
            except TimeoutError:
                try:
                    await node.start()
                except UnknownBrokerError:
                    return  # it was forgotten, and the answer did not come in time (seed 641002 of five nodes)
                await self.give_away(node.broker_id)

    async def replace(self, node: SimNode) -> None:
        """The disk of a broker is lost: its machine comes back with an empty one, under an id of its own.

        Under its old id it is a stranger, and must be refused; what it held the new broker holds instead.
        """
        lost = node.broker_id
        node.wipe(self.joined_through)
        try:
            await node.start()
        except DuplicateBrokerError:
            self.simulation.trace.met[STRANGERS] += 1
        else:
            raise SimulationError(f"a broker with an empty disk was taken for broker {lost}")
        node.wipe(self.joined_through, broker_id=self.next_id)
        self.next_id += 1
        del self.members[lost]
        await node.start()
        self.members[node.broker_id] = node
        await self._give_up(lost)
        await self.remove(lost)

    async def settle(self) -> None:
        """Nothing that was begun is under way any more, and no broker is drained; the caller bounds it."""
        for broker in self.members:
            await self.configure(_BROKER_RESOURCE, str(broker), "logboom.draining", None)


Task = FaultKind[Operator]


async def _reassign(operator: Operator) -> None:
    """Other replicas for a partition, or the same in another order, and now and then one less."""
    placed = await operator.placed()
    where = operator.chance.choice(sorted(placed)) if placed else (operator.stream, 0)
    fewer = operator.replicas > 2 and operator.chance.random() < _FEWER_REPLICAS_CHANCE
    count = min(operator.replicas - fewer, len(operator.holders))
    await operator.move({where: operator.chance.sample(operator.holders, count)})


async def _cancel(operator: Operator) -> None:
    """Move a partition, and think better of it."""
    placed = await operator.placed()
    where = operator.chance.choice(sorted(placed)) if placed else (operator.stream, 0)
    count = min(operator.replicas, len(operator.holders))
    await operator.move({where: operator.chance.sample(operator.holders, count)})
    await operator.last()
    await operator.move({where: None})


async def _elect(operator: Operator) -> None:
    """Preferred leaders shall lead again."""
    wanted: dict[str, list[int]] = {}
    for stream, index in sorted(await operator.placed()):
        wanted.setdefault(stream, []).append(index)
    await operator.elect(_PREFERRED, wanted)


async def _change_settings(operator: Operator) -> None:
    setting, values = operator.chance.choice(
        (
            ("segment.bytes", ("16384", "65536", None)),
            ("compression.type", ("gzip", "producer", None)),
        )
    )
    await operator.configure(_STREAM_RESOURCE, operator.stream, setting, operator.chance.choice(values))


async def _create_and_delete(operator: Operator) -> None:
    operator.made += 1
    name = f"made-{operator.made}"
    await operator.create(name, operator.chance.randint(1, 3))
    await operator.last()
    await operator.ask(_DELETE_TOPICS, topic_names=(name,), timeout=milliseconds(_TIMEOUT_MS))


async def _drain(operator: Operator) -> None:
    """A broker shall hold nothing any more, and later it may again."""
    broker = operator.chance.choice(operator.holders)
    await operator.configure(_BROKER_RESOURCE, str(broker), "logboom.draining", "true")
    await operator.evacuate(broker)
    await operator.last()
    await operator.configure(_BROKER_RESOURCE, str(broker), "logboom.draining", None)


async def _add_or_remove(operator: Operator) -> None:
    """A broker more, or that one gives away what it holds, is stopped and removed; unless that takes too long."""
    spare = operator.spare
    if spare.broker_id not in operator.members:
        spare.wipe(operator.joined_through)
        operator.members[spare.broker_id] = spare
        await spare.start()
        return
    try:
        async with asyncio.timeout(operator.length_s):
            await operator.give_away(spare.broker_id)
    except TimeoutError:
        return
    del operator.members[spare.broker_id]
    await operator.stop_and_remove(spare)


TASKS: Final[dict[str, Task]] = {
    "reassign": Task(_reassign),
    "cancel": Task(_cancel, lasts_max_s=1.0),
    "elect": Task(_elect),
    "settings": Task(_change_settings),
    "streams": Task(_create_and_delete, lasts_max_s=3.0),
    "drain": Task(_drain, lasts_max_s=5.0),
    "members": Task(_add_or_remove, lasts_max_s=10.0),
}
"""What is done to the cluster, by name."""
