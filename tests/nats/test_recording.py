"""Requests to services and their replies, recorded while real clients ask and answer."""

import asyncio

import pytest
from confluent_kafka import KafkaException
from nats.aio.client import Client
from nats.aio.msg import Msg
from tests.nats.servers import Stored, alter, attach, end, metrics, needs_nats_server, on_a_loop, stored
from tests.support.server import BrokerProcess
from tests.support.waiting import WAIT_S

import nats
from logboom.nats.wire.recording import reply_content, request_content
from logboom.records.contents import record_content

pytestmark = needs_nats_server


def record(broker: BrokerProcess, stream: str, services: str, partitions: int = 1) -> None:
    """A stream in which services are recorded, and nothing else."""
    attach(broker.kafka, stream, partitions=partitions, services=services)


async def answering(client: Client, subject: str) -> asyncio.Event:
    """A service that answers with its input in capitals; a request `slow` later than one that comes after it. What it
    gives is set once it has such a request."""
    later: list[Msg] = []
    has_slow = asyncio.Event()

    async def answer(message: Msg) -> None:
        if message.data == b"slow":
            later.append(message)
            has_slow.set()
            return
        await client.publish(message.reply, message.data.upper(), headers={"Answered-By": "upper"})
        for each in later:
            await each.respond(each.data.upper())
        later.clear()

    await client.subscribe(subject, "upper", cb=answer)
    await client.flush()
    return has_slow


async def recorded(broker: BrokerProcess, stream: str, count: int, partitions: int = 1) -> list[Stored]:
    """What is recorded beside probes, partition by partition; waits until it is `count` records."""
    async with asyncio.timeout(WAIT_S):
        while True:
            found: list[Stored] = []
            for index in range(partitions):
                held = await asyncio.to_thread(end, broker.kafka, stream, index)
                found += await asyncio.to_thread(stored, broker.kafka, stream, held, index)
            others = [one for one in found if one.value.lower() != b"probe"]
            if len(others) >= count:
                return others


async def listened_to(broker: BrokerProcess, client: Client, subject: str, stream: str, partitions: int = 1) -> None:
    """Ask until a request is recorded."""
    async with asyncio.timeout(WAIT_S):
        while not sum([await asyncio.to_thread(end, broker.kafka, stream, index) for index in range(partitions)]):
            await client.request(subject, b"probe", timeout=WAIT_S)


def what(one: Stored) -> tuple[bytes, bytes]:
    return one.header("logboom-kind")[0], one.value


@on_a_loop
async def test_requests_and_replies_have_the_reply_subject_as_their_key(broker: BrokerProcess) -> None:
    record(broker, "upper", "upper.*")
    url = str(broker.ready["nats"])
    async with await nats.connect(url) as client, await nats.connect(url) as other:
        has_slow = await answering(other, "upper.>")
        await listened_to(broker, client, "upper.probe", "upper")
        slow = asyncio.create_task(client.request("upper.a", b"slow", timeout=WAIT_S))
        await asyncio.wait_for(has_slow.wait(), WAIT_S)
        quick = await client.request("upper.b", b"quick", timeout=WAIT_S, headers={"Trace": "t-1"})
        assert (quick.data, (await slow).data) == (b"QUICK", b"SLOW")
        await client.publish("upper.c", b"no answer wanted")
        await client.flush()
    first, second, third, fourth, last = await recorded(broker, "upper", 5)
    assert [what(one) for one in (first, second, third, fourth)] == [
        (b"request", b"slow"),
        (b"request", b"quick"),
        (b"reply", b"QUICK"),
        (b"reply", b"SLOW"),
    ]
    assert first.key == fourth.key == first.header("logboom-reply")[0] == fourth.header("logboom-reply")[0]
    assert second.key == third.key != first.key
    assert second.header("Trace") == [b"t-1"]
    assert third.header("Answered-By") == [b"upper"]
    assert [one.header("logboom-subject") for one in (first, third, fourth)] == [
        [b"upper.a"],
        [b"upper.b"],
        [b"upper.a"],
    ]
    assert 0 <= int(third.header("logboom-took-us")[0]) <= int(fourth.header("logboom-took-us")[0])
    assert (last.key, what(last), last.header("logboom-reply")) == (None, (b"request", b"no answer wanted"), [])
    assert "logboom_nats_service_replies_total" in metrics(broker.http)


@on_a_loop
async def test_a_request_and_its_reply_are_in_one_partition(broker: BrokerProcess) -> None:
    record(broker, "spread", "spread.>", partitions=3)
    async with await nats.connect(str(broker.ready["nats"])) as client:
        await answering(client, "spread.>")
        await listened_to(broker, client, "spread.a", "spread", partitions=3)
        asked = 60
        for number in range(asked):
            await client.request("spread.a", b"n%d" % number, timeout=WAIT_S)
    values: dict[bytes, list[bytes]] = {}
    for one in await recorded(broker, "spread", 2 * asked, partitions=3):
        assert one.key is not None
        values.setdefault(one.key, []).append(one.value)
    assert sorted(values.values()) == sorted([b"n%d" % number, b"N%d" % number] for number in range(asked))


@on_a_loop
async def test_recording_ends_with_the_setting(broker: BrokerProcess) -> None:
    """Then a request that nobody answers is told so by the server again."""
    record(broker, "ended", "ended")
    async with await nats.connect(str(broker.ready["nats"])) as client:
        async with asyncio.timeout(WAIT_S):
            while True:
                try:
                    await client.request("ended", b"x", timeout=0.05)
                except nats.errors.NoRespondersError:
                    continue
                except TimeoutError:
                    break  # the broker listens, and does not answer
            alter(broker.kafka, "ended", "logboom.nats.services", "")
            while True:
                try:
                    await client.request("ended", b"x", timeout=0.05)
                except nats.errors.NoRespondersError:
                    break
                except TimeoutError:
                    continue


@pytest.mark.parametrize(
    ("services", "subjects", "replies", "said"),
    [
        ("a.>,a.b", "", "_INBOX.>", "record a message twice"),
        ("a.*", "a.b", "_INBOX.>", "stored twice"),
        ("_INBOX.a", "", "_INBOX.>", "reply would be taken for a request"),
        ("a", "", "*", "reply would be taken for a request"),
    ],
)
def test_what_cannot_be_recorded_is_refused(
    broker: BrokerProcess, services: str, subjects: str, replies: str, said: str
) -> None:
    with pytest.raises(KafkaException, match=said):
        attach(broker.kafka, "refused", subjects, services=services, replies=replies)


def test_headers_that_cannot_be_read_are_kept() -> None:
    """A recorder refuses nothing."""
    assert request_content(b"s", b"", b"no headers", b"x") == record_content(
        None,
        b"x",
        [(b"logboom-damaged-headers", b"no headers"), (b"logboom-kind", b"request"), (b"logboom-subject", b"s")],
    )
    assert reply_content(b"s", b"r", b"NATS/1.0\r\nA: 1\r\nA: 2\r\n\r\n", b"", 5) == record_content(
        b"r",
        b"",
        [
            (b"A", b"1"),
            (b"A", b"2"),
            (b"logboom-kind", b"reply"),
            (b"logboom-took-us", b"5"),
            (b"logboom-reply", b"r"),
            (b"logboom-subject", b"s"),
        ],
    )
