"""Bits that flip on the disk of one broker of three while it is down: it mends what it has from the others, or ends its
start with a sentence that says what to do. Nobody is ever shown anything else than what was written.

https://jepsen.io/analyses/nats-2.12.1 flipped bits in the files of a node: acked messages were lost on all nodes.
Brokers are real ones with simulated disks.
"""

import re
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from random import Random

import pytest
from tests.broker.node import append, values_of
from tests.broker.replicated import Cluster, bytes_of, cluster_of, until
from tests.support.simulated import machine, run

from logboom.base.errors import LogboomError
from logboom.sim.disk import SimDisk, settled

FLIPS = 6
VALUES = [b"%02d" % number * 750 for number in range(20)]
JOIN_ANEW = "remove (it|this broker) from its cluster, empty its data directory, and let it join again"
BACKUP = "Restore it from a backup"
ID = f"{BACKUP}|registered with another data directory|{JOIN_ANEW}|belongs to broker|was made for"


@dataclass(frozen=True)
class Case:
    """Files of one kind, and what a start may say of a bit that flipped in one of them; None: nothing, it starts."""

    files: str
    sentence: str | None = None


CASES = {
    "a segment": Case("streams/orders-0/*.log"),
    "an index": Case("streams/orders-0/*.index"),
    "a snapshot of producers": Case("streams/orders-0/*.producers"),
    "the note of the durable end": Case("streams/orders-0/durable-end"),
    "the leader epochs": Case("streams/orders-0/leader-epochs"),
    "whose directory it is": Case("streams/orders-0/owner.json"),
    "the high-water marks": Case("high-watermarks"),
    "how far scrubbing was": Case("scrub"),
    "what time it was": Case("clock"),
    "term and vote": Case("metadata/raft/hard-state"),
    "the log of the metadata": Case("metadata/raft/log-*/*.log", JOIN_ANEW),
    "notes on that log": Case("metadata/raft/log-*/[dl]*", JOIN_ANEW),
    "the snapshot of the metadata": Case("metadata/raft/snapshot", JOIN_ANEW),
    "the note of a clean end": Case("metadata/clean-shutdown"),
    "the notes of earlier processes": Case("metadata/incarnations"),
    "the version of the format": Case("format.json", BACKUP),
    "who the broker is": Case("node.json", ID),
}


def files_of(disk: SimDisk, pattern: str) -> list[str]:
    return [name for name, node in sorted(disk.nodes.items()) if node.data and fnmatch(name, pattern)]


def flip(disk: SimDisk, name: str, bit: int) -> None:
    data = bytearray(disk.nodes[name].data)
    data[bit // 8] ^= 1 << bit % 8
    disk.nodes[name] = settled(data)


async def a_life(cluster: Cluster) -> None:
    """Records in several segments, and metadata with a snapshot and a log behind it."""
    await cluster.create("orders", (1, 2, 3), segment_bytes="16384")
    for number, value in enumerate(VALUES):
        await append(cluster.leader("orders"), value, producer=(7, 0, number))
    for number in range(10):
        await cluster.create(f"more-{number}", (1, 2, 3))
    await cluster.in_sync("orders")
    await until(lambda: cluster[2].counters.scrubbed_bytes > 0, "it has scrubbed")
    await until(lambda: bool(files_of(cluster.disk(2), "high-watermarks")), "marks are saved")


async def everything_is_right(cluster: Cluster) -> None:
    """All copies become the same, in sync, and hold what was written; by then broker 2 has scrubbed its own."""
    runtime, _ = machine()
    now_ms, scrubber = runtime.clock.wall_ms(), cluster[2].scrubber
    # A pass that an earlier process began goes on behind the place that was changed meanwhile.
    await until(lambda: scrubber.state.began_ms > now_ms, "a pass begins")
    began_ms = scrubber.state.began_ms
    await until(lambda: scrubber.state.last_ended_ms > began_ms, "what is damaged is found")

    def alike() -> bool:
        logs = [cluster.partition(one, "orders").log for one in (1, 2, 3)]
        return logs[1].log_end_offset == len(VALUES) and len({bytes_of(log) for log in logs}) == 1

    await until(alike, "all copies are the same")
    await cluster.in_sync("orders")
    await until(lambda: cluster.partition(2, "orders").high_watermark == len(VALUES), "it knows what is committed")
    assert await values_of(cluster.partition(2, "orders")) == VALUES


async def refusal_of_start(cluster: Cluster) -> str | None:
    """Start broker 2; what it says of what it cannot use, if anything."""
    try:
        broker = await cluster.start(2)
    except LogboomError as error:
        cluster.network.leave(2)
        return str(error)
    failed = broker.replicas.failed
    if failed:
        await cluster.stop(2)
    return next(map(str, failed.values()), None)


async def flips(cluster: Cluster, case: Case, chance: Random) -> None:
    for _ in range(FLIPS):
        await cluster.stop(2)
        disk = cluster.disk(2)
        name = chance.choice(files_of(disk, case.files))
        bit = chance.randrange(8 * len(disk.nodes[name].data))
        flip(disk, name, bit)
        said = await refusal_of_start(cluster)
        if said is not None:
            assert case.sentence is not None, f"bit {bit} of {name}: {said}"
            assert re.search(case.sentence, said), f"bit {bit} of {name}: {said}"
            flip(disk, name, bit)
            await cluster.start(2)
        await everything_is_right(cluster)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_a_bit_that_flipped_while_a_broker_was_down(tmp_path: Path, case: Case) -> None:
    """`flips` asserts after each start that the damage is found and repaired, and that nothing else is read."""

    async def body() -> None:
        settings = {"scrubber": {"interval_ms": 1_000}, "metadata_snapshot_records": 5}
        async with cluster_of(tmp_path, 3, **settings) as cluster:
            await a_life(cluster)
            await flips(cluster, case, Random(case.files))

    run(body)
