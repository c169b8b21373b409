"""Strangers and broken bytes on the listener of a broker: closed with a reason, bounded; the others notice nothing."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.peer.servers import KEY, LoggingServer, address, echo, identity, real, servers, until
from tests.support.simulated import run
from tests.support.waiting import WAIT_S

from logboom.base.ids import BrokerId
from logboom.broker.peers import Address, FrameKind, Lane, PeerIdentity, PeerUnavailableError
from logboom.peer.connection import HANDSHAKE_S
from logboom.peer.frames import FrameWriter, What
from logboom.peer.handshake import DiallerHandshake, Introduction
from logboom.peer.inbound import PER_BROKER_MAX, UNAUTHENTICATED_MAX

ONE, TWO, THREE = BrokerId(1), BrokerId(2), BrokerId(3)
Body = Callable[[], Awaitable[None]]

everywhere = pytest.mark.parametrize("on", [run, real], ids=["simulated", "real"])


class Raw:
    """A connection without a server behind it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    async def closed(self) -> bytes:
        """What comes until the other side has closed the connection."""
        got = b""
        with contextlib.suppress(ConnectionError):
            while data := await self.reader.read(100_000):
                got += data
        return got

    async def shake(self, lane: Lane, broker_id: int = 3) -> FrameWriter:
        """Become a broker."""
        own = Introduction(identity(broker_id), Address("nowhere", 0))
        handshake = DiallerHandshake(KEY, own, bytes(32), lane, TWO)
        self.send(handshake.start())
        while handshake.session is None:
            self.send(handshake.received(await self.reader.read(10_000)))
        return FrameWriter(handshake.session.send_key)


@contextlib.asynccontextmanager
async def raw(server: LoggingServer) -> AsyncIterator[Raw]:
    host, port = address(server)
    connection = Raw(*await asyncio.open_connection(host, port))
    try:
        yield connection
    finally:
        connection.writer.transport.abort()
        await asyncio.sleep(0)


async def unharmed(one: LoggingServer, two: LoggingServer) -> None:
    """Another broker is served as before."""
    answer = await one.call(TWO, FrameKind.CONTROL, [b"?"], timeout_s=WAIT_S)
    assert bytes(answer) == b"1 directory-1: ?"


@contextlib.asynccontextmanager
async def pair() -> AsyncIterator[tuple[LoggingServer, LoggingServer]]:
    async with servers(identity(1), identity(2)) as (one, two):
        two.serve(FrameKind.CONTROL, echo)
        await unharmed(one, two)
        yield one, two
        await unharmed(one, two)
        assert one.metrics.lanes[Lane.CONTROL].failed_calls == 0


@everywhere
@pytest.mark.parametrize(
    ("noise", "why"),
    [
        (b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", "this looks like HTTP"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "this looks like TLS"),
        (b"\0\0\0\x16\0\x12\0\x03\0\0\0\x01\0\x05abcde", "this looks like the Kafka protocol"),
        (b"\xff" * 100_000, "does not speak Logboom's protocol between brokers"),
        (b"\0\x10" + b"logboom pear\0..." + b"\0" * 50, "does not speak Logboom's protocol between brokers"),
        (b"\0\x10" + b"logboom peer\0\xff\xff\xff", "introduction cannot be read"),
        (b"\0\x0f" + b"logboom peer\0\xdc\xff", "introduction cannot be read"),
    ],
    ids=["HTTP", "TLS", "Kafka", "ones", "another word", "no list", "a long list"],
)
def test_strangers_are_closed_with_a_reason(on: Callable[[Body], None], noise: bytes, why: str) -> None:
    async def body() -> None:
        async with pair() as (_, two), raw(two) as stranger:
            stranger.send(noise)
            assert await stranger.closed() == b""
            await until(lambda: two.metrics.failed_handshakes == 1)
            assert why in two.logged()[-1]
            assert len(two.lines.calls) == 1

    on(body)


@settings(max_examples=25, deadline=None)
@given(noise=st.binary(min_size=1, max_size=5_000))
def test_any_noise_is_closed_in_the_time_of_a_handshake(noise: bytes) -> None:
    async def body() -> None:
        async with pair() as (_, two), raw(two) as stranger:
            begun_s = asyncio.get_running_loop().time()
            stranger.send(noise)
            assert await stranger.closed() == b""
            assert asyncio.get_running_loop().time() - begun_s < HANDSHAKE_S + 0.1

    run(body, seed=1)


def test_a_handshake_byte_by_byte_ends_in_its_time() -> None:
    async def body() -> None:
        async with pair() as (_, two), raw(two) as stranger:
            hello = DiallerHandshake(
                KEY, Introduction(identity(3), Address("", 0)), bytes(32), Lane.CONTROL, TWO
            ).start()
            begun_s = asyncio.get_running_loop().time()
            with contextlib.suppress(ConnectionError):
                for byte in hello:
                    stranger.send(bytes([byte]))
                    await asyncio.sleep(0.1)
            await stranger.closed()
            assert asyncio.get_running_loop().time() - begun_s <= len(hello) * 0.1 + 1
            assert two.logged() == ["the handshake did not end within 3 s"]

    run(body)


@everywhere
def test_many_connections_that_say_nothing_keep_no_broker_out(on: Callable[[Body], None]) -> None:
    async def body() -> None:
        async with servers(identity(1), identity(2)) as (one, two):
            two.serve(FrameKind.CONTROL, echo)
            async with contextlib.AsyncExitStack() as stack:
                for _ in range(5):
                    for _ in range(UNAUTHENTICATED_MAX):
                        stranger = await stack.enter_async_context(raw(two))
                        stranger.send(b"\0")
                    await unharmed(one, two)
                    assert two.metrics.unauthenticated <= UNAUTHENTICATED_MAX
                    for link in one._links.values():
                        link.reconnect("the test wants a new one")
                await until(lambda: two.metrics.accepted > 5 * UNAUTHENTICATED_MAX)
                assert two.metrics.crowded_out >= 4 * UNAUTHENTICATED_MAX
                assert two.limit_hits()["peer.unauthenticated_connections"] == two.metrics.crowded_out
                assert len(two.lines.calls) <= 2
            await until(lambda: two.metrics.unauthenticated == 0)

    on(body)


def test_connections_of_one_broker_are_bounded() -> None:
    async def body() -> None:
        async with pair() as (_, two), contextlib.AsyncExitStack() as stack:
            brokers = [await stack.enter_async_context(raw(two)) for _ in range(PER_BROKER_MAX + 3)]
            for broker in brokers:
                await broker.shake(Lane.RECORDS)
            for broker in brokers[:3]:
                await broker.closed()
            assert two.metrics.lanes[Lane.RECORDS].connections == PER_BROKER_MAX

    run(body)


@pytest.mark.parametrize(
    ("form", "kind", "why"),
    [
        (What.ANSWER, FrameKind.CONTROL, "kind CONTROL that is of form ANSWER"),
        (What.POST, FrameKind.CONTROL, "kind CONTROL that is of form POST"),
        (What.REQUEST, FrameKind.RAFT, "kind RAFT that is of form REQUEST"),
        (What.REQUEST, FrameKind.FETCH, "kind 3 in lane CONTROL"),
        (What.REQUEST, 77, "kind 77 in lane CONTROL"),
    ],
)
def test_a_broker_that_sends_what_does_not_belong_there_is_cut_off(form: What, kind: int, why: str) -> None:
    async def body() -> None:
        async with pair() as (_, two), raw(two) as broker:
            writer = await broker.shake(Lane.CONTROL)
            broker.send(writer.prefix(form, (), kind=kind))
            await broker.closed()
            assert two.metrics.broken == 1
            assert two.metrics.lanes[Lane.CONTROL].connections == 1
            assert why in two.logged()[0]

    run(body)


class Tap:
    """Somebody on the way between two brokers: records, and may change, what the dialler says."""

    def __init__(self, to: Address) -> None:
        self.to = to
        self.recorded: list[bytearray] = []
        self.change: Callable[[int, bytes], bytes] = lambda position, data: data
        self.change_back: Callable[[bytes], bytes] = lambda data: data
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> Address:
        loop = asyncio.get_running_loop()

        def factory() -> asyncio.StreamReaderProtocol:
            return asyncio.StreamReaderProtocol(asyncio.StreamReader(loop=loop), self._talk, loop=loop)

        self._server = await loop.create_server(factory, "127.0.0.1", 0)
        host, port = self._server.sockets[0].getsockname()
        return Address(str(host), int(port))

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there_reader, there = await asyncio.open_connection(*self.to)
        record = bytearray()
        self.recorded.append(record)

        async def back() -> None:
            await self._copy(there_reader, writer, lambda data: self.change_back(data))

        def forth(data: bytes) -> bytes:
            position = len(record)
            record.extend(data)
            return self.change(position, data)

        task = asyncio.ensure_future(back())
        self._tasks.add(task)
        await self._copy(reader, there, forth)
        await task

    @staticmethod
    async def _copy(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter, change: Callable[[bytes], bytes]
    ) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(1_000):
                writer.write(change(data))
        writer.close()

    def stop(self) -> None:
        self._server.close()


def test_what_was_recorded_on_the_way_is_worth_nothing() -> None:
    async def body() -> None:
        async with pair() as (one, two):
            got: list[bytes] = []
            two.serve_posts(FrameKind.RAFT, lambda who, body: got.append(bytes(body)))
            tap = Tap(address(two))
            one.locate({TWO: await tap.start()})
            for link in one._links.values():
                link.reconnect("the test wants it on another way")
            await until(lambda: one.post(TWO, FrameKind.RAFT, [b"vote"]))
            await until(lambda: got == [b"vote"])
            async with raw(two) as stranger:
                stranger.send(bytes(tap.recorded[-1][:300]))
                with contextlib.suppress(ConnectionError):
                    await stranger.reader.read(1)  # the listener's answer, before which nothing else may be said
                    stranger.send(bytes(tap.recorded[-1]))
                await stranger.closed()
            assert got == [b"vote"]
            assert two.metrics.failed_handshakes == 1
            tap.stop()
            one.locate({TWO: address(two)})

    run(body)


@pytest.mark.parametrize("position", [0, 20, 100, 200])
def test_a_byte_that_is_changed_on_the_way_ends_the_connection_and_a_new_one_is_made(position: int) -> None:
    async def body() -> None:
        async with servers(identity(1), identity(2)) as (one, two):
            two.serve(FrameKind.CONTROL, echo)
            tap = Tap(address(two))
            one.locate({TWO: await tap.start()})
            await unharmed(one, two)
            begin = len(tap.recorded[-1])

            def change(at: int, data: bytes) -> bytes:
                index = begin + position - at
                return data[:index] + bytes([data[index] ^ 1]) + data[index + 1 :] if 0 <= index < len(data) else data

            tap.change = change
            with pytest.raises(PeerUnavailableError):
                await one.call(TWO, FrameKind.CONTROL, [bytes(300)], timeout_s=5)
            tap.change = lambda position, data: data
            await unharmed(one, two)
            assert two.metrics.broken == (1 if position else 0)
            tap.stop()

    run(body)


@pytest.mark.parametrize("seal_records", [False, True])
def test_what_decides_something_is_sealed_and_records_where_that_is_asked_for(seal_records: bool) -> None:
    async def body() -> None:
        async with servers(identity(1), identity(2)) as (one, two):
            two._services.seal_records = seal_records
            parts = [b"d" * 20_000, b"r" * 20_000]

            async def records(who: PeerIdentity, body: memoryview) -> list[bytes]:
                return parts

            two.serve(FrameKind.FETCH, records)
            tap = Tap(address(two))
            one.locate({TWO: await tap.start()})
            tap.change_back = lambda data: data.replace(b"rrrr", b"RRRR", 1)
            try:
                answer = await one.call(TWO, FrameKind.FETCH, [b"?"], timeout_s=WAIT_S)
            except PeerUnavailableError:
                assert seal_records
            else:
                assert not seal_records
                assert bytes(answer[:20_000]) == parts[0]
                assert bytes(answer[20_000:]) != parts[1]
            tap.change_back = lambda data: data.replace(b"dddd", b"DDDD", 1)
            with pytest.raises(PeerUnavailableError):
                await one.call(TWO, FrameKind.FETCH, [b"?"], timeout_s=WAIT_S)
            assert one.metrics.broken == 1 + seal_records
            tap.stop()

    run(body)
