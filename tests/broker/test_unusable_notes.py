"""Notes of a broker that only save it time, on a disk that does not give them back or take them: it goes on."""

import asyncio
import errno
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from tests.broker.node import append, values_of
from tests.broker.replicated import Cluster, cluster_of, until
from tests.support.simulated import run

NOTES = ("clock", "high-watermarks", "scrub")


def fails(code: int, note: str, operation: str, path: str) -> None:
    if path == note or (path == f"{note}.tmp" and operation != "unlink"):
        raise OSError(code, f"{operation} of {path} fails")


def refuses_writes(code: int, note: str, operation: str, path: str) -> None:
    if path == f"{note}.tmp" and operation in {"open", "write", "sync", "rename"}:
        raise OSError(code, f"{operation} of {path} fails")


async def goes_on(cluster: Cluster) -> None:
    """Broker 2 starts, leads, saves its notes for a while, and stops in good order."""
    broker = await cluster.start(2)
    await cluster.in_sync("orders")
    await cluster.elect("orders", 0, 2)
    await until(lambda: cluster.partition(2, "orders").leads, "it leads")
    await append(cluster.leader("orders"), b"b")
    await asyncio.sleep(6)  # marks are saved every five seconds; the time is noted at the start and at the end
    await append(cluster.leader("orders"), b"c")
    assert await values_of(cluster.leader("orders")) == [b"a", b"b", b"c"]
    assert broker.health.log_dir().failure is None
    await cluster.stop(2)


@pytest.mark.parametrize(
    "fault", [partial(fails, errno.EIO), partial(refuses_writes, errno.ENOSPC)], ids=["EIO", "full"]
)
@pytest.mark.parametrize("note", NOTES)
def test_a_broker_goes_on_without_a_note(tmp_path: Path, note: str, fault: Callable[[str, str, str], None]) -> None:
    """`goes_on` fails where it does not start, lead and show what was written."""

    async def body() -> None:
        async with cluster_of(tmp_path, 2, minimum=1) as cluster:
            await cluster.create("orders", [1, 2])
            await append(cluster.leader("orders"), b"a")
            await cluster.in_sync("orders")
            await asyncio.sleep(6)
            await cluster.stop(2)
            cluster.disk(2).fault = partial(fault, note)
            await goes_on(cluster)

    run(body)
