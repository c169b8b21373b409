"""Messages that an ordinary client publishes on NATS, taken by a real broker from a real nats-server."""

import asyncio
import itertools
import json
from collections.abc import Iterator

import nats.errors
import nats.js.errors
import pytest
from nats.aio.msg import Msg
from tests.nats.envelopes import message, sealed
from tests.nats.servers import (
    alter,
    attach,
    delete,
    end,
    metrics,
    needs_nats_server,
    on_a_loop,
    published,
    stored,
    taken,
)
from tests.support.server import BrokerProcess
from tests.support.waiting import WAIT_S, until

import nats

pytestmark = needs_nats_server


def url(broker: BrokerProcess) -> str:
    """Where its publishers connect."""
    address = broker.ready["nats"]
    assert isinstance(address, str)
    return address


@on_a_loop
async def test_messages_are_stored_as_they_are(broker: BrokerProcess) -> None:
    attach(broker.kafka, "plain", "plain.>")
    async with await nats.connect(url(broker)) as client:
        await taken(client, "plain.probe")
        await client.publish("plain.eu.42", b'{"total": 3}', headers={"Trace": "t-1", "Logboom-Key": "k"})
        await client.publish("plain.x", b"")
        await client.publish("plain.x", bytes(range(256)), reply="answers.here")
    _, first, second, third = stored(broker.kafka, "plain", 4)
    assert (first.key, first.value) == (b"k", b'{"total": 3}')
    assert first.header("Trace") == [b"t-1"]
    assert first.header("logboom-subject") == [b"plain.eu.42"]
    assert first.header("logboom-reply") == []
    assert (second.key, second.value, second.header("logboom-subject")) == (None, b"", [b"plain.x"])
    assert (third.value, third.header("logboom-reply")) == (bytes(range(256)), [b"answers.here"])


@on_a_loop
async def test_publishers_of_jetstream_get_their_acks(broker: BrokerProcess) -> None:
    attach(broker.kafka, "acks", "acks.>")
    async with await nats.connect(url(broker)) as client:
        await taken(client, "acks.probe")
        jetstream = client.jetstream()
        ack = await jetstream.publish("acks.a", b"1", timeout=WAIT_S, stream="acks")
        assert (ack.stream, ack.seq, ack.duplicate) == ("acks", 2, None)
        named = {"Nats-Msg-Id": "one"}
        assert (await jetstream.publish("acks.a", b"2", timeout=WAIT_S, headers=named)).seq == 3
        again = await jetstream.publish("acks.b", b"2", timeout=WAIT_S, headers=named)
        assert (again.seq, again.duplicate) == (3, True)
        for headers, number in (
            ({"Nats-Expected-Last-Sequence": "17"}, 10071),
            ({"Nats-Expected-Last-Msg-Id": "two"}, 10070),
            ({"Nats-Expected-Stream": "other"}, 10060),
        ):
            with pytest.raises(nats.js.errors.APIError) as refused:
                await jetstream.publish("acks.a", b"3", timeout=WAIT_S, headers=headers)
            assert refused.value.err_code == number
        fits = {"Nats-Expected-Last-Sequence": "3", "Nats-Expected-Last-Msg-Id": "one"}
        assert (await jetstream.publish("acks.a", b"3", timeout=WAIT_S, headers=fits)).seq == 4
    assert [one.value for one in stored(broker.kafka, "acks", 4)] == [b"probe", b"1", b"2", b"3"]
    assert end(broker.kafka, "acks") == 4


@on_a_loop
async def test_a_window_of_messages_is_acked_in_order(broker: BrokerProcess) -> None:
    attach(broker.kafka, "window", "window")
    async with await nats.connect(url(broker)) as client:
        await taken(client, "window")
        jetstream = client.jetstream(publish_async_max_pending=4_000)
        sent = [await jetstream.publish_async("window", b"%d" % number) for number in range(2_000)]
        acks = await asyncio.wait_for(asyncio.gather(*sent), WAIT_S)
    assert [ack.seq for ack in acks] == list(range(2, 2_002))
    values = [one.value for one in stored(broker.kafka, "window", 2_001)]
    assert values[1:] == [b"%d" % number for number in range(2_000)]


@on_a_loop
async def test_the_longest_payload_and_strange_subjects(broker: BrokerProcess) -> None:
    attach(broker.kafka, "strange", "strange.>")
    async with await nats.connect(url(broker)) as client:
        await taken(client, "strange.probe")
        subjects = ["strange.grün.日本", "strange." + ".".join("t" * 120), "strange." + "x" * 900, "strange.a=b&c/d|e"]
        subjects += ["strange.\v", "strange.\f.a\vb", "strange.\0\x7f\x85\u2028"]
        for subject in subjects:
            assert "seq" in await published(client, subject, subject.encode())
        long = bytes(1_000_000)
        assert (await published(client, "strange.long", long))["seq"] == len(subjects) + 2
        await client.publish("strange.reply", b"", reply="answers.\v.\fhere")
        assert (await published(client, "strange.last", b""))["seq"] == len(subjects) + 4
    *records, replied, _ = stored(broker.kafka, "strange", len(subjects) + 4)[1:]
    assert replied.header("logboom-reply") == [b"answers.\v.\fhere"]
    assert [one.header("logboom-subject") for one in records[:-1]] == [[subject.encode()] for subject in subjects]
    assert records[-1].value == long


@on_a_loop
async def test_no_publisher_has_the_broker_say_what_a_server_refuses(broker: BrokerProcess) -> None:
    """A server ends the connection of whoever publishes on a subject, or with a payload, that is too long for it."""
    attach(broker.kafka, "said", "said")
    before = disconnects(broker)
    async with await nats.connect(url(broker)) as client:
        await taken(client, "said")
        for envelope in (message(b"v", inbox="i" * 5_000), message(b"", inbox="i", correlation="c" * 1_048_000)):
            await client.publish("said", sealed(envelope))
            await client.publish("said", sealed(envelope, crc=True), reply="nobody")
        long = "é" * 200_000
        assert (await published(client, "said", b"x", Nats_Msg_Id=long))["seq"] == 4
        refused = await published(client, "said", b"x", Nats_Expected_Last_Msg_Id="other")
        assert refused["error"] == {"code": 400, "err_code": 10070, "description": f"wrong last msg ID: {'é' * 64}"}
    assert disconnects(broker) == before


def disconnects(broker: BrokerProcess) -> list[str]:
    """How often a connection to NATS was lost, for what."""
    return [line for line in metrics(broker.http).splitlines() if line.startswith("logboom_nats_disconnects_total{")]


@on_a_loop
async def test_a_payload_above_the_streams_limit_is_refused(broker: BrokerProcess) -> None:
    attach(broker.kafka, "short", "short")
    alter(broker.kafka, "short", "max.message.bytes", "1000")
    async with await nats.connect(url(broker)) as client:
        await taken(client, "short")
        refused = await published(client, "short", bytes(2_000))
    assert refused["error"]["err_code"] == 10054


@on_a_loop
async def test_attaching_and_detaching_while_messages_flow(broker: BrokerProcess) -> None:
    attach(broker.kafka, "moving", "before")
    attach(broker.kafka, "both", "after")
    async with await nats.connect(url(broker)) as client:
        await taken(client, "before")
        await taken(client, "after")
        alter(broker.kafka, "moving", "logboom.nats.subjects", "after")
        async with asyncio.timeout(WAIT_S):
            while True:  # `before` has nobody any more
                try:
                    await client.request("before", b"late", timeout=WAIT_S)
                except nats.errors.NoRespondersError:
                    break
        await taken(client, "after")
        await client.publish("after", b"for both")
    assert b"for both" in [one.value for one in stored(broker.kafka, "both", 3)]
    alter(broker.kafka, "both", "logboom.nats.subjects", "")


@on_a_loop
async def test_messages_that_nobody_is_told_of_are_counted(broker: BrokerProcess) -> None:
    attach(broker.kafka, "counted", "counted")
    async with await nats.connect(url(broker)) as client:
        await taken(client, "counted")
        await client.publish("counted", b"x", headers={"Nats-Expected-Last-Sequence": "99"})
        assert (await published(client, "counted", b"y"))["seq"] == 2
    assert 'logboom_nats_dropped_total{reason="wrong_last_offset"} 1.0' in metrics(broker.http)


def balance(broker: BrokerProcess) -> int:
    """How many of the messages that the broker has received are neither stored nor counted as anything else."""
    sums: dict[str, float] = {}
    for line in metrics(broker.http).splitlines():
        name, _, value = line.rpartition(" ")
        if name.startswith("logboom_nats_"):
            kind = name.removeprefix("logboom_nats_").partition("{")[0]
            sums[kind] = sums.get(kind, 0) + float(value)
    known = ("stored", "duplicates", "refused", "dropped", "elsewhere", "unanswered")
    return round(sums["received_total"] - sum(sums.get(f"{kind}_total", 0) for kind in known))


@on_a_loop
async def test_what_comes_for_a_stream_that_was_deleted_is_counted(broker: BrokerProcess) -> None:
    """The counters add up to the received messages: `until` fails otherwise."""
    async with await nats.connect(url(broker)) as client:
        for number in range(3):
            stream = f"deleted-{number}"
            attach(broker.kafka, stream, stream)
            await taken(client, stream)
            deletion = asyncio.create_task(asyncio.to_thread(delete, broker.kafka, stream))
            while not deletion.done():
                for _ in range(20):
                    await client.publish(stream, b"x")
                await client.flush(WAIT_S)
            await deletion
    await asyncio.to_thread(until, lambda: balance(broker) == 0, "each message is stored or counted")


@on_a_loop
async def test_publishers_of_a_stream_that_is_deleted_get_an_answer_each(broker: BrokerProcess) -> None:
    answers: dict[str, str] = {}

    async def answered(one: Msg) -> None:
        answers[one.subject] = (one.headers or {}).get("Status") or one.data.decode()

    async with await nats.connect(url(broker)) as client:
        inbox = client.new_inbox()
        await client.subscribe(f"{inbox}.*", cb=answered)
        sent = 0
        for number in range(3):
            stream = f"gone-{number}"
            attach(broker.kafka, stream, stream)
            await taken(client, stream)
            deletion = asyncio.create_task(asyncio.to_thread(delete, broker.kafka, stream))
            for _ in until_done(deletion):
                for _ in range(100):
                    await client.publish(stream, b"x", reply=f"{inbox}.{sent}")
                    sent += 1
                await client.flush(WAIT_S)
            await deletion
        async with asyncio.timeout(WAIT_S):
            while len(answers) < sent:
                await asyncio.sleep(0.05)
    errors = {answer for answer in answers.values() if "error" in answer}
    assert {json.loads(error)["error"]["description"] for error in errors} <= {"stream not found"}


def until_done(deletion: "asyncio.Task[None]") -> Iterator[int]:
    """Rounds of publishing until a stream is deleted, and one more."""
    yield from itertools.takewhile(lambda _: not deletion.done(), itertools.count())
    yield -1
