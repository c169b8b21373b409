"""One request to a broker and its reply, for APIs that librdkafka does not have.

Knows the frame around a request of the Kafka protocol, and kio's entities. Works with any server that speaks it.
"""

import socket
import struct
from typing import Any, Final

from kio.schema.errors import ErrorCode
from kio.serial import entity_reader

from logboom.base.settings import split_address
from logboom.cli.client import ANSWER_TIMEOUT_S, CONNECT_TIMEOUT_S, reach
from logboom.cli.common import fail
from logboom.kafka.wire.messages import response_class
from logboom.kafka.wire.writing import encode

_CLIENT_ID: Final = b"logboom-cli"
_REPLY_BYTES_MAX: Final = 1 << 28


def ask(bootstrap: str, api_key: int, version: int, request: Any) -> Any:
    """The reply to a request of a flexible version; ends the command where there is none."""
    reach(bootstrap)
    body = None
    for address in bootstrap.split(","):
        host, port = split_address(address.strip())
        try:
            with socket.create_connection((host or "127.0.0.1", port), CONNECT_TIMEOUT_S) as connection:
                connection.settimeout(ANSWER_TIMEOUT_S)
                body = _exchange(connection, api_key, version, bytes(encode(request)))
            break
        except OSError:
            continue
    if body is not None:
        return entity_reader(response_class(api_key, version))(body, 5)[0]
    return fail(f"{bootstrap} takes connections but does not answer this request; its log may say why")


def _exchange(connection: socket.socket, api_key: int, version: int, body: bytes) -> bytes:
    head = struct.pack(">hhih", api_key, version, 1, len(_CLIENT_ID)) + _CLIENT_ID + b"\0"
    connection.sendall(struct.pack(">i", len(head) + len(body)) + head + body)
    (size,) = struct.unpack(">i", _exactly(connection, 4))
    if not 5 <= size <= _REPLY_BYTES_MAX:
        raise ConnectionError("this is no reply of the Kafka protocol")
    return _exactly(connection, size)


def _exactly(connection: socket.socket, count: int) -> bytes:
    parts = bytearray()
    while len(parts) < count:
        part = connection.recv(count - len(parts))
        if not part:
            raise ConnectionError("the broker closed the connection")
        parts += part
    return bytes(parts)


def check(error_code: ErrorCode, message: str | None, what: str) -> None:
    """End the command with the broker's own words where it refused."""
    if error_code is not ErrorCode.none:
        fail(f"{what}: {message or error_code.name}")
