"""Streams with several partitions, and several streams of one subject: each message is where it belongs, and once."""

import asyncio

from nats.aio.client import Client
from tests.nats.servers import alter, attach, end, grow, metrics, needs_nats_server, on_a_loop, published, stored, taken
from tests.support.server import BrokerProcess
from tests.support.waiting import WAIT_S

import nats

pytestmark = needs_nats_server

COUNT = 60


def values(broker: BrokerProcess, stream: str, partitions: int) -> list[list[bytes]]:
    """What each partition holds, without what `taken` has asked with."""
    found = []
    for index in range(partitions):
        records = stored(broker.kafka, stream, end(broker.kafka, stream, index), index)
        found.append([one.value for one in records if one.value != b"probe"])
    return found


async def publish(client: Client, *subjects: str) -> None:
    """`COUNT` messages for each subject, all acked."""
    await asyncio.gather(
        *(published(client, subject, f"{subject} {number}".encode()) for subject in subjects for number in range(COUNT))
    )


async def connected(broker: BrokerProcess) -> Client:
    return await nats.connect(str(broker.ready["nats"]))


@on_a_loop
async def test_a_partitioner_keeps_what_belongs_together_together(broker: BrokerProcess) -> None:
    attach(broker.kafka, "by-token", "by.*.x", partitions=3, partitioner="token:2")
    async with await connected(broker) as client:
        await taken(client, "by.probe.x")
        subjects = [f"by.{letter}.x" for letter in "abcdefgh"]
        await publish(client, *subjects)
    found = values(broker, "by-token", 3)
    assert sum(map(len, found)) == COUNT * len(subjects)
    for subject in subjects:
        own = [[value for value in each if value.startswith(subject.encode())] for each in found]
        assert sorted(map(len, own)) == [0, 0, COUNT]
    assert sum(1 for each in found if each) > 1


@on_a_loop
async def test_partitions_are_added_while_messages_flow(broker: BrokerProcess) -> None:
    """What is chosen for a new one was dropped as the matter of another broker, until the end of the loop's turn."""
    attach(broker.kafka, "grows", "grows.*", partitioner="token:2")
    async with await connected(broker) as client:
        await taken(client, "grows.probe")
        before, sent, ending = metric(broker, "elsewhere_total"), 0, asyncio.Event()

        async def flow() -> None:
            nonlocal sent
            while not ending.is_set():
                for _ in range(500):
                    await client.publish(f"grows.{sent % 97}", b"%d" % sent)
                    sent += 1
                await taken(client, "grows.probe")  # so that no more than these wait for the broker

        flowing = asyncio.create_task(flow())
        for partitions in range(2, 10):
            goal = sent + 500
            async with asyncio.timeout(WAIT_S):
                while sent < goal:
                    await asyncio.sleep(0.01)
            await asyncio.to_thread(grow, broker.kafka, "grows", partitions)
        ending.set()
        await asyncio.wait_for(flowing, WAIT_S)
        await taken(client, "grows.probe")
    assert metric(broker, "elsewhere_total") == before


def metric(broker: BrokerProcess, name: str) -> float:
    """A metric of the way to NATS."""
    lines = metrics(broker.http).splitlines()
    return sum(float(one.split()[-1]) for one in lines if one.startswith(f"logboom_nats_{name}"))


@on_a_loop
async def test_the_subject_may_say_the_partition(broker: BrokerProcess) -> None:
    attach(broker.kafka, "named", "named.{partition}.>", partitions=3)
    async with await connected(broker) as client:
        for index in range(3):
            await taken(client, f"named.{index}.probe")
        await publish(client, "named.0.a", "named.1.a", "named.2.b.c")
    found = values(broker, "named", 3)
    assert [{value.split()[0] for value in each} for each in found] == [
        {b"named.0.a"},
        {b"named.1.a"},
        {b"named.2.b.c"},
    ]
    assert [len(each) for each in found] == [COUNT] * 3


@on_a_loop
async def test_round_robin_spreads_and_doubles_nothing(broker: BrokerProcess) -> None:
    attach(broker.kafka, "spread", "spread", partitions=3, partitioner="round_robin")
    async with await connected(broker) as client:
        await taken(client, "spread")
        await publish(client, "spread")
    found = values(broker, "spread", 3)
    assert sorted(value for each in found for value in each) == sorted(f"spread {n}".encode() for n in range(COUNT))
    assert sum(1 for each in found if each) > 1


@on_a_loop
async def test_streams_of_a_group_split_the_messages_and_others_get_all(broker: BrokerProcess) -> None:
    attach(broker.kafka, "half-1", "split", group="halves")
    attach(broker.kafka, "half-2", "split", group="halves")
    attach(broker.kafka, "whole", "split")
    async with await connected(broker) as client:
        async with asyncio.timeout(WAIT_S):
            while not all(end(broker.kafka, stream) for stream in ("half-1", "half-2", "whole")):
                await taken(client, "split")
        sent = [b"%d" % number for number in range(COUNT)]
        for payload in sent:
            await client.publish("split", payload)
        await client.flush()
        async with asyncio.timeout(WAIT_S):
            while True:
                first, second, whole = (values(broker, stream, 1)[0] for stream in ("half-1", "half-2", "whole"))
                if len(first) + len(second) >= COUNT and len(whole) >= COUNT:
                    break
                await asyncio.sleep(0.05)
    assert sorted([*first, *second]) == sorted(sent)
    assert first
    assert second
    assert whole == sent


@on_a_loop
async def test_members_of_a_group_come_and_go_while_messages_flow(broker: BrokerProcess) -> None:
    """What the server gave to a member before it heard that the member leaves is stored as well."""
    attach(broker.kafka, "stays", "changing", group="changing")
    attach(broker.kafka, "goes", "changing", group="changing")
    async with await connected(broker) as client:
        async with asyncio.timeout(WAIT_S):
            while not all(end(broker.kafka, stream) for stream in ("stays", "goes")):
                await taken(client, "changing")
        sent, ending = 0, asyncio.Event()

        async def flow() -> None:
            nonlocal sent
            while not ending.is_set():
                for _ in range(20):
                    await client.publish("changing", b"%d" % sent)
                    sent += 1
                await client.flush(WAIT_S)
                await asyncio.sleep(0.002)

        flowing = asyncio.create_task(flow())
        for subjects in ("", "changing", "", "changing"):
            before = end(broker.kafka, "goes")
            await asyncio.to_thread(alter, broker.kafka, "goes", "logboom.nats.subjects", subjects)
            async with asyncio.timeout(WAIT_S):
                while subjects and end(broker.kafka, "goes") == before:
                    await asyncio.sleep(0.02)
        await asyncio.to_thread(alter, broker.kafka, "goes", "logboom.nats.subjects", "")
        ending.set()
        await asyncio.wait_for(flowing, WAIT_S)
        await taken(client, "changing")  # the last of them is stored before this one
        found = [value for stream in ("stays", "goes") for value in values(broker, stream, 1)[0]]
    assert sorted(found, key=int) == [b"%d" % number for number in range(sent)]
