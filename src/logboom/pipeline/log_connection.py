"""One connection to a broker that asks one thing at a time. Knows sockets and frames; must not know what is asked."""

import socket
from collections.abc import Iterable
from struct import Struct
from typing import Final

from logboom.pipeline.log_protocol import Address, Api, ProtocolError, framed

_CLIENT: Final = "logboom-pipeline"
_CONNECT_S: Final = 10.0
_ANSWER_S: Final = 60.0
_SIZE: Final = Struct(">i")
_ANSWER_MAX_BYTES: Final = 64 * 1024 * 1024


class Connection:
    """Opened on first use; after any error it has to be closed, and opens again when it is used again."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._socket: socket.socket | None = None
        self._correlation = 0

    def ask(self, api: Api, body: Iterable[bytes | memoryview]) -> bytes:
        """The body of the answer. OSError or ProtocolError: nobody knows whether the request was carried out."""
        self._correlation += 1
        if self._socket is None:
            self._socket = socket.create_connection(self._address, timeout=_CONNECT_S)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._socket.settimeout(_ANSWER_S)
        self._socket.sendall(b"".join(framed(api, self._correlation, _CLIENT, body)))
        size = _SIZE.unpack(self._exactly(_SIZE.size))[0]
        if not _SIZE.size <= size <= _ANSWER_MAX_BYTES:
            raise ProtocolError(f"an answer of the log claims {size} bytes")
        answer = self._exactly(size)
        if _SIZE.unpack_from(answer)[0] != self._correlation:
            raise ProtocolError("the log answered another question")
        return answer[_SIZE.size :]

    def _exactly(self, count: int) -> bytes:
        assert self._socket is not None
        parts = []
        while count:
            part = self._socket.recv(count)
            if not part:
                raise ConnectionResetError("the broker closed the connection")
            parts.append(part)
            count -= len(part)
        return b"".join(parts)

    def close(self) -> None:
        """May be called at any time."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None
