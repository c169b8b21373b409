"""Standard input and sockets: taken means durable, full means block or drop, and nothing a peer sends breaks it."""

import os
import random
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog
from tests.support.waiting import WAIT_S

from logboom.base.units import MIB
from logboom.collector.buffer import DiskBuffer
from logboom.collector.config import (
    BufferConfig,
    BufferedInputConfig,
    Framing,
    MultilineConfig,
    StdinInputConfig,
    UnixDatagramInputConfig,
    UnixStreamInputConfig,
    WhenFull,
)
from logboom.collector.intake import BufferedInput, Intake
from logboom.collector.sources import SocketError
from logboom.host import OsDisk

LOG: Any = structlog.wrap_logger(None, processors=[], wrapper_class=structlog.make_filtering_bound_logger(50))
SMALL = 8 * MIB


class Rig:
    """An intake over one input, its buffer read by the test."""

    def __init__(self, directory: Path, config: BufferedInputConfig, stdin: int = -1) -> None:
        self.buffer = DiskBuffer(
            OsDisk(directory), "buffers/i", config.buffer, reading_from=0, now_ms=1, report=lambda _: None
        )
        self.buffered_input = BufferedInput("i", config, self.buffer)
        self.intake = Intake([self.buffered_input], stdin, LOG, lambda: 1)
        self.intake.open()
        self.intake.start()
        self.values: list[bytes] = []
        self.starts: list[int] = []

    def take(self) -> list[bytes]:
        while (buffered := self.buffer.read()) is not None:
            self.values += buffered.lines.values
            self.starts += buffered.lines.starts
            self.buffer.acknowledge(buffered.next_offset)
            self.buffer.release(buffered.next_offset)
        return self.values

    def wait(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + WAIT_S
        while not condition():
            assert time.monotonic() < deadline, "it never happened"
            time.sleep(0.005)

    def wait_for(self, count: int) -> list[bytes]:
        self.wait(lambda: len(self.take()) >= count)
        return self.values

    def close(self) -> None:
        self.intake.stop()
        self.take()
        self.buffered_input.close_buffer(LOG)


@pytest.fixture
def rigs(tmp_path: Path) -> Iterator[Callable[..., Rig]]:
    made: list[Rig] = []

    def make(config: BufferedInputConfig, stdin: int = -1) -> Rig:
        made.append(Rig(tmp_path / "data", config, stdin))
        return made[-1]

    yield make
    for rig in made:
        rig.close()


def stream_config(tmp_path: Path, **more: Any) -> UnixStreamInputConfig:
    return UnixStreamInputConfig(type="unix_stream", path=str(tmp_path / "s.sock"), **more)


def connect(config: UnixStreamInputConfig) -> socket.socket:
    client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    client.settimeout(WAIT_S)
    client.connect(config.path)
    return client


def test_standard_input_to_its_end(rigs: Callable[..., Rig]) -> None:
    reader, writer = os.pipe()
    rig = rigs(StdinInputConfig(type="stdin"), reader)
    os.write(writer, b"one\r\ntwo\nthr")
    assert rig.wait_for(2) == [b"one", b"two"]
    assert not rig.intake.ended
    os.write(writer, b"ee")
    os.close(writer)
    rig.wait(lambda: rig.intake.ended)
    assert rig.wait_for(3) == [b"one", b"two", b"three"]
    assert rig.starts == [0, 1, 2]
    os.close(reader)


def test_a_regular_file_as_standard_input(rigs: Callable[..., Rig], tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(b"%d\n" * 3 % (1, 2, 3))
    with open(tmp_path / "in", "rb") as file:
        rig = rigs(StdinInputConfig(type="stdin"), file.fileno())
        rig.wait(lambda: rig.intake.ended)
        assert rig.take() == [b"1", b"2", b"3"]


def test_lines_of_connections_are_not_mixed_up(rigs: Callable[..., Rig], tmp_path: Path) -> None:
    config = stream_config(tmp_path, max_connections=2)
    rig = rigs(config)
    clients = [connect(config) for _ in range(3)]
    for client in clients:
        client.sendall(b"half ")
    for number, client in enumerate(clients):
        client.sendall(b"of %d\nand an end" % number)
        client.close()
    values = rig.wait_for(6)
    for number in range(3):
        assert b"half of %d" % number in values
    assert values.count(b"and an end") == 3
    assert rig.buffered_input.lines == 6


def test_octet_counted_frames_and_a_peer_that_breaks_them(rigs: Callable[..., Rig], tmp_path: Path) -> None:
    config = stream_config(tmp_path, framing=Framing.OCTET_COUNTED)
    rig = rigs(config)
    with connect(config) as good, connect(config) as bad:
        good.sendall(b"5 a\nb\nc3 xy")
        bad.sendall(b"2 okwhat is this")
        assert bad.recv(1) == b""
        good.sendall(b"z")
        assert sorted(rig.wait_for(3)) == [b"a\nb\nc", b"ok", b"xyz"]
    assert rig.buffered_input.errors == 1


def test_datagrams(rigs: Callable[..., Rig], tmp_path: Path) -> None:
    config = UnixDatagramInputConfig(type="unix_datagram", path=str(tmp_path / "d.sock"), max_line_bytes=16)
    rig = rigs(config)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as client:
        client.connect(config.path)
        for datagram in (b"one", b"two\n", b"a\nb", b"", b"x" * 40):
            client.send(datagram)
        assert rig.wait_for(5) == [b"one", b"two", b"a\nb", b"", b"x" * 16]
    assert rig.buffered_input.cut == 1


def test_a_stack_trace_on_a_socket_is_one_record(rigs: Callable[..., Rig], tmp_path: Path) -> None:
    config = stream_config(tmp_path, multiline=MultilineConfig(start="[A-Z]", idle_timeout_ms=50))
    rig = rigs(config)
    with connect(config) as client:
        client.sendall(b"Error\n  at x\n  at y\nNext\n")
        assert rig.wait_for(2) == [b"Error\n  at x\n  at y", b"Next"]


def test_a_full_buffer_blocks_the_writer_and_loses_nothing(rigs: Callable[..., Rig], tmp_path: Path) -> None:
    config = stream_config(tmp_path, buffer=BufferConfig(max_bytes=SMALL))
    rig = rigs(config)
    line = b"x" * 99_999 + b"\n"
    with connect(config) as client:
        client.setblocking(False)
        sent = 0

        def push() -> bool:
            nonlocal sent
            try:
                while sent < 20_000_000:
                    sent += client.send(line[sent % len(line) :])
            except BlockingIOError:
                pass
            return not rig.buffered_input.reading

        rig.wait(push)
        assert rig.buffer.fill_bytes <= SMALL
        assert rig.buffered_input.dropped == 0
        rig.wait(lambda: (push(), rig.take(), sent >= 20_000_000)[-1])
    assert len(rig.wait_for(200)) == 200
    assert {len(value) for value in rig.values} == {99_999}


def test_a_full_buffer_drops_the_newest_and_counts_them(rigs: Callable[..., Rig], tmp_path: Path) -> None:
    config = stream_config(tmp_path, buffer=BufferConfig(max_bytes=SMALL, when_full=WhenFull.DROP_NEWEST))
    rig = rigs(config)
    with connect(config) as client:
        for number in range(200):
            client.sendall(b"%d:" % number + b"x" * 100_000 + b"\n")
    rig.wait(lambda: rig.buffered_input.lines + rig.buffered_input.dropped == 200)
    assert rig.buffered_input.dropped > 0
    values = rig.wait_for(rig.buffered_input.lines)
    assert [int(value.partition(b":")[0]) for value in values] == list(range(len(values)))


def test_stopping_takes_what_has_arrived(rigs: Callable[..., Rig], tmp_path: Path) -> None:
    config = stream_config(tmp_path)
    rig = rigs(config)
    with connect(config) as client:
        client.sendall(b"a\nb\nunfinished")
        rig.wait_for(2)
        rig.intake.stop()
    assert rig.take() == [b"a", b"b", b"unfinished"]
    assert not Path(config.path).exists()


def test_a_socket_left_behind_is_replaced_and_one_in_use_is_not(rigs: Callable[..., Rig], tmp_path: Path) -> None:
    config = stream_config(tmp_path)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as owner:
        owner.bind(config.path)
        owner.listen()
        with pytest.raises(SocketError, match="Another process listens"):
            rigs(config)
    rig = rigs(config)
    with connect(config) as client:
        client.sendall(b"a\n")
        assert rig.wait_for(1) == [b"a"]


def test_a_file_where_the_socket_should_be_is_left_alone(rigs: Callable[..., Rig], tmp_path: Path) -> None:
    config = stream_config(tmp_path)
    Path(config.path).write_text("mine")
    with pytest.raises(SocketError, match="is not a socket"):
        rigs(config)
    assert Path(config.path).read_text() == "mine"


@pytest.mark.parametrize("framing", list(Framing))
@pytest.mark.parametrize("seed", [1, 2])
def test_malformed_input_of_many_peers_does_not_affect_the_others(
    rigs: Callable[..., Rig], tmp_path: Path, framing: Framing, seed: int
) -> None:
    """Peers that send anything and go away in the middle; what honest ones sent is all there and in order."""
    config = stream_config(tmp_path, framing=framing, max_line_bytes=1_000)
    rig, chance = rigs(config), random.Random(seed)
    honest, sent = [connect(config) for _ in range(3)], [list[bytes]() for _ in range(3)]
    strangers: list[socket.socket] = []
    for turn in range(300):
        if len(strangers) < 20:
            strangers.append(connect(config))
        stranger = chance.choice(strangers)
        try:
            noise = (chance.randbytes(50), b"99999999999 ", b"\0" * 500, b" ", b"7 ab", b"x" * 3_000)
            stranger.sendall(chance.choice(noise))
        except ConnectionError:
            strangers.remove(stranger)
            stranger.close()
        if chance.random() < 0.1 and strangers:
            strangers.pop().close()
        number = turn % 3
        line = b"honest-%d-%d" % (number, turn)
        sent[number].append(line)
        honest[number].sendall(line + b"\n" if framing is Framing.NEWLINE else b"%d %b" % (len(line), line))
    for one in (*honest, *strangers):
        one.close()
    for number, lines in enumerate(sent):
        prefix = b"honest-%d-" % number
        rig.wait(lambda prefix=prefix, lines=lines: len(ours(rig, prefix)) >= len(lines))  # type: ignore[misc]
        assert ours(rig, prefix) == lines


def ours(rig: Rig, prefix: bytes) -> list[bytes]:
    return [value for value in rig.take() if value.startswith(prefix)]
