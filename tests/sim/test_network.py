"""Simulated connections: every byte in order, flow control, half close, resets."""

import asyncio
import contextlib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logboom.sim.link_config import LinkConfig
from logboom.sim.process import Process
from logboom.sim.simulation import Simulation

Address = tuple[str, int]


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(1_000):
        writer.write(data)
        await writer.drain()
    writer.close()


async def serve(handler: Any) -> Address:
    """A listener in the process that calls."""
    loop = asyncio.get_running_loop()

    def factory() -> asyncio.StreamReaderProtocol:
        return asyncio.StreamReaderProtocol(asyncio.StreamReader(loop=loop), handler, loop=loop)

    server = await loop.create_server(factory, "there", 0)
    host, port = server.sockets[0].getsockname()
    return str(host), int(port)


async def served(simulation: Simulation, handler: Any) -> tuple[Process, Address]:
    process = simulation.process("server")
    return process, await process.run(serve(handler))


@settings(max_examples=30, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    sizes=st.lists(st.integers(1, 200_000), max_size=5),
    piece_max=st.integers(1, 70_000),
    socket_bytes=st.integers(1, 200_000),
)
def test_all_bytes_arrive_in_order_however_they_are_cut(
    seed: int, sizes: list[int], piece_max: int, socket_bytes: int
) -> None:
    low = max(1, sum(sizes) // 3_000)  # a connection that moves single bytes is tried with few of them
    link = LinkConfig(piece_bytes_min=low, piece_bytes_max=max(piece_max, low), socket_bytes=max(socket_bytes, low))
    simulation = Simulation(seed, link=link)
    sent = b"".join(bytes([n % 256]) * size for n, size in enumerate(sizes, 1))

    async def main() -> bytes:
        _, address = await served(simulation, echo)
        reader, writer = await asyncio.open_connection(*address)

        async def write() -> None:
            at = 0
            for size in sizes:
                writer.write(sent[at : at + size])
                at += size
                await writer.drain()
            writer.write_eof()

        writing = asyncio.ensure_future(write())
        got = await reader.read()
        await writing
        writer.close()
        await writer.wait_closed()
        return got

    assert simulation.run(main()) == sent
    assert simulation.network.links == []


def test_a_reader_that_pauses_stops_the_writer() -> None:
    simulation = Simulation(1, link=LinkConfig(socket_bytes=10_000))
    got = bytearray()

    async def slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(100)
        while data := await reader.read(50_000):
            got.extend(data)
        writer.close()

    async def main() -> None:
        loop = asyncio.get_running_loop()
        _, address = await served(simulation, slow)
        _, writer = await asyncio.open_connection(*address)
        writer.transport.set_write_buffer_limits(high=20_000)
        began_s = loop.time()
        written = 0
        while loop.time() < began_s + 50 and written < 1_000_000:
            writer.write(b"x" * 1_000)
            written += 1_000
            try:
                async with asyncio.timeout(50):
                    await writer.drain()
            except TimeoutError:
                break
        # The reader's own buffer (twice its limit of 64 KiB), the socket, and the writer's buffer.
        assert 128 * 1024 < written < 128 * 1024 + 10_000 + 20_000 + 66_000
        writer.close()
        await writer.wait_closed()
        await asyncio.sleep(200)
        assert len(got) == written

    simulation.run(main())


def test_nobody_listens() -> None:
    async def main() -> None:
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("nowhere", 9092)

    Simulation(1).run(main())


@pytest.mark.parametrize("how", ["cut", "kill", "abort"])
def test_a_broken_connection_is_a_reset_for_the_other_side(how: str) -> None:
    simulation = Simulation(1)
    accepted: list[asyncio.StreamWriter] = []

    async def hold(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        accepted.append(writer)
        with contextlib.suppress(ConnectionResetError):
            await reader.read()
        writer.close()

    async def main() -> None:
        process, address = await served(simulation, hold)
        reader, writer = await asyncio.open_connection(*address)
        await asyncio.sleep(1)
        if how == "cut":
            simulation.network.links[0].cut()
        elif how == "kill":
            process.kill()
        else:
            process.loop.call_soon(accepted[0].transport.abort)
        with pytest.raises(ConnectionResetError):
            await reader.read()
        assert writer.transport.is_closing()
        assert simulation.network.links == []
        if how == "kill":
            with pytest.raises(ConnectionRefusedError):
                await asyncio.open_connection(*address)

    simulation.run(main())


def test_a_closed_server_takes_no_connections_and_its_port_is_free() -> None:
    simulation = Simulation(1)

    async def main() -> None:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(asyncio.Protocol, "here", 9092)
        with pytest.raises(OSError, match="in use"):
            await loop.create_server(asyncio.Protocol, "here", 9092)
        server.close()
        await server.wait_closed()
        with pytest.raises(ConnectionRefusedError):
            await loop.create_connection(asyncio.Protocol, "here", 9092)
        assert (await loop.create_server(asyncio.Protocol, "here", 9092)).is_serving()

    simulation.run(main())


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**32), blocked_s=st.floats(0.01, 30), before=st.integers(0, 3_000))
def test_what_is_sent_while_the_way_is_blocked_arrives_once_and_in_order_afterwards(
    seed: int, blocked_s: float, before: int
) -> None:
    simulation = Simulation(seed)
    sent = bytes(range(256)) * 20

    async def main() -> tuple[bytes, float]:
        _, address = await served(simulation, echo)
        reader, writer = await asyncio.open_connection(*address)
        writer.write(sent[:before])
        simulation.network.split("director", "server")
        writer.write(sent[before:])
        got = b""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(blocked_s):
                got += await reader.readexactly(len(sent))
        assert got == b""
        simulation.network.heal()
        healed_s = asyncio.get_running_loop().time()
        got = await reader.readexactly(len(sent))
        writer.close()
        await writer.wait_closed()
        return got, asyncio.get_running_loop().time() - healed_s

    got, took_s = simulation.run(main())
    assert got == sent
    assert took_s <= 2 * blocked_s + 1


def test_a_blocked_direction_lets_the_other_one_pass_and_loses_resets() -> None:
    simulation = Simulation(3)

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"from there")
        with contextlib.suppress(ConnectionResetError):
            await reader.read()
        ended.append(asyncio.get_running_loop().time())
        writer.close()

    ended: list[float] = []

    async def main() -> None:
        _, address = await served(simulation, talk)
        reader, writer = await asyncio.open_connection(*address)
        simulation.network.block("director", "server")
        assert await reader.readexactly(10) == b"from there"
        writer.transport.abort()
        await asyncio.sleep(60)
        assert not ended
        simulation.network.heal()
        # The other end learns of it only where it sends something itself.
        await asyncio.sleep(60)
        assert not ended

    simulation.run(main())


def test_a_connection_over_a_blocked_way_is_made_once_it_is_open() -> None:
    simulation = Simulation(4)

    async def main() -> None:
        _, address = await served(simulation, echo)
        simulation.network.block("server", "director")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(30):
                await asyncio.open_connection(*address)
        connecting = asyncio.ensure_future(asyncio.open_connection(*address))
        await asyncio.sleep(10)
        assert not connecting.done()
        simulation.network.heal()
        _, writer = await connecting
        writer.close()
        await writer.wait_closed()

    simulation.run(main())


def test_a_process_that_stood_still_reads_at_once_what_arrived_meanwhile() -> None:
    simulation = Simulation(1, link=LinkConfig(piece_bytes_max=10))
    reads: list[int] = []

    class Counts(asyncio.Protocol):
        def data_received(self, data: bytes) -> None:
            reads.append(len(data))

    async def listen() -> None:
        await asyncio.get_running_loop().create_server(Counts, "there", 1)

    async def main() -> None:
        process = simulation.process("server")
        await process.run(listen())
        _, writer = await asyncio.open_connection("there", 1)
        await asyncio.sleep(1)
        process.pause()
        writer.write(bytes(1_000))
        await asyncio.sleep(1)
        process.resume()
        await asyncio.sleep(1)
        writer.close()

    simulation.run(main())
    assert reads == [1_000]
