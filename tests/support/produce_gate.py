"""A proxy in front of a broker's Kafka listener that decides when each Produce request, and the answer to it, goes on.

All else passes. Requests of one connection keep their order, and so do the answers.
"""

import contextlib
import queue
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from io import BytesIO
from typing import Self

from kio.serial import entity_reader
from tests.support.waiting import WAIT_S, until

from logboom.kafka.wire.messages import response_class

_PRODUCE = 0
_HEAD = struct.Struct(">hhi")
_FLEXIBLE_FROM = 9


@dataclass
class Passage:
    """One Produce request on its way."""

    version: int
    may_pass: threading.Event = field(default_factory=threading.Event)
    may_return: threading.Event = field(default_factory=threading.Event)
    codes: tuple[int, ...] | None = None
    """The error codes of its answer, once that is here."""


class ProduceGate:
    """Forwards connections of `address` to a broker. While `closed`, Produce requests wait in `passages` to be let
    through; their answers too."""

    def __init__(self, broker: Callable[[], str]) -> None:
        """`broker`: its address, once there is a connection to be forwarded."""
        self._broker = broker
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.closed = False
        self.passages: list[Passage] = []
        self._sockets: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._start(self._accept)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.open()
        self.cut()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join(WAIT_S)
        for one in self._sockets:
            one.close()

    def close(self) -> None:
        """From now on Produce requests wait."""
        self.closed, self.passages = True, []

    def open(self) -> None:
        """All that waits goes on, and nothing waits any more."""
        self.closed = False
        for passage in self.passages:
            passage.may_pass.set()
            passage.may_return.set()

    def cut(self) -> None:
        """Cut all connections; what waits in them is lost."""
        for one in self._sockets:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def arrived(self, count: int) -> Passage:
        """The Produce request number `count` since it was closed, once it is here."""
        until(lambda: len(self.passages) >= count, f"{count} requests in front of the gate")
        return self.passages[count - 1]

    def answered(self, passage: Passage) -> tuple[int, ...]:
        """Let a request through; the codes of its answer, which waits."""
        passage.may_pass.set()
        until(lambda: passage.codes is not None, "an answer to a Produce request")
        assert passage.codes is not None
        return passage.codes

    def _start(self, work: Callable[..., None], *arguments: object) -> None:
        thread = threading.Thread(target=work, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                host, _, port = self._broker().rpartition(":")
                broker = socket.create_connection((host, int(port)))
                self._sockets += (client, broker)
                waiting: dict[int, Passage] = {}
                requests, answers = _Frames(), _Frames()
                self._start(self._read_requests, client, waiting, requests)
                self._start(_write, requests, broker, client)
                self._start(self._read_answers, broker, waiting, answers)
                self._start(_write, answers, client, broker)

    def _read_requests(self, client: socket.socket, waiting: dict[int, Passage], requests: "_Frames") -> None:
        for frame in _frames(client):
            api, version, correlation = _HEAD.unpack_from(frame)
            passage = None
            if api == _PRODUCE and self.closed:
                passage = waiting[correlation] = Passage(version)
                self.passages.append(passage)
            requests.put((frame, None if passage is None else passage.may_pass))
        requests.put((b"", None))

    @staticmethod
    def _read_answers(broker: socket.socket, waiting: dict[int, Passage], answers: "_Frames") -> None:
        for frame in _frames(broker):
            passage = waiting.pop(struct.unpack_from(">i", frame)[0], None)
            if passage is not None:
                passage.codes = _codes(frame, passage.version)
            answers.put((frame, None if passage is None else passage.may_return))
        answers.put((b"", None))


_Frames = queue.SimpleQueue[tuple[bytes, threading.Event | None]]
"""Frames in their order, each with what it waits for; an empty one is the end."""


def _frames(connection: socket.socket) -> Iterator[bytes]:
    with contextlib.suppress(OSError), connection.makefile("rb") as stream:
        while len(size := stream.read(4)) == 4:
            yield stream.read(struct.unpack(">i", size)[0])


def _write(frames: _Frames, to: socket.socket, other: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while (frame := frames.get())[0]:
            if frame[1] is not None:
                frame[1].wait(WAIT_S)
            to.sendall(struct.pack(">i", len(frame[0])) + frame[0])
    _shut(to, other)


def _codes(frame: bytes, version: int) -> tuple[int, ...]:
    body = BytesIO(frame[4 + (version >= _FLEXIBLE_FROM) :]).getvalue()
    answer, _ = entity_reader(response_class(_PRODUCE, version))(body, 0)
    return tuple(int(one.error_code) for topic in answer.responses for one in topic.partition_responses)


def _shut(*sockets: socket.socket) -> None:
    for one in sockets:
        with contextlib.suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)
