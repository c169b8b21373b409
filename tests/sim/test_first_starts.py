"""The first start of a broker, ended at any of its changes of the disk: the next one comes up, in the same cluster."""

import asyncio
from random import Random

import pytest
from tests.sim.last_change import LastChange, stands_still
from tests.support.thoroughness import TURN, part

from logboom.base.errors import LogboomError
from logboom.base.ids import BrokerId
from logboom.broker.disk.data_dir import DataDirError
from logboom.sim.disk import SimDisk
from logboom.sim.loop import SimLoop
from logboom.sim.node import SimNode
from logboom.sim.simulation import Simulation

_TURNS = 40
"""Of a founding, a first start and a join, in which some 60, 140 and 190 changes are made."""


class Ended(BaseException):
    """The process ends here."""


def ends(node: SimNode, last: LastChange) -> None:
    """End the next process of a node with its last change: a thread of it stands still there, until it is killed."""
    serve = node.device.serve

    def serve_until(disk: SimDisk, loop: SimLoop) -> None:
        serve(disk, loop)
        stands_still(disk, last)

    node.device.serve = serve_until  # type: ignore[method-assign]


async def start_until(node: SimNode, last: LastChange) -> bool:
    """Start a node that ends with a change; False where it made fewer."""
    serve = node.device.serve
    ends(node, last)
    starting = asyncio.ensure_future(node.start())
    for _ in range(10_000):
        if last.is_there:
            break
        await asyncio.sleep(0.001)
    node.device.serve = serve  # type: ignore[method-assign]
    if not last.is_there:
        last.never_comes()
        await starting
        return False
    node.kill()
    await asyncio.gather(starting, return_exceptions=True)
    return True


def after(node: SimNode, *, power: bool, chance: int) -> None:
    """What is on its disk once its power has failed, or only its process was killed."""
    if power:
        node.disk = node.disk.power_cut(Random(chance))


async def serve_together(first: SimNode, second: SimNode) -> None:
    """Both are brokers of one cluster, active, and hold a stream together."""
    assert first.broker is not None
    assert second.broker is not None
    assert first.process is not None
    assert first.broker.identity.cluster_id == second.broker.identity.cluster_id
    state = first.broker.cluster.state
    async with asyncio.timeout(60):
        while not all(state.image.is_active(BrokerId(one)) for one in (1, 2)):
            await asyncio.sleep(0.1)
        making = first.broker.catalog.create_stream("s", config={"min.insync.replicas": "2"}, assignments=((2, 1),))
        await first.process.run(making)
    assert sorted(state.image.brokers) == [1, 2]


def two_nodes(simulation: Simulation) -> tuple[SimNode, SimNode]:
    second = SimNode(simulation, "n2", broker={"broker_id": 2, "join": ["n1:9192"]}, peer={})
    return SimNode(simulation, "n1", broker={"broker_id": 1}, peer={}), second


@pytest.mark.parametrize("power", [False, True], ids=["kill", "power"])
@pytest.mark.parametrize("which", ["first", "second"])
def test_a_first_start_that_ended_anywhere_is_made_up_for_by_the_next(which: str, power: bool) -> None:
    """`serve_together` fails where the two do not come up in one cluster."""

    async def live(simulation: Simulation, changes_max: int) -> None:
        first, second = two_nodes(simulation)
        first.found_cluster()
        ended = first
        if which == "second":
            await first.start()
            ended = second
        if await start_until(ended, LastChange(changes_max)):
            after(ended, power=power, chance=changes_max)
            await ended.start()
        if which == "first":
            await second.start()
        await serve_together(first, second)

    for changes_max in part(200, TURN, _TURNS):
        simulation = Simulation(changes_max)
        simulation.run(live(simulation, changes_max), max_s=300)


@pytest.mark.parametrize("power", [False, True], ids=["kill", "power"])
@pytest.mark.parametrize("again", [False, True], ids=["started", "founded again"])
def test_a_founding_that_ended_anywhere_is_completed_or_refused_with_what_to_do(again: bool, power: bool) -> None:
    """Once there is an identity, a start completes it, too; before that nothing founds but the command."""

    def found(node: SimNode, last: LastChange) -> None:
        def fault(operation: str, path: str) -> None:
            if last.comes(operation):
                raise Ended

        node.disk.fault = fault
        node.found_cluster()

    async def live(simulation: Simulation, changes_max: int) -> None:
        first, second = two_nodes(simulation)
        last = LastChange(changes_max)
        try:
            found(first, last)
        except Ended:
            first.disk = first.disk.after_kill()
            after(first, power=power, chance=changes_max)
        first.disk.fault = lambda operation, path: None
        had_identity = first.disk.exists("node.json")
        if again:
            refused = ""
            try:
                first.found_cluster()
            except DataDirError as error:
                refused = str(error)
            assert not refused or ("belongs to cluster" in refused and "start it" in refused)
        elif not had_identity:
            with pytest.raises(LogboomError, match="run this command once, on its first broker only: logboom cluster"):
                await first.start()
            return
        await first.start()
        await second.start()
        await serve_together(first, second)

    for changes_max in part(60, TURN, _TURNS // 4):
        simulation = Simulation(changes_max)
        simulation.run(live(simulation, changes_max), max_s=300)
