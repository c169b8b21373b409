"""The HTTP door's server: bounded whatever its peers do."""

import http.client
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from typing import Any

import pytest

from logboom.base.settings import split_address
from logboom.http.server import BoundedServer

WAIT_S = 10


@pytest.fixture
def gate() -> threading.Event:
    return threading.Event()


@pytest.fixture
def server(gate: threading.Event) -> Iterator[BoundedServer]:
    def app(environ: dict[str, Any], start_response: Callable[..., Any]) -> list[bytes]:
        if environ["PATH_INFO"] == "/wait":
            gate.wait(WAIT_S)
        start_response("200 OK", [("Content-Type", "text/plain")])
        return [b"hello"]

    running = BoundedServer("127.0.0.1:0", app, max_connections=2, request_timeout_s=1.0)
    running.start()
    yield running
    gate.set()
    running.stop()


def ask(server: BoundedServer, method: str, path: str) -> tuple[int, bytes]:
    with closing(http.client.HTTPConnection(*split_address(server.address), timeout=WAIT_S)) as connection:
        connection.request(method, path)
        answer = connection.getresponse()
        return answer.status, answer.read()


def raw(server: BoundedServer, data: bytes) -> bytes:
    with closing(socket.create_connection(split_address(server.address), timeout=WAIT_S)) as peer:
        peer.sendall(data)
        received = b""
        try:
            while chunk := peer.recv(65_536):
                received += chunk
        except ConnectionResetError:
            pass
        return received


def test_it_answers(server: BoundedServer) -> None:
    assert ask(server, "GET", "/") == (200, b"hello")


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"POST / HTTP/1.1\r\nHost: x\r\n\r\n", b" 405 "),
        (b"GET /" + b"a" * 9_000 + b" HTTP/1.1\r\n\r\n", b" 414 "),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\r\n\r\n", b"400"),
        (b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 200 + b"\r\n", b" 431 "),
    ],
    ids=["method", "long line", "tls", "many headers"],
)
def test_anything_but_a_short_get_is_refused(server: BoundedServer, data: bytes, status: bytes) -> None:
    assert status in raw(server, data)
    assert ask(server, "GET", "/") == (200, b"hello")


def test_a_silent_peer_is_disconnected(server: BoundedServer) -> None:
    assert raw(server, b"GET / HT") == b""


def test_one_connection_too_many_is_closed_at_once(server: BoundedServer, gate: threading.Event) -> None:
    address = split_address(server.address)
    waiting = [socket.create_connection(address, timeout=WAIT_S) for _ in range(2)]
    for peer in waiting:
        peer.sendall(b"GET /wait HTTP/1.0\r\n\r\n")
    assert raw(server, b"") == b""
    gate.set()
    for peer in waiting:
        with closing(peer):
            assert b" 200 " in peer.recv(65_536)


def test_stop_does_not_wait_for_slow_peers(server: BoundedServer) -> None:
    with closing(socket.create_connection(split_address(server.address), timeout=WAIT_S)) as peer:
        peer.sendall(b"GET / HT")
        server.stop()
        with suppress(ConnectionResetError):  # what was not read of it when it was closed resets the connection
            assert peer.recv(100) == b""
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(split_address(server.address), timeout=WAIT_S)
