"""A proxy in front of a broker that loses the answer to a Produce request and cuts the connection."""

import contextlib
import socket
import struct
import threading
from typing import Self

from tests.support.waiting import WAIT_S

_PRODUCE = 0
_CHUNK = 1 << 16


class CuttingProxy:
    """Forwards connections of `port` to a broker."""

    def __init__(self, port: int, broker: str) -> None:
        host, _, broker_port = broker.rpartition(":")
        self._broker = (host, int(broker_port))
        self._listener = socket.create_server(("127.0.0.1", port))
        self._armed = False
        self._sockets: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self.cut_replies = 0
        self._start(self._accept)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        for each in (self._listener, *self._sockets):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
        for thread in self._threads:
            thread.join(WAIT_S)

    def cut_next_produce_reply(self) -> None:
        """The next Produce request reaches the broker, and its answer nobody."""
        self._armed = True

    def _start(self, work: object, *arguments: object) -> None:
        assert callable(work)
        thread = threading.Thread(target=work, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                broker = socket.create_connection(self._broker)
                self._sockets += (client, broker)
                cut = threading.Event()
                self._start(self._requests, client, broker, cut)
                self._start(self._replies, broker, client, cut)

    def _requests(self, client: socket.socket, broker: socket.socket, cut: threading.Event) -> None:
        with contextlib.suppress(OSError), client.makefile("rb") as stream:
            while len(head := stream.read(4)) == 4:
                frame = stream.read(struct.unpack(">i", head)[0])
                if self._armed and struct.unpack_from(">h", frame)[0] == _PRODUCE:
                    self._armed = False
                    cut.set()
                broker.sendall(head + frame)
        _shut(client, broker)

    def _replies(self, broker: socket.socket, client: socket.socket, cut: threading.Event) -> None:
        with contextlib.suppress(OSError):
            while data := broker.recv(_CHUNK):
                if cut.is_set():
                    self.cut_replies += 1
                    break
                client.sendall(data)
        _shut(broker, client)


def _shut(*sockets: socket.socket) -> None:
    for each in sockets:
        with contextlib.suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)
