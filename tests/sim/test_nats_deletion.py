"""A stream of several partitions that is deleted in a cluster while messages come: each publisher gets an answer."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from tests.sim.nodes import start_cluster, three_nodes

from logboom.client.messages import Api
from logboom.kafka.wire.messages import milliseconds
from logboom.sim.nats_attached import SUBJECTS_SETTING
from logboom.sim.nats_publishing import _Connection
from logboom.sim.nats_routes import Unsettled
from logboom.sim.nats_server import SimNatsServer
from logboom.sim.node import SimNode
from logboom.sim.routing import RoutedClient
from logboom.sim.simulation import Simulation

_DELETE_TOPICS: Final[Api] = (20, 3)
_DELETIONS: Final = 3
_PUBLISHERS: Final = 12
_PAUSE_S: Final = 0.02
_NOT_FOUND: Final = 10059


async def _publish(number: int, connection: _Connection, told: Counter[Any], last: Sequence[object]) -> None:
    while not last:
        await asyncio.sleep(_PAUSE_S)
        for subject in range(4):
            answer = await connection.request(b"gone.%d" % subject, b"%d" % number, {})
            told[None if answer is None else answer.get("error", {}).get("err_code", "ack")] += 1


async def _cluster(simulation: Simulation) -> tuple[SimNatsServer, list[SimNode]]:
    server = SimNatsServer(simulation, "nats", Unsettled())
    await server.start()
    nodes = three_nodes(simulation, nats={"servers": [server.url]})
    await start_cluster(nodes)
    return server, nodes


def test_publishers_of_a_stream_of_several_partitions_that_is_deleted_get_an_answer_each() -> None:
    """Brokers hear of it one after the other; each leaves to another one what that leads, or led."""
    simulation = Simulation(1)
    told: Counter[Any] = Counter()

    async def main() -> None:
        server, nodes = await _cluster(simulation)
        client = await RoutedClient.connect(nodes[0].address, "operator")
        connections = [await _Connection.connect(server.address, f"_INBOX.{n}") for n in range(_PUBLISHERS)]
        for _ in range(_DELETIONS):
            await client.create_stream("gone", 6, {SUBJECTS_SETTING: "gone.>"}, 3)
            await asyncio.sleep(0.5)
            last: list[object] = []
            publishers = [asyncio.ensure_future(_publish(n, one, told, last)) for n, one in enumerate(connections)]
            await asyncio.sleep(0.05)
            await client.ask(_DELETE_TOPICS, topic_names=("gone",), timeout=milliseconds(5_000))
            await asyncio.sleep(1.2)
            last.append(None)
            await asyncio.gather(*publishers)
        for one in connections:
            one.close()
        client.close()

    simulation.run(main(), max_s=120)
    assert told["ack"]
    assert told[_NOT_FOUND]
    assert set(told) == {"ack", _NOT_FOUND, None}
