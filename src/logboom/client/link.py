"""Connections to a broker: requests out, answers in the order of the requests.

Knows sockets and who waits for which answer, not what is in them. A `BrokerConnection` waits for nothing and is served
as a selector says; a `Dialogue` asks one thing at a time and waits for it. Plain connections alone so far.
"""

import socket
import time
from collections import deque
from collections.abc import Callable, Iterable
from selectors import EVENT_READ, EVENT_WRITE, BaseSelector, DefaultSelector
from typing import Final

from logboom.base.errors import LogboomError
from logboom.base.ports import Bytes
from logboom.base.settings import split_address
from logboom.base.units import KIB
from logboom.client.frames import FrameError, Frames, framed
from logboom.client.messages import Api

ANSWER_S: Final = 60.0
"""A connection with an answer outstanding this long is closed."""
_LINK_CONNECT_S: Final = 2.0
"""The time to connect, during which nothing else is done."""
_DIALOGUE_CONNECT_S: Final = 10.0
_PORT: Final = 9092
_READ_BYTES: Final = 256 * KIB
_PIECES_AT_ONCE: Final = 64

Answer = Callable[[memoryview | None], None]
"""Called once with the body of the answer, or with None if the connection ended first."""


class LinkError(LogboomError):
    """A broker cannot be reached, or was lost."""


def addresses_of(bootstrap: str) -> list[str]:
    """The brokers in a list with commas, each with Kafka's usual port where it names none.

    >>> addresses_of("one:19092, two,[::1]")
    ['one:19092', 'two:9092', '[::1]:9092']
    """
    names = [name.strip() for name in bootstrap.split(",")]
    return [name if ":" in name.rpartition("]")[2] else f"{name}:{_PORT}" for name in names]


class BrokerConnection:
    """Life: construction connects; then `request`, and `serve` as the selector is ready, until it breaks or is closed.

    A link that broke calls every outstanding callback once with None and cannot be used again.
    """

    def __init__(
        self, address: str, client_id: str, selector: BaseSelector, connect_s: float = _LINK_CONNECT_S
    ) -> None:
        self.address = address
        self._client_id = client_id
        self._selector = selector
        self._out: deque[memoryview] = deque()
        self._frames = Frames()
        self._waiting: deque[tuple[int, float, Answer]] = deque()
        self._correlation = 0
        try:
            host, port = split_address(address)
            self._socket = socket.create_connection((host or "127.0.0.1", port), connect_s)
        except (OSError, ValueError) as error:
            raise LinkError(f"{address}: {getattr(error, 'strerror', None) or error}") from error
        self._socket.setblocking(False)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._events = EVENT_READ
        self.closed = False
        selector.register(self._socket, self._events, self)

    def request(self, api: Api, body: Iterable[Bytes], now_s: float, answer: Answer) -> None:
        """Send a request; its callback runs from `serve` or `close`. LinkError if sending breaks the link."""
        self._correlation = (self._correlation + 1) & 0x7FFFFFFF
        self._out += map(memoryview, framed(api, self._correlation, self._client_id, body))
        self._waiting.append((self._correlation, now_s, answer))
        self._write()

    def is_overdue(self, now_s: float) -> bool:
        """Whether an answer is overdue."""
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
        try:
            for correlation, body in self._frames.take(data):
                self._take(correlation, body)
        except FrameError as error:
            raise LinkError(f"{self.address}: {error}") from None

    def _take(self, correlation: int, body: memoryview) -> None:
        if not self._waiting or self._waiting[0][0] != correlation:
            raise LinkError(f"{self.address}: an answer to nothing that was asked; is it a Kafka server?")
        _, _, answer = self._waiting.popleft()
        answer(body)

    def close(self) -> None:
        """Close the connection and call every outstanding callback with None. Idempotent."""
        if self.closed:
            return
        self.closed = True
        self._selector.unregister(self._socket)
        self._socket.close()
        waiting, self._waiting = self._waiting, deque()
        for _, _, answer in waiting:
            answer(None)


class Dialogue:
    """A blocking client: one request at a time. Connects on the first request, and again after an error."""

    def __init__(self, address: str, client_id: str) -> None:
        self._address = address
        self._client_id = client_id
        self._selector = DefaultSelector()
        self._link: BrokerConnection | None = None

    def ask(self, api: Api, body: Iterable[Bytes]) -> memoryview:
        """The body of the answer. LinkError: the request may or may not have been carried out."""
        answers: list[memoryview | None] = []
        try:
            link = self._opened()
            link.request(api, body, time.monotonic(), answers.append)
            while not answers:
                ready = self._selector.select(ANSWER_S)
                if not ready:
                    raise LinkError(f"{self._address}: no answer")
                for _, events in ready:
                    link.serve(events)
        except LinkError:
            self.hang_up()
            raise
        (answer,) = answers
        assert answer is not None, "only who closes the link says so"
        return answer

    def _opened(self) -> BrokerConnection:
        if self._link is None:
            self._link = BrokerConnection(self._address, self._client_id, self._selector, _DIALOGUE_CONNECT_S)
        return self._link

    def hang_up(self) -> None:
        """Drop the connection after a malformed answer; the next request makes another one."""
        link, self._link = self._link, None
        if link is not None:
            link.close()

    def close(self) -> None:
        """Close the connection."""
        self.hang_up()
        self._selector.close()
