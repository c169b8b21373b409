"""One connection to a broker: requests out, answers in the order of the requests, nothing waited for.

Knows frames and correlation ids, not what is in them. A link that broke tells everybody who still waits, once, and is
of no further use.
"""

import socket
from collections import deque
from collections.abc import Callable
from selectors import EVENT_READ, EVENT_WRITE, BaseSelector
from struct import Struct
from typing import Final

from logboom.base.errors import LogboomError
from logboom.base.ports import Bytes
from logboom.base.settings import split_address
from logboom.base.units import KIB, MIB

CONNECT_S: Final = 2.0
ANSWER_S: Final = 60.0
"""A broker that owes an answer for so long is taken for gone."""
_ANSWER_BYTES_MAX: Final = 64 * MIB
_READ_BYTES: Final = 256 * KIB
_SIZE: Final = Struct(">i")
_HEAD: Final = Struct(">ihhih")
_PIECES_AT_ONCE: Final = 64

Answer = Callable[[memoryview | None], None]
"""Called once with the body of the answer, or with None where none will come."""


class LinkError(LogboomError):
    """A broker cannot be reached, or was lost."""


class Link:
    """Life: made (which connects), `request`s and `serve` as the selector says, until it breaks or is closed."""

    def __init__(self, address: str, client_id: str, selector: BaseSelector) -> None:
        self.address = address
        self._client_id = client_id.encode()
        self._selector = selector
        self._out: deque[memoryview] = deque()
        self._in = bytearray()
        self._waiting: deque[tuple[int, float, Answer]] = deque()
        self._correlation = 0
        try:
            host, port = split_address(address)
            self._socket = socket.create_connection((host or "127.0.0.1", port), CONNECT_S)
        except (OSError, ValueError) as error:
            raise LinkError(f"{address}: {getattr(error, 'strerror', None) or error}") from error
        self._socket.setblocking(False)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._events = EVENT_READ
        self.closed = False
        selector.register(self._socket, self._events, self)

    def request(self, api_key: int, version: int, body: list[Bytes], now_s: float, answer: Answer) -> None:
        """Send a request; its answer comes later, from `serve` or `close`. LinkError where the link breaks at once."""
        self._correlation = (self._correlation + 1) & 0x7FFFFFFF
        size = _HEAD.size - _SIZE.size + len(self._client_id) + sum(map(len, body))
        head = _HEAD.pack(size, api_key, version, self._correlation, len(self._client_id)) + self._client_id
        self._out += map(memoryview, (head, *body))
        self._waiting.append((self._correlation, now_s, answer))
        self._write()

    def is_overdue(self, now_s: float) -> bool:
        """Whether an answer is owed for too long."""
        return bool(self._waiting) and now_s - self._waiting[0][1] > ANSWER_S

    def serve(self, events: int) -> None:
        """Do what the socket is ready for. LinkError where it broke: close it."""
        if events & EVENT_WRITE:
            self._write()
        if events & EVENT_READ:
            self._read()

    def _write(self) -> None:
        try:
            while self._out:
                sent = self._socket.sendmsg([self._out[n] for n in range(min(len(self._out), _PIECES_AT_ONCE))])
                while self._out and sent >= len(self._out[0]):
                    sent -= len(self._out.popleft())
                if sent:
                    self._out[0] = self._out[0][sent:]
        except BlockingIOError:
            pass
        except OSError as error:
            raise LinkError(f"{self.address}: {error.strerror or error}") from error
        events = EVENT_READ | (EVENT_WRITE if self._out else 0)
        if events != self._events:
            self._events = events
            self._selector.modify(self._socket, events, self)

    def _read(self) -> None:
        try:
            data = self._socket.recv(_READ_BYTES)
        except BlockingIOError:
            return
        except OSError as error:
            raise LinkError(f"{self.address}: {error.strerror or error}") from error
        if not data:
            raise LinkError(f"{self.address}: the broker closed the connection")
        self._in += data
        while len(self._in) >= _SIZE.size:
            (size,) = _SIZE.unpack_from(self._in)
            if not _SIZE.size <= size <= _ANSWER_BYTES_MAX:
                raise LinkError(f"{self.address}: an answer of {size} bytes; is it a Kafka server?")
            if len(self._in) < _SIZE.size + size:
                return
            frame = bytes(self._in[_SIZE.size : _SIZE.size + size])
            del self._in[: _SIZE.size + size]
            self._take(frame)

    def _take(self, frame: bytes) -> None:
        (correlation,) = _SIZE.unpack_from(frame)
        if not self._waiting or self._waiting[0][0] != correlation:
            raise LinkError(f"{self.address}: an answer to nothing that was asked; is it a Kafka server?")
        _, _, answer = self._waiting.popleft()
        answer(memoryview(frame)[_SIZE.size :])

    def close(self) -> None:
        """Give it up; those who wait are told. Idempotent."""
        if self.closed:
            return
        self.closed = True
        self._selector.unregister(self._socket)
        self._socket.close()
        waiting, self._waiting = self._waiting, deque()
        for _, _, answer in waiting:
            answer(None)
