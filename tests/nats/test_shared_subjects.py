"""Several streams take one subject: each stores or refuses a message by itself, and answers for itself."""

import json
from pathlib import Path
from typing import Any

from nats.aio.client import Client
from tests.nats.envelopes import fields, message, sealed
from tests.nats.servers import NatsServer, alter, attach, end, metrics, needs_nats_server, on_a_loop, stored, taken
from tests.support.server import BrokerProcess
from tests.support.waiting import WAIT_S

import nats

pytestmark = needs_nats_server


async def attached(broker: BrokerProcess, client: Client, stream: str, subject: str, ack: str = "commit") -> None:
    """A stream on a subject that others take too; returns once it is subscribed. Its first record is `probe`."""
    own = f"{subject}-own.{stream}"  # of one stream, a broker subscribes to the subjects in their order
    attach(broker.kafka, stream, subject, own, ack=ack)
    await taken(client, own)


async def answers(client: Client, subject: str, payload: bytes, count: int, **headers: str) -> list[dict[str, Any]]:
    """So many answers to a message, by the streams that give them. Those of one stream come in its order."""
    inbox = client.new_inbox()
    listening = await client.subscribe(inbox)
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    await client.publish(subject, payload, reply=inbox, headers=names or None)
    found = [json.loads((await listening.next_msg(WAIT_S)).data) for _ in range(count)]
    await listening.unsubscribe()
    return sorted(found, key=lambda answer: str(answer["stream"]))


@on_a_loop
async def test_each_stream_that_refuses_a_message_tells_its_publisher(broker: BrokerProcess) -> None:
    async with await nats.connect(str(broker.ready["nats"])) as client:
        for stream in ("first", "second"):
            await attached(broker, client, stream, "joint")
            alter(broker.kafka, stream, "max.message.bytes", "1000")
        both = await answers(client, "joint", bytes(2_000), 2)
        assert [(one["stream"], one["seq"], one["error"]["err_code"]) for one in both] == [
            ("first", 0, 10054),
            ("second", 0, 10054),
        ]
        assert [end(broker.kafka, stream) for stream in ("first", "second")] == [1, 1]
        assert await answers(client, "joint", b"fits", 2) == [
            {"stream": "first", "seq": 2},
            {"stream": "second", "seq": 2},
        ]


@on_a_loop
async def test_what_one_stream_refuses_another_stores(broker: BrokerProcess) -> None:
    async with await nats.connect(str(broker.ready["nats"])) as client:
        for stream in ("narrow", "wide"):
            await attached(broker, client, stream, "mixed")
        alter(broker.kafka, "narrow", "max.message.bytes", "1000")
        refused, acked = await answers(client, "mixed", bytes(2_000), 2)
    assert (refused["stream"], refused["error"]["err_code"]) == ("narrow", 10054)
    assert acked == {"stream": "wide", "seq": 2}
    assert end(broker.kafka, "narrow") == 1
    assert stored(broker.kafka, "wide", 2)[1].value == bytes(2_000)


@on_a_loop
async def test_a_stream_without_acks_does_not_tell_of_refusals_either(broker: BrokerProcess) -> None:
    """Whoever expects one of the streams gets the answer of that one, and not the other's `wrong stream`."""
    async with await nats.connect(str(broker.ready["nats"])) as client:
        await attached(broker, client, "payments", "paid")
        await attached(broker, client, "silent", "paid", ack="none")
        inbox = client.new_inbox()
        listening = await client.subscribe(f"{inbox}.*")
        await client.publish("paid", b"1", reply=f"{inbox}.1", headers={"Nats-Expected-Stream": "payments"})
        await client.publish("paid", b"2", reply=f"{inbox}.2", headers={"Logboom-Ack": "leader"})
        # The broker answers over one connection, refusals at once: they come before the two acks of the second message.
        got = [await listening.next_msg(WAIT_S) for _ in range(3)]
    found = sorted((one.subject.removeprefix(inbox), one.data) for one in got)
    assert found == [
        (".1", b'{"stream":"payments","seq":2}'),
        (".2", b'{"stream":"payments","seq":3}'),
        (".2", b'{"stream":"silent","seq":2}'),
    ]
    assert 'logboom_nats_dropped_total{reason="wrong_stream"} 1.0' in metrics(broker.http)


@on_a_loop
async def test_a_refused_envelope_is_answered_as_it_asks_or_not_at_all(broker: BrokerProcess) -> None:
    async with await nats.connect(str(broker.ready["nats"])) as client:
        await attached(broker, client, "letters", "posted")
        inbox = client.new_inbox()
        listening = await client.subscribe(f"{inbox}.*")
        rollup = {"Nats-Rollup": "all"}
        for number, policy in enumerate((2, 1)):
            body = message(b"v", inbox=f"{inbox}.{number}", correlation=str(number), policy=policy)
            await client.publish("posted", sealed(body), reply=f"{inbox}.plain", headers=rollup)
        # Refusals are sent at once and in their order, so that nothing of the first one can still come.
        got = await listening.next_msg(WAIT_S)
        await client.publish("posted", b"a plain message", reply=f"{inbox}.last")
        last = await listening.next_msg(WAIT_S)
    told = dict(fields(got.data[8:]))
    assert (got.subject, told[6], told[10]) == (f"{inbox}.1", b"1", 1), "an error in Liftbridge's words"
    assert (last.subject, last.data) == (f"{inbox}.last", b'{"stream":"letters","seq":2}')


@on_a_loop
async def test_a_stream_of_jetstream_answers_as_well(tmp_path: Path) -> None:
    """Each stores a message, and says so in its own name."""
    store = f'jetstream {{ store_dir: "{tmp_path}/js" }}'
    with NatsServer(tmp_path, store) as server, BrokerProcess(tmp_path / "data", "--nats", server.url) as broker:
        async with await nats.connect(server.url) as client:
            await attached(broker, client, "here", "joint")
            await client.jetstream().add_stream(name="THERE", subjects=["joint"])
            assert await answers(client, "joint", b"1", 2) == [
                {"stream": "THERE", "seq": 1},
                {"stream": "here", "seq": 2},
            ]
            there, here = await answers(client, "joint", b"2", 2, Nats_Expected_Stream="here")
            assert (there["error"]["err_code"], here["seq"]) == (10060, 3)
        assert [one.value for one in stored(broker.kafka, "here", 3)][1:] == [b"1", b"2"]
