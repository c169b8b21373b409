"""Requests to one broker and their replies, for APIs that librdkafka does not have or asks of a broker of its choice.

Knows the frame around a request of the Kafka protocol, and kio's entities. Works with any server that speaks it.
"""

import importlib.metadata
import socket
import struct
from typing import Any, Final, NamedTuple, Self

from kio.schema.errors import ErrorCode
from kio.serial import entity_reader

from logboom.base.settings import split_address
from logboom.cli.client import ANSWER_TIMEOUT_S, CONNECT_TIMEOUT_S, reach
from logboom.cli.common import fail
from logboom.kafka.wire.messages import request_class, response_class
from logboom.kafka.wire.writing import encode
from logboom.metadata.levels import FEATURE

_CLIENT_ID: Final = b"logboom-cli"
_REPLY_BYTES_MAX: Final = 1 << 28
_HEAD: Final = 4
"""Bytes before a reply's body: the number of its request."""
_HEAD_TAGGED: Final = 5
"""The same and the count of tagged fields, of which brokers send none."""
_API_VERSIONS: Final = 18
_API_VERSIONS_VERSION: Final = 3


class Features(NamedTuple):
    """The metadata level (`logboom.metadata.levels`), as a broker tells it."""

    level: int | None
    """Of its cluster; None where it has none, as a broker of Kafka."""
    spoken: tuple[int, int] | None
    """The oldest and the newest that its program speaks."""


class AdminConnection:
    """A connection to one broker; requests of flexible versions, one at a time. Close it, or use it in a `with` block.

    Every method raises OSError where the broker does not answer in time, or breaks the protocol.
    """

    def __init__(
        self, address: str, *, connect_timeout_s: float = CONNECT_TIMEOUT_S, answer_timeout_s: float = ANSWER_TIMEOUT_S
    ) -> None:
        self.address = address
        host, port = split_address(address)
        self._connection = socket.create_connection((host or "127.0.0.1", port), connect_timeout_s)
        self._connection.settimeout(answer_timeout_s)
        self._offered: dict[int, tuple[int, int]] | None = None
        self._features = Features(None, None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def ask(self, api_key: int, version: int, request: Any) -> Any:
        """The reply to a request."""
        # The reply to ApiVersions has the shortest head, so that brokers of every age can be understood (KIP-511).
        head = _HEAD if api_key == _API_VERSIONS else _HEAD_TAGGED
        body = self._exchange(api_key, version, bytes(encode(request)))
        return entity_reader(response_class(api_key, version))(body, head)[0]

    def version(self, api_key: int, lowest: int, highest: int) -> int | None:
        """The highest version within bounds that the broker offers; None where it offers none."""
        if self._offered is None:
            request = request_class(_API_VERSIONS, _API_VERSIONS_VERSION)
            name, version = _CLIENT_ID.decode(), importlib.metadata.version("logboom")
            reply = self.ask(
                _API_VERSIONS,
                _API_VERSIONS_VERSION,
                request(client_software_name=name, client_software_version=version),
            )
            self._offered = {each.api_key: (each.min_version, each.max_version) for each in reply.api_keys}
            self._features = Features(
                next((each.max_version_level for each in reply.finalized_features if each.name == FEATURE), None),
                next(
                    ((one.min_version, one.max_version) for one in reply.supported_features if one.name == FEATURE),
                    None,
                ),
            )
        least, most = self._offered.get(api_key, (0, -1))
        both = min(most, highest)
        return both if both >= max(least, lowest) else None

    def features(self) -> Features:
        """What the broker says of the metadata level."""
        self.version(_API_VERSIONS, 0, 0)
        return self._features

    def _exchange(self, api_key: int, version: int, body: bytes) -> bytes:
        head = struct.pack(">hhih", api_key, version, 1, len(_CLIENT_ID)) + _CLIENT_ID + b"\0"
        self._connection.sendall(struct.pack(">i", len(head) + len(body)) + head + body)
        (size,) = struct.unpack(">i", _exactly(self._connection, 4))
        if not _HEAD_TAGGED <= size <= _REPLY_BYTES_MAX:
            raise ConnectionError("this is no reply of the Kafka protocol")
        return _exactly(self._connection, size)


def ask(bootstrap: str, api_key: int, version: int, request: Any) -> Any:
    """The reply to a request of a flexible version; ends the command where there is none."""
    reach(bootstrap)
    for address in bootstrap.split(","):
        try:
            with AdminConnection(address.strip()) as link:
                return link.ask(api_key, version, request)
        except OSError:
            continue
    return fail(f"{bootstrap} takes connections but does not answer this request; its log may say why")


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
