"""Readiness of a server, probed with a few bytes over a plain socket so that probing costs nothing.

Knows the one request of each protocol that says so; a client library would add its own start and back-off.
"""

import contextlib
import socket
import struct
from collections.abc import Iterator

TIMEOUT_S = 2.0
_METADATA, _METADATA_VERSION = 3, 1


@contextlib.contextmanager
def connection(port: int) -> Iterator[socket.socket]:
    """A blocking connection to a port of 127.0.0.1 that gives up after a while."""
    with socket.create_connection(("127.0.0.1", port), TIMEOUT_S) as link:
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        yield link


def receive(link: socket.socket, size: int) -> bytes:
    """Exactly `size` bytes; ConnectionError where the other side ends before."""
    data = b""
    while len(data) < size:
        got = link.recv(size - len(data))
        if not got:
            raise ConnectionError("the server closed the connection")
        data += got
    return data


def kafka_answers(port: int) -> bool:
    """Whether a Kafka-protocol server names at least one broker (itself) to clients."""
    return kafka_brokers(port) > 0


def kafka_brokers(port: int) -> int:
    """How many brokers a Kafka-protocol server names to clients; 0 where it does not answer."""
    client = b"logboom-bench"
    body = struct.pack(">hhih", _METADATA, _METADATA_VERSION, 1, len(client)) + client + struct.pack(">i", 0)
    try:
        with connection(port) as link:
            link.sendall(struct.pack(">i", len(body)) + body)
            (size,) = struct.unpack(">i", receive(link, 4))
            answer = receive(link, size)
    except OSError:
        return 0
    (brokers,) = struct.unpack_from(">i", answer, 4)
    return int(brokers)


def kafka_takes(port: int, frame: bytes | bytearray, error_at: int) -> bool:
    """Whether a framed Produce request is acked: its answer has code 0 at `error_at` behind the length."""
    try:
        with connection(port) as link:
            link.settimeout(60)
            link.sendall(frame)
            (size,) = struct.unpack(">i", receive(link, 4))
            answer = receive(link, size)
    except OSError:
        return False
    (code,) = struct.unpack_from(">h", answer, error_at)
    return bool(code == 0)


def nats_takes(port: int, subject: str) -> bool:
    """Whether a message to `subject` is acked by a JetStream stream."""
    ask = f"CONNECT {{}}\r\nSUB probe.ack 1\r\nPUB {subject} probe.ack 1\r\nx\r\n".encode()
    try:
        with connection(port) as link:
            link.sendall(ask)
            received = b""
            while b'"seq"' not in received:
                got = link.recv(4096)
                if not got or b"-ERR" in received or b"503" in received or b'"error"' in received:
                    return False
                received += got
    except OSError:
        return False
    return True


def nats_answers(port: int, *, with_jetstream: bool = True) -> bool:
    """Whether a nats-server answers a ping, and has JetStream ready where it is to have that."""
    info = b"SUB probe.info 1\r\nPUB $JS.API.INFO probe.info 0\r\n\r\n" if with_jetstream else b""
    ask = b"CONNECT {}\r\n" + info + b"PING\r\n"
    try:
        with connection(port) as link:
            link.sendall(ask)
            received = b""
            while b"PONG" not in received or (with_jetstream and b'"memory"' not in received):
                got = link.recv(4096)
                if not got:
                    return False
                received += got
    except OSError:
        return False
    return True
