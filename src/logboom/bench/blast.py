"""Requests encoded beforehand, kept under way over several connections by one thread that does next to nothing else.

Knows sockets and the fixed shape of one answer; must not know what the requests hold. Answers that came together are
counted together and their successors leave in one call, so a request costs the sender about a microsecond.
"""

import errno
import select
import socket
import struct
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence

from logboom.base.settings import split_address
from logboom.bench.wire import BenchError

RECEIVE_BYTES = 256 * 1024
IDLE_MAX_S = 60.0
"""Longest time without any answer before the run fails."""

_LENGTH = struct.Struct(">i")
_CODE = struct.Struct(">h")


def dial(address: str) -> socket.socket:
    """A connection without Nagle's delay; BenchError says what to check where nothing answers."""
    try:
        host, port = split_address(address)
        link = socket.create_connection((host or "127.0.0.1", port), 10)
    except (OSError, ValueError) as error:
        raise BenchError(f"no server at {address} ({error}): is it running, and is the address right?") from None
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return link


class _Lane:
    """One connection: what waits to be written, and the part of an answer that came so far."""

    def __init__(self, link: socket.socket, frames: Sequence[bytes], error_at: int) -> None:
        link.setblocking(False)
        self.link = link
        self.waiting: deque[memoryview] = deque()
        self._frames = frames
        self._next = 0
        self._error_at = error_at
        self._rest = b""

    def queue(self, count: int) -> None:
        for _ in range(count):
            self.waiting.append(memoryview(self._frames[self._next]))
            self._next = (self._next + 1) % len(self._frames)

    def write(self) -> bool:
        """Write what the socket takes; whether all of it went."""
        while self.waiting:
            some = [self.waiting[n] for n in range(min(len(self.waiting), 64))]
            try:
                left = self.link.sendmsg(some)
            except BlockingIOError:
                return False
            while self.waiting and left >= len(self.waiting[0]):
                left -= len(self.waiting.popleft())
            if left:
                self.waiting[0] = self.waiting[0][left:]
        return True

    def read(self) -> tuple[int, int]:
        """Answers that came, and the first error code among them. ConnectionResetError where the server closed."""
        try:
            got = self.link.recv(RECEIVE_BYTES)
        except BlockingIOError:
            return 0, 0
        if not got:
            raise ConnectionResetError(errno.ECONNRESET, "closed by the server")
        data, at, answers, code = self._rest + got, 0, 0, 0
        while len(data) - at >= _LENGTH.size:
            end = at + _LENGTH.size + _LENGTH.unpack_from(data, at)[0]
            if end > len(data):
                break
            code = code or _CODE.unpack_from(data, at + self._error_at)[0]
            answers += 1
            at = end
        self._rest = data[at:]
        return answers, code


class Blast:
    """Sends the frames of each address in turn over `connections` to it, at most `in_flight` unanswered in all, until
    stopped.

    `error_at` is where the error code stands in an answer, its length included. Used once, by one thread.
    """

    def __init__(self, routes: Mapping[str, Sequence[bytes]], connections: int, error_at: int) -> None:
        self._lanes = {}
        for _ in range(connections):
            for address, frames in routes.items():
                link = dial(address)
                self._lanes[link.fileno()] = _Lane(link, frames, error_at)
        self._address = ", ".join(routes)
        self.answered = 0
        """Requests acked so far."""

    def run(self, in_flight: int, more: Callable[[], int]) -> None:
        """Send until `more()`, called once a wake-up, gives no higher total of requests; then wait for the answers.

        BenchError on the first refusal, and when the server goes away or is silent.
        """
        poll = select.epoll()
        lanes = list(self._lanes.values())
        sent = 0
        try:
            for lane in lanes:
                poll.register(lane.link, select.EPOLLIN)
            allowed = more()
            for number in range(min(in_flight, allowed)):
                lanes[number % len(lanes)].queue(1)
                sent += 1
            for lane in lanes:
                self._write(poll, lane)
            while self.answered < sent:
                events = poll.poll(IDLE_MAX_S)
                if not events:
                    raise BenchError(f"{self._address} answered nothing for {IDLE_MAX_S:.0f} s")
                allowed = more()
                for descriptor, event in events:
                    lane = self._lanes[descriptor]
                    fresh = min(self._read(lane), max(0, allowed - sent)) if event & ~select.EPOLLOUT else 0
                    lane.queue(fresh)
                    sent += fresh
                    if fresh or event & select.EPOLLOUT:
                        self._write(poll, lane)
        except OSError as error:
            raise BenchError(f"{self._address} closed the connection in the middle of the run ({error})") from None
        finally:
            poll.close()
            for lane in lanes:
                lane.link.close()

    def _write(self, poll: select.epoll, lane: _Lane) -> None:
        whole = lane.write()
        poll.modify(lane.link, select.EPOLLIN if whole else select.EPOLLIN | select.EPOLLOUT)

    def _read(self, lane: _Lane) -> int:
        answers, code = lane.read()
        if code:
            raise BenchError(f"a request failed with code {code}")
        self.answered += answers
        return answers


class Window:
    """How many requests may be sent: by time after an uncounted warm-up, or a fixed number, all counted."""

    def __init__(self, warm_up_s: float, seconds: float, requests: int) -> None:
        self._warm_up_s, self._seconds, self._requests = warm_up_s, seconds, requests
        self._blast: Blast | None = None
        self._start = 0.0
        self._began: tuple[float, float, int] | None = None
        self._ended: tuple[float, float, int] | None = None

    def over(self, blast: Blast, in_flight: int) -> None:
        """Run it."""
        self._blast, self._start = blast, time.perf_counter()
        blast.run(in_flight, self._more)
        self._ended = self._ended or self._mark()

    def _mark(self) -> tuple[float, float, int]:
        assert self._blast is not None
        return time.perf_counter(), time.process_time(), self._blast.answered

    def _more(self) -> int:
        if self._requests:
            self._began = self._began or self._mark()
            return self._requests
        passed = time.perf_counter() - self._start
        if self._began is None and passed >= self._warm_up_s:
            self._began = self._mark()
        if passed < self._warm_up_s + self._seconds:
            return 1 << 62
        self._ended = self._ended or self._mark()
        return 0

    def measured(self) -> tuple[int, float, float]:
        """Requests inside the window, its seconds, and the share of a core the sender used in it."""
        assert self._began is not None
        assert self._ended is not None
        took_s = self._ended[0] - self._began[0]
        return self._ended[2] - self._began[2], took_s, (self._ended[1] - self._began[1]) / took_s
