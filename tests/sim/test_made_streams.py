"""Streams that a client was told are made, or deleted: what is not so at the end is called wrong."""

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

from tests.sim.nodes import connected, on_node

from logboom.kafka.wire.messages import milliseconds
from logboom.sim.client import SimClient
from logboom.sim.history import History
from logboom.sim.made_streams import MadeStreams
from logboom.sim.node import SimNode
from logboom.sim.simulation import Simulation

RUN_S = 1.0
Prepare = Callable[[SimClient], Awaitable[Any]]


def violations_after(meanwhile: Prepare) -> list[str]:
    """What is wrong at the end of a run with a node, where somebody else does something before that."""
    history = History()

    async def body(node: SimNode, _: Simulation) -> None:
        client = await connected(node)

        async def attempt(work: Prepare) -> bool:
            await work(client)
            return True

        made = MadeStreams(attempt, 1, {})
        await made.run(Random(1), asyncio.get_running_loop().time() + RUN_S)
        assert not made.is_checked
        await meanwhile(client)
        await made.check_there(client, history)
        client.close()
        assert made.is_checked

    on_node(body)
    return history.violations


def test_what_was_made_is_there_and_what_was_deleted_is_not() -> None:
    assert violations_after(lambda _: asyncio.sleep(0)) == []


def test_what_is_gone_that_was_made_is_told() -> None:
    async def lose(client: SimClient) -> None:
        names = tuple(f"flapped-{number}" for number in range(1, 50))
        await client.ask((20, 3), topic_names=names, timeout=milliseconds(1_000))

    found = violations_after(lose)
    assert len(found) > 1
    assert all("has 0 of" in one for one in found)


def test_what_is_there_that_was_deleted_is_told() -> None:
    async def bring_back(client: SimClient) -> None:
        for number in range(1, 50):
            await client.create_stream(f"flapped-{number}", 5, {})

    found = violations_after(bring_back)
    assert len(found) > 1
    assert all(one.endswith("was deleted, and is there") for one in found)
