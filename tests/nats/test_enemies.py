"""Servers, publishers and peers that lie, or never end what they begin; and a network that does the same."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, TypeAlias
from uuid import UUID

import msgspec
import pytest
import uvloop
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import astuple, replace
from nats.aio.msg import Msg
from pydantic import ValidationError
from structlog.testing import capture_logs
from tests.nats.links import linked, up
from tests.nats.proxy import Proxy
from tests.nats.publisher import Publisher
from tests.nats.servers import (
    NatsServer,
    alter,
    attach,
    end,
    metrics,
    needs_nats_server,
    on_a_loop,
    published,
    stored,
    taken,
)
from tests.support.server import BrokerProcess, free_port
from tests.support.waiting import WAIT_S

import nats
from logboom.base.errors import InvalidRequestError
from logboom.base.units import MIB
from logboom.bench.footprint import memory_bytes
from logboom.nats.config import NatsConfig
from logboom.nats.ingress.handover_messages import (
    Answer,
    Given,
    Question,
    Wanted,
    encode_answers,
    read_answers,
    read_question,
)
from logboom.nats.ingress.holding import HeldMessages, HoldingState
from logboom.nats.link import commands
from logboom.nats.link.frames import Delivery, Run
from logboom.nats.link.servers import ServerPool
from logboom.nats.metrics import NatsMetrics

Serve: TypeAlias = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
"""What a server does once a client has logged in."""


@contextlib.asynccontextmanager
async def lying(serve: Serve, server_id: str = "liar", *, says: str = "") -> AsyncIterator[str]:
    """A server of NATS up to the log-in; its address. `says`: more of what it says of itself, as JSON."""
    served: set[asyncio.Task[None]] = set()

    async def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        served.add(task)
        try:
            also = f'"server_id":"{server_id}"{says and ","}{says}'.encode()
            writer.write(b'INFO {"version":"2.9.10","max_payload":1048576,%b}\r\n' % also)
            await reader.readuntil(b"PING\r\n")
            writer.write(b"PONG\r\n")
            await serve(reader, writer)
        except (OSError, asyncio.IncompleteReadError):
            pass  # the client has ended the connection
        finally:
            writer.close()

    port = free_port()
    server = await asyncio.start_server(accepted, "127.0.0.1", port)
    try:
        yield f"nats://127.0.0.1:{port}"
    finally:
        server.close()
        for task in served:
            task.cancel()
        await asyncio.gather(*served, return_exceptions=True)


@pytest.mark.parametrize("begun", [b"MSG a 1 1000000\r\n", b"HMSG a 1 12 4000000", b"INFO {", b"P"])
@on_a_loop
async def test_half_a_frame_for_ever(begun: bytes) -> None:
    """Bytes drip in, and no frame is ever whole: the pings that are not answered end the connection."""

    async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(begun)
        while True:
            writer.write(b"x")
            await writer.drain()
            await asyncio.sleep(0.01)

    counted = NatsMetrics()
    settings = {"ping_interval_s": 0.2}
    async with lying(drip) as url, linked(counted, servers=[url], **settings), asyncio.timeout(2 * WAIT_S):
        while counted.disconnects["does not answer"] < 2:
            await asyncio.sleep(0.01)


@on_a_loop
async def test_why_a_server_ends_a_connection() -> None:
    """It tells that in an error before: the loss counted as a close without a reason."""

    async def revoke(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"PING\r\n")
        writer.write(b"-ERR 'Permissions Violation for Publish to \"a\"'\r\nPONG\r\n")
        await reader.readuntil(b"PING\r\n")
        writer.write(b"-ERR 'User Authentication Revoked'\r\n")

    counted, lost = NatsMetrics(), list[str]()
    async with lying(revoke) as url, linked(counted, servers=[url], ping_interval_s=0.1) as link:
        link.on_lost = lambda kind, why: lost.append(why)
        async with asyncio.timeout(WAIT_S):
            while not lost:
                await asyncio.sleep(0.01)
    assert lost[0] == "User Authentication Revoked"
    assert counted.disconnects["authentication"]


@pytest.mark.parametrize("max_unsent_bytes", [MIB, 64 * MIB])
@on_a_loop
async def test_a_server_that_reads_nothing_more(max_unsent_bytes: int) -> None:
    """It stands still while much is sent to it: the broker was connected to it for ever, whether it had stopped to read
    because so much was unsent, or waited, to end the connection, until that was sent."""

    async def read_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asyncio.Event().wait()

    counted = NatsMetrics()
    settings = {"ping_interval_s": 0.2, "max_unsent_bytes": max_unsent_bytes}
    async with lying(read_nothing) as url, linked(counted, servers=[url], **settings) as link:
        await up(link)
        for _ in range(16):
            link.send(commands.publish(b"a", b"x" * MIB))
        async with asyncio.timeout(WAIT_S):
            while counted.connections < 2:
                await asyncio.sleep(0.01)
    assert counted.disconnects["does not answer"]


def test_a_server_that_asks_for_tls_and_ends_the_connection() -> None:
    """As nats-server does with one client too many. The loop of a broker began to speak TLS on a connection that was
    ended, and waited for an answer as long as a connection may take."""

    async def end_it(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"INFO {\"tls_required\":true}\r\n-ERR 'maximum connections exceeded'\r\n")
        writer.close()

    async def try_twice() -> None:
        port, counted = free_port(), NatsMetrics()
        async with (
            await asyncio.start_server(end_it, "127.0.0.1", port),
            linked(counted, servers=[f"nats://127.0.0.1:{port}"], connect_timeout_s=2 * WAIT_S),
            asyncio.timeout(WAIT_S),
        ):
            while counted.failed_connections < 2:
                await asyncio.sleep(0.01)

    with capture_logs() as logs:
        uvloop.run(try_twice())
    assert {one["why"] for one in logs} == {"maximum connections exceeded"}


@pytest.mark.parametrize(
    "text", [b"[" * 100_000, b'{"a":' * 30_000, b"[]", b"{", b'{"n":' + b"9" * 5_000 + b"}", b"\xff"]
)
@on_a_loop
async def test_what_a_server_says_of_itself_is_no_object(text: bytes) -> None:
    """The connection is ended with that reason, and another is made."""

    async def tell(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"INFO " + text + b"\r\n")
        await reader.read()

    counted = NatsMetrics()
    with capture_logs() as logs:
        async with lying(tell) as url, linked(counted, servers=[url]), asyncio.timeout(WAIT_S):
            while counted.connections < 2:
                await asyncio.sleep(0.01)
    assert {one["why"] for one in logs if "why" in one} == {"an INFO line that is no JSON object"}


@pytest.mark.parametrize("host", ["a..b", "n" * 64, "\udc80", "a b", "a\0b", "a\x7f"])
def test_servers_of_names_that_no_host_can_have(host: str) -> None:
    """Whoever looks for one is told by an exception of another kind, which ended all attempts to connect: a server told
    of it once, and the broker took nothing more from NATS after its next reconnection."""
    pool = ServerPool(["nats://127.0.0.1:4222"])
    pool.told([f"{host}:4222", f"nats://{host}:4222", "there:4222"], by=pool.next())
    assert {pool.next().host for _ in range(4)} == {"127.0.0.1", "there"}
    with pytest.raises(ValidationError, match="should be addresses such as"):
        NatsConfig(servers=[f"nats://{host}:4222"])


def test_a_server_that_names_hundreds_of_others() -> None:
    """None of them is there: those of the settings have their turn between them, since each takes seconds."""
    pool = ServerPool(["nats://10.0.0.1", "nats://10.0.0.2"])
    first = pool.next()
    pool.told([f"10.0.1.{number}:4222" for number in range(500)], by=first)
    seen = [pool.next().host for _ in range(600)]
    assert all("10.0.0.1" in seen[at : at + 6] and "10.0.0.2" in seen[at : at + 6] for at in range(0, 594, 6))
    assert len(set(seen)) == 2 + 64
    tried = [pool.others(first) for _ in range(16)]
    assert {len(one) for one in tried} == {5}
    assert len({one for some in tried for one in some}) == 1 + 64
    pool.told(["a." * 100_000, "\u00e9." * 100_000, *["x y"] * 1_000, "there:4222"], by=pool.next())
    assert {pool.next().host for _ in range(9)} == {"10.0.0.1", "10.0.0.2"}


@on_a_loop
async def test_what_comes_behind_the_answer_to_a_ping_is_known_to_come_later() -> None:
    """Both come in one read, before anybody who waits for the answer goes on. A leader that hands over a partition, and
    keeps its subscription for others, must not hold what came later."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await reader.readuntil(b"PING\r\n")
            writer.write(b"MSG a 1 6\r\nbefore\r\nPONG\r\nMSG a 1 5\r\nafter\r\n")

    holding = HeldMessages(0)
    holding.state = HoldingState.ENDING
    seen: list[tuple[bytes, HoldingState]] = []

    def arrived(run: Run) -> None:
        seen.extend((one.payload, holding.state) for one in run)

    def ended() -> None:
        holding.state = HoldingState.ENDED

    async with lying(answer) as url, linked(NatsMetrics(), servers=[url]) as link:
        await up(link)
        link.subscribe("a", None, arrived)
        await asyncio.wait_for(link.round_trip(ended), WAIT_S)
        async with asyncio.timeout(WAIT_S):
            while len(seen) < 2:
                await asyncio.sleep(0.01)
    assert seen == [(b"before", HoldingState.ENDING), (b"after", HoldingState.ENDED)]


async def obey(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *also: bytes) -> None:
    """Answer pings, and say something more with each answer."""
    while True:
        await reader.readuntil(b"PING\r\n")
        writer.write(b"PONG\r\n" + b"".join(also))


LEAVING = b'INFO {"server_id":"%b","ldm":true,"connect_urls":["%b"]}\r\n'


def told(server_id: str, other: str) -> bytes:
    """What a server says of itself that leaves, and of another one."""
    return LEAVING % (server_id.encode(), other.removeprefix("nats://").encode())


@on_a_loop
async def test_a_server_that_leaves_again_and_again() -> None:
    """Both say so with each answer, and take it back, and neither goes: the link moves as often as it may, and is up
    all the time."""
    counted, urls = NatsMetrics(), list[str]()

    def server(at: int) -> Serve:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            leaves = told(f"liar{at}", urls[1 - at])
            says = (leaves, leaves.replace(b"true", b"false"), leaves)
            if at == 0 and not counted.moves:  # later with the first answer: nobody moves to one that leaves
                writer.writelines(says)
            await obey(reader, writer, *says)

        return serve

    pause_s = 1.0
    async with lying(server(0), "liar0") as first, lying(server(1), "liar1") as second:
        urls += [first, second]
        async with linked(counted, servers=[first], reconnect_pause_max_s=pause_s) as link:
            await up(link)
            began = asyncio.get_running_loop().time()
            async with asyncio.timeout(WAIT_S):
                while counted.moves < 4:
                    await asyncio.sleep(0.01)
            took_s = asyncio.get_running_loop().time() - began
            assert not counted.disconnects
    assert took_s >= 3 * pause_s


@pytest.mark.parametrize("is_just_connected", [False, True])
@on_a_loop
async def test_a_server_that_leaves_and_learns_of_another_one_later(is_just_connected: bool) -> None:
    """nats-server says that it leaves in one INFO only. Those that it sends later, when others of its cluster come and
    go, were taken for its change of mind: the broker stayed until it was disconnected."""
    counted = NatsMetrics()
    async with lying(obey, "second") as second:

        async def leave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            if not is_just_connected:
                await reader.readuntil(b"PING\r\n")
                writer.write(b"PONG\r\n")
            writer.write(b'INFO {"server_id":"first","ldm":true}\r\n')
            writer.write(told("first", second).replace(b'"ldm":true,', b""))
            await obey(reader, writer)

        settings = {"ping_interval_s": 0.2}
        async with lying(leave, "first") as first, linked(counted, servers=[first], **settings):
            async with asyncio.timeout(WAIT_S):
                while not counted.moves:
                    await asyncio.sleep(0.01)
    assert not counted.disconnects


@on_a_loop
async def test_a_server_that_leaves_while_subscriptions_are_made() -> None:
    """One after the other, as where many leaderships change: the move waited for an end of that, and was given up."""
    counted = NatsMetrics()
    async with lying(obey, "second") as second:

        async def leave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(told("first", second))
            await obey(reader, writer)

        async with lying(leave, "first") as first, linked(counted, servers=[first]) as link:
            await up(link)
            async with asyncio.timeout(WAIT_S):
                while not counted.moves:
                    await link.unsubscribe([link.subscribe("a", None, print)])
                    await asyncio.sleep(0.01)
    assert (counted.connections, counted.failed_connections) == (2, 0)


@on_a_loop
async def test_no_server_is_moved_to_that_leaves_itself() -> None:
    counted, tried, errors = NatsMetrics(), list[int](), list[dict[str, Any]]()
    asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context))

    async def leaving(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tried.append(1)
        await obey(reader, writer)

    async with lying(leaving, "second", says='"ldm":true') as second:

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(told("first", second))
            await obey(reader, writer)

        async with lying(serve, "first") as first, linked(counted, servers=[first]):
            async with asyncio.timeout(WAIT_S):
                while len(tried) < 3:
                    await asyncio.sleep(0.01)
    assert (counted.moves, counted.connections) == (0, 1)
    assert not errors


@on_a_loop
async def test_a_server_that_is_moved_to_and_brings_nothing() -> None:
    """What the leaving one brings meanwhile is remembered, as far as it may be: then the move is given up."""
    counted, arrived, given_up = NatsMetrics(), list[Delivery](), asyncio.Event()

    async def mute(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.read(1 << 16):
            pass
        given_up.set()

    async with lying(mute, "second") as second:

        async def flood(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(told("first", second))
            answering = asyncio.create_task(obey(reader, writer))
            try:
                for number in range(64):
                    if given_up.is_set():
                        break
                    writer.write(b"".join(b"MSG a 1 1000\r\n%0998d%02d\r\n" % (number, at) for at in range(64)))
                    await writer.drain()
                    await asyncio.sleep(0.02)
                await asyncio.Event().wait()
            finally:
                answering.cancel()

        async with lying(flood, "first") as first, linked(counted, servers=[first], max_inflight_bytes=MIB) as link:
            link.subscribe("a", None, arrived.extend)
            await asyncio.wait_for(given_up.wait(), WAIT_S)
    assert len(arrived) < 2_500
    assert counted.moves == 0


@needs_nats_server
@on_a_loop
async def test_no_answer_goes_where_only_the_broker_may_publish(tmp_path: Path) -> None:
    """Publishers name JetStream's own API as their reply subject, or commands in the ack inbox of an envelope."""
    store = f'jetstream {{ store_dir: "{tmp_path}/js" }}'
    with NatsServer(tmp_path, store) as server, BrokerProcess(tmp_path / "data", "--nats", server.url) as broker:
        attach(broker.kafka, "orders", "orders.>")
        alter(broker.kafka, "orders", "max.message.bytes", "1000")
        async with await nats.connect(server.url) as client:
            await client.jetstream().add_stream(name="PRECIOUS", subjects=["precious.>"])
            caught: list[str] = []

            async def heard(message: Msg) -> None:
                caught.append(message.subject)

            await client.subscribe("caught.>", cb=heard)
            await client.subscribe("$JS.API.>", cb=heard)
            await taken(client, "orders.probe")
            for number in range(20):  # one by one, and as a run
                await client.publish("orders.a", b"%d" % number, reply="$JS.API.STREAM.DELETE.PRECIOUS")
            await client.publish("orders.b", b"20", reply="$JS.API.STREAM.DELETE.PRECIOUS", headers={"a": "b"})
            await client.publish("orders.b", bytes(2_000), reply="$JS.API.STREAM.DELETE.PRECIOUS")
            inbox = b"caught.x 0\r\n\r\nPUB caught.y"
            envelope = b"\xb9\x0e\x43\xb4\x01\x08\x00\x00" + b"\x1a\x0221" + b"\x52" + bytes([len(inbox)]) + inbox
            await client.publish("orders.c", envelope)
            assert (await published(client, "orders.d", b"last"))["seq"] == 24
            await client.flush()
            assert (await client.jetstream().stream_info("PRECIOUS")).config.name == "PRECIOUS"
            async with asyncio.timeout(WAIT_S):
                while not caught:  # JetStream may be quicker
                    await asyncio.sleep(0.01)
        assert caught == ["$JS.API.STREAM.INFO.PRECIOUS"]
        records = stored(broker.kafka, "orders", 24)
        assert [one.value for one in records[1:22]] == [b"%d" % number for number in range(21)]
        assert records[22].value == envelope, "it only resembles one"
        assert records[1].header("logboom-reply") == [b"$JS.API.STREAM.DELETE.PRECIOUS"]


GIVEN = Given(True, b"orders.a", b"_INBOX.x", b"", b"1")
ANSWER = Answer([GIVEN], [commands.publish(b"_INBOX.y", b"{}")], [b"0123456789abcdef"])


@pytest.mark.parametrize(
    "lie",
    [
        b"",
        b"\xc1",
        msgspec.msgpack.encode({"given": 1}),
        encode_answers([]),
        encode_answers([ANSWER, ANSWER]),
        encode_answers([replace(ANSWER, given=[GIVEN._replace(subject=b"a b")])]),
        encode_answers([replace(ANSWER, given=[GIVEN._replace(subject=b"")])]),
        encode_answers([replace(ANSWER, given=[GIVEN._replace(reply=b"a 0\r\n\r\nPUB b")])]),
        encode_answers([replace(ANSWER, acks=[b"SUB > 1\r\n"])]),
        encode_answers([replace(ANSWER, acks=[commands.publish(b"a", b"x") + b"SUB > 1\r\n"])]),
        encode_answers([replace(ANSWER, acks=[b"PUB a 5\r\nx\r\n"])]),
    ],
)
def test_a_leader_that_lies_about_what_it_held(lie: bytes) -> None:
    with pytest.raises(InvalidRequestError):
        read_answers(lie, 1)


def test_what_a_newer_program_adds_to_questions_and_answers_is_ignored() -> None:
    """While a cluster is updated. A program of 27 November took an answer of one of the 28th for none: the plain
    messages in it were lost."""
    wanted = Wanted(UUID(int=1), 0, 5, [(4, 0), (5, 10)])
    question = Question("_INBOX.x", [wanted], "server")
    longer = [question.mark, [[*astuple(wanted), "new"]], question.server, "new"]
    assert read_question(msgspec.msgpack.encode(longer)) == question
    assert read_answers(msgspec.msgpack.encode([[*astuple(ANSWER), "new"], None]), 2) == [ANSWER, None]
    assert read_answers(msgspec.msgpack.encode([[[], []]]), 1) == [Answer([], [])], "of an older one"


@given(st.binary(max_size=40), st.integers(0, 200), st.integers(0, 255))
def test_a_changed_answer_is_read_or_refused(tail: bytes, place: int, byte: int) -> None:
    whole = bytearray(encode_answers([ANSWER, None]))
    assert read_answers(whole, 2) == [ANSWER, None]
    whole[place % len(whole)] = byte
    for changed in (bytes(whole), bytes(whole) + tail, bytes(whole[:place])):
        with contextlib.suppress(InvalidRequestError):
            read_answers(changed, 2)


@needs_nats_server
@pytest.mark.slow
@on_a_loop
async def test_a_broker_that_is_cut_off_from_nats_under_load(tmp_path: Path) -> None:
    settings = ("--set", "nats.ping_interval_s=0.3", "--set", "nats.reconnect_pause_max_s=0.2")
    with NatsServer(tmp_path) as server:
        async with Proxy(server.port) as proxy:
            with BrokerProcess(tmp_path / "data", "--nats", proxy.url, *settings) as broker:
                attach(broker.kafka, "orders", "orders.>")
                async with await nats.connect(server.url) as client:
                    await taken(client, "orders.probe")
                    publisher = Publisher(client, "orders.x")
                    running = asyncio.create_task(publisher.run())
                    for _ in range(2):
                        await publisher.after(100)
                        proxy.fall_silent()
                        before = publisher.tried_again.total()
                        async with asyncio.timeout(2 * WAIT_S):
                            while publisher.tried_again.total() == before:
                                await asyncio.sleep(0.05)
                        await proxy.come_back()
                        await publisher.after(100)
                        await proxy.reset()
                    await publisher.after(100)
                    publisher.end()
                    await asyncio.wait_for(running, 2 * WAIT_S)
                assert proxy.connections >= 4
                publisher.check(broker.kafka, "orders")


@needs_nats_server
@pytest.mark.slow
@on_a_loop
async def test_a_hundred_thousand_subjects_in_one_stream(tmp_path: Path) -> None:
    count = 100_000
    with NatsServer(tmp_path) as server, BrokerProcess(tmp_path / "data", "--nats", server.url) as broker:
        attach(broker.kafka, "many", "many.>", key="subject")
        async with await nats.connect(server.url) as client:
            await taken(client, "many.probe")
            before = memory_bytes(broker.pid)
            for number in range(count):
                await client.publish(f"many.{number}.{'x' * 100}", b"%d" % number)
                if number % 1_000 == 0:
                    await client.flush(WAIT_S)
            assert (await published(client, "many.last", b"last"))["seq"] == count + 2
            grown = memory_bytes(broker.pid) - before
        assert end(broker.kafka, "many") == count + 2
        assert grown < 100 * MIB
        assert "logboom_nats_stored_total 100002.0" in metrics(broker.http)
