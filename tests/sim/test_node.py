"""One simulated node and a client of it: what a disk that hangs or refuses holds up, and what goes on."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from tests.peer.servers import KEY
from tests.sim.nodes import connected, on_node

from logboom.base.errors import LogboomError
from logboom.base.ids import BrokerId, DirectoryId, Offset
from logboom.broker.peers import Address, FrameKind, Lane, PeerIdentity
from logboom.peer.config import PeerConfig
from logboom.peer.server import PeerServer
from logboom.records import Record, build_batch
from logboom.sim.client import AskError, SimClient, TopicPartition
from logboom.sim.device import DiskTiming
from logboom.sim.node import SimNode
from logboom.sim.scheduler import SimulationError
from logboom.sim.simulation import Simulation

WHERE = TopicPartition("s", 0)


def records(*values: bytes) -> bytes:
    return bytes(build_batch([Record(Offset(n), 0, None, value, ()) for n, value in enumerate(values)]))


def with_stream(body: Callable[[SimNode, SimClient], Awaitable[None]], timing: DiskTiming | None = None) -> None:
    """Run `body` with a node, a stream and a client."""

    async def main(node: SimNode, _: Simulation) -> None:
        client = await connected(node)
        await client.create_stream("s", 1, {})
        await body(node, client)
        client.close()
        await node.stop()

    on_node(main, timing)


@pytest.mark.parametrize("restarted", [False, True], ids=["", "after a start, which leaves indexes unread"])
def test_a_read_that_hangs_holds_up_nothing_but_itself(restarted: bool) -> None:
    async def body(node: SimNode, client: SimClient) -> None:
        for number in range(5):
            await client.produce(WHERE, records(b"%d" % number))
        if restarted:
            client.close()
            node.kill()
            await node.start()
            client = await SimClient.connect(node.address, "test")
        node.device.hanging = frozenset(("read",))
        reader = await SimClient.connect(node.address, "reader")
        reading = asyncio.ensure_future(reader.fetch(WHERE, Offset(0), 100))
        await asyncio.sleep(1)
        began_s = asyncio.get_running_loop().time()
        for number in range(5, 10):
            assert await client.produce(WHERE, records(b"%d" % number)) == number
        assert asyncio.get_running_loop().time() - began_s < 1
        assert not reading.done()
        with pytest.raises(AskError):
            await reading
        reader.close()
        node.device.mend()
        reader = await SimClient.connect(node.address, "reader")
        polled = await reader.fetch(WHERE, Offset(0), 100)
        reader.close()
        assert [int(value) for _, value in polled.records] == list(range(10))
        client.close()

    with_stream(body, DiskTiming(read_cached_refused=1.0))


def test_code_that_waits_for_the_disk_on_the_event_loop_is_found_out() -> None:
    async def body(node: SimNode, client: SimClient) -> None:
        assert node.process is not None
        node.process.loop.call_soon(node.disk.open("node.json").read, 0, 10)
        await asyncio.sleep(1)

    with pytest.raises(SimulationError, match=r"the event loop would wait for the disk: read of node.json"):
        with_stream(body)


def test_a_simulated_node_lets_other_brokers_in() -> None:
    simulation = Simulation(1)

    async def main() -> None:
        node = SimNode(simulation, "n1", peer={})
        node.found_cluster()
        await node.start()
        runtime, log = simulation.director.runtime, simulation.director.log
        server = PeerServer(
            PeerConfig(listen="director:0", key_file=Path("simulated")), (KEY,), runtime=runtime, log=log
        )
        await server.start()
        server.identify(PeerIdentity(BrokerId(7), DirectoryId("d"), ""))
        link = server._make_link(None, Lane.RECORDS, Address(*node.peer_address))
        with contextlib.suppress(LogboomError):  # whatever comes of the request, the handshake tells who was asked
            await link.call(FrameKind.FETCH, [b"?"], timeout_s=1)
        assert link.other is not None
        assert node.broker is not None
        assert link.other.directory_id == node.broker.identity.directory_id
        await server.stop()
        await node.stop()

    simulation.run(main(), max_s=300)
