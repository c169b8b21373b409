"""Stands between a client and a PostgreSQL server, and keeps answers to COMMIT from the client.

Knows as much of the protocol as that takes: a commit is the simple query `COMMIT`, whose answer is all that comes until
the client's next message (PostgreSQL's manual, "Message Flow").
"""

from __future__ import annotations

import contextlib
import socket
import threading
from dataclasses import dataclass
from typing import Final, Literal, Self

from tests.support.waiting import WAIT_S

CommitFault = Literal["cut_before", "cut_behind", "silent_behind"]
"""The connection ends in front of the commit, or behind it; or nothing is heard any more behind it."""
_COMMIT: Final = b"COMMIT\x00"


@dataclass
class _Link:
    client: socket.socket
    server: socket.socket
    fault: CommitFault | None = None


class PostgresProxy:
    """On a free port of 127.0.0.1."""

    def __init__(self, port: int) -> None:
        """`port`: of the server."""
        self._server_port = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.next: list[CommitFault | None] = []
        """Of the next commits; None lets one through."""
        self.applied = 0
        self._lock = threading.Lock()
        self._sockets: list[socket.socket] = []
        self._let_go = threading.Event()

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._let_go.set()
        self._listener.close()
        for one in self._sockets:
            _end(one)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # the end
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self._server_port))
                self._sockets += [client, server]
                link = _Link(client, server)
                threading.Thread(target=self._forward, args=(link,), daemon=True).start()
                threading.Thread(target=self._backward, args=(link,), daemon=True).start()

    def _forward(self, link: _Link) -> None:
        with contextlib.suppress(OSError):
            while data := link.client.recv(65_536):
                if _COMMIT in data:
                    link.fault = self._take()
                if link.fault == "cut_before":
                    break
                link.server.sendall(data)
        _end(link.server)

    def _backward(self, link: _Link) -> None:
        """What comes while there is a fault is the answer to the commit: that is made by then."""
        with contextlib.suppress(OSError):
            while data := link.server.recv(65_536):
                if link.fault == "silent_behind":
                    self._let_go.wait(WAIT_S)
                if link.fault is not None:
                    break
                link.client.sendall(data)
        _end(link.server)
        _end(link.client)

    def _take(self) -> CommitFault | None:
        with self._lock:
            fault = self.next.pop(0) if self.next else None
            self.applied += fault is not None
            return fault


def _end(one: socket.socket) -> None:
    with contextlib.suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
    one.close()
