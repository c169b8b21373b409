"""The memory of message ids of a whole broker is bounded, and so is what a new leader reads for them."""

import asyncio
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tests.broker.messages import Message, outcomes, publish, publish_soon
from tests.broker.node import running
from tests.support.simulated import run

from logboom.base.dynamic import Current
from logboom.base.ids import Offset
from logboom.base.units import MIB
from logboom.broker.broker import Broker
from logboom.broker.config import BrokerConfig
from logboom.broker.metrics import Counters
from logboom.broker.partition.id_memory import IdMemory
from logboom.broker.partition.id_window import IdWindow
from logboom.broker.partition.replica import Partition
from logboom.host import SystemClock

IDS_OF_A_MEBIBYTE = 5_000
SMALL: dict[str, Any] = {"message_ids": {"memory_bytes": MIB, "reload_max_bytes": MIB}}


async def streams(broker: Broker, *names: str) -> list[Partition]:
    for name in names:
        await broker.catalog.create_stream(name)
    return [broker.replicas.find(name, 0) for name in names]


def messages(first: int, count: int, size_bytes: int = 10) -> list[Message]:
    """Messages with ids that begin with their number."""
    return [Message(bytes(size_bytes), id=b"%d-" % number + bytes(30)) for number in range(first, first + count)]


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(1, 400), st.booleans()), max_size=40))
def test_windows_take_no_more_than_all_may(steps: list[tuple[int, int, bool]]) -> None:
    config, clock, counters = Current(BrokerConfig(message_ids={"memory_bytes": MIB})), SystemClock(), Counters()  # type: ignore[arg-type]
    memory = IdMemory(config, clock, counters)
    windows = {f"owner {n}": IdWindow(Offset(0), 1e9, 10**9, memory.generation_bytes_max) for n in range(5)}
    noted, lent = 0, set[str]()
    for place, tens, lends in steps:
        owner = f"owner {place}"
        window = windows[owner]
        for _ in range(10 * tens):
            window.note(b"%d" % noted, window.end, clock.monotonic_s())
            window.extend(Offset(window.end + 1), clock.monotonic_s())
            noted += 1
        memory.grown(owner, window)
        lent.discard(owner)
        if lends:
            memory.lend(owner)
            lent.add(owner)
        assert memory.held_bytes == sum(one.size_bytes for one in windows.values())
        lent_bytes = sum(windows[one].size_bytes for one in lent)
        assert memory.held_bytes <= max(MIB, lent_bytes) or memory.held_bytes - lent_bytes <= MIB
    assert counters.message_ids_forgotten + sum(map(len, windows.values())) == noted
    for owner in windows:
        memory.released(owner)
        memory.released(owner)
    assert memory.held_bytes == 0


def test_the_biggest_window_forgets_its_oldest_ids(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path, **SMALL) as broker:
            small, big = await streams(broker, "small", "big")
            assert await publish(broker, small, *messages(0, 200)) == list(range(200))
            for first in range(0, 2 * IDS_OF_A_MEBIBYTE, 1_000):
                await publish(broker, big, *messages(first, 1_000))
                assert broker.id_memory.held_bytes <= MIB
            assert broker.counters.message_ids_forgotten > IDS_OF_A_MEBIBYTE
            assert await publish(broker, small, *messages(0, 2)) == [-1, -2]
            assert await publish(broker, big, *messages(2 * IDS_OF_A_MEBIBYTE - 1, 1)) == [-2 * IDS_OF_A_MEBIBYTE]
            assert await publish(broker, big, *messages(0, 1)) == [2 * IDS_OF_A_MEBIBYTE]
            await broker.catalog.delete_stream("big")
            assert broker.id_memory.held_bytes < MIB // 10

    run(body)


def test_messages_wait_for_no_window_that_was_shrunk_while_it_was_read(tmp_path: Path) -> None:
    """Several logs are read side by side, and together they hold more ids than may be."""
    names = ("a", "b", "c", "d")

    async def body() -> None:
        async with running(tmp_path) as broker:
            for partition in await streams(broker, *names):
                await publish(broker, partition, *messages(0, IDS_OF_A_MEBIBYTE))
        async with running(tmp_path, **SMALL) as broker:
            partitions = [broker.replicas.find(name, 0) for name in names]
            soon = [publish_soon(broker, one, *messages(IDS_OF_A_MEBIBYTE - 1, 2)) for one in partitions]
            for published in await asyncio.gather(*soon):
                assert outcomes(published)[-1] in (IDS_OF_A_MEBIBYTE, IDS_OF_A_MEBIBYTE + 1)
            assert broker.id_memory.held_bytes <= MIB
            assert broker.counters.message_ids_forgotten > 0

    run(body)


def test_a_new_leader_reads_only_so_many_bytes_for_ids(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path) as broker:
            (partition,) = await streams(broker, "s")
            for first in range(0, 400, 20):
                await publish(broker, partition, *messages(first, 20, 10_000))  # 4 MB
        async with running(tmp_path, **SMALL) as broker:
            partition = broker.replicas.find("s", 0)
            assert await publish(broker, partition, *messages(399, 1)) == [-400]
            assert await publish(broker, partition, *messages(0, 1)) == [400]
            assert 0 < broker.counters.message_ids_read_bytes <= MIB + 300_000
            assert broker.counters.message_ids_reloads_cut == 1

    run(body)
