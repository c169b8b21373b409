"""The load generator against a peer that answers in torn and joined pieces, refuses, or goes away."""

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest
from tests.support.waiting import WAIT_S

from logboom.bench.blast import Blast, Window
from logboom.bench.wire import BenchError

FRAME = struct.pack(">i", 1_000) + bytes(1_000)
ERROR_AT = 8


def answer(code: int) -> bytes:
    return struct.pack(">iih", 6 + 4, 0, code) + bytes(4)


@contextmanager
def peer(reply: bytes, each: int, *, ends_after: int = 0) -> Iterator[str]:
    """Answers each request with `reply`, written in pieces of `each` bytes over request and piece borders."""

    def serve(link: socket.socket) -> None:
        got, answered, out = 0, 0, b""
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # else each piece waits for a delayed ACK of 40 ms
        with link, suppress(ConnectionError):  # a run that was refused leaves at once
            while piece := link.recv(65_536):
                got += len(piece)
                while answered < got // len(FRAME):
                    answered += 1
                    out += reply
                if ends_after and answered >= ends_after:
                    return
                while len(out) >= each:
                    link.sendall(out[:each])
                    out = out[each:]
                if out:
                    link.sendall(out)
                    out = b""

    def accept() -> None:
        while True:
            try:
                link, _ = server.accept()
            except OSError:
                return
            threading.Thread(target=serve, args=(link,)).start()

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=accept)
        thread.start()
        try:
            yield f"127.0.0.1:{server.getsockname()[1]}"
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join(WAIT_S)


@pytest.mark.parametrize("each", [1, 3, 14, 15, 100])
@pytest.mark.parametrize("in_flight", [1, 7, 64])
def test_every_answer_is_counted_once_however_it_comes(each: int, in_flight: int) -> None:
    with peer(answer(0), each) as address:
        blast = Blast({address: [FRAME]}, connections=3, error_at=ERROR_AT)
        window = Window(0, 0, requests=200)
        window.over(blast, in_flight)
    assert blast.answered == 200
    measured, _, share = window.measured()
    assert measured == 200
    assert share >= 0


def test_a_refusal_ends_the_run() -> None:
    with peer(answer(45), 14) as address, pytest.raises(BenchError, match="code 45"):
        Blast({address: [FRAME]}, connections=1, error_at=ERROR_AT).run(4, lambda: 100)


def test_a_server_that_goes_away_ends_the_run() -> None:
    with peer(answer(0), 14, ends_after=10) as address, pytest.raises(BenchError, match="closed the connection"):
        Blast({address: [FRAME]}, connections=1, error_at=ERROR_AT).run(4, lambda: 100)


def test_a_broker_that_is_not_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with pytest.raises(BenchError, match="is it running"):
        Blast({f"127.0.0.1:{port}": [FRAME]}, connections=1, error_at=ERROR_AT)


def test_each_address_gets_its_own_requests() -> None:
    with peer(answer(0), 14) as one, peer(answer(0), 14) as other:
        blast = Blast({one: [FRAME], other: [FRAME, FRAME]}, connections=2, error_at=ERROR_AT)
        Window(0, 0, requests=100).over(blast, 8)
    assert blast.answered == 100
