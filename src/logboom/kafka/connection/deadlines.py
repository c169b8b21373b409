"""How long a connection waits for its peer: to bring the rest of a request, to read its replies, to say goodbye.

Counted in ticks of about a second: a standstill of this process costs no peer its time. Knows seconds and bytes; what
becomes of a peer whose time is over is the connection's.
"""

from math import ceil
from typing import Final

from logboom.kafka.connection.frames import FrameReader

_PROGRESS_BYTES: Final = 16 * 1024
"""What must come of a request that has begun, in each `request_timeout_s`, for it to be a slow one and no trickle."""


class Patience:
    """One connection's ticks. Life: that of the connection."""

    __slots__ = ("_awaited", "_seconds_left", "_unread_bytes", "_unread_s")

    def __init__(self) -> None:
        self._seconds_left = 0
        self._awaited = (0, 0)
        self._unread_bytes = 0
        self._unread_s = 0

    def begin(self, limit_s: float) -> None:
        """So long from now."""
        self._seconds_left = ceil(limit_s)

    def is_over(self) -> bool:
        """A second has passed: whether the time is over."""
        self._seconds_left -= 1
        return self._seconds_left < 0

    def nothing_awaited(self) -> None:
        """No request is on its way."""
        self._awaited = (0, 0)

    def await_rest(self, frames: FrameReader, limit_s: float) -> str | None:
        """A second has passed with a request on its way; why no more is waited for it, if so."""
        number, begun_bytes = self._awaited
        now_bytes = frames.begun_bytes
        if not begun_bytes or number != frames.completed or now_bytes - begun_bytes >= _PROGRESS_BYTES:
            self._awaited = (frames.completed, now_bytes)
            self.begin(limit_s)
            return None
        if not self.is_over():
            return None
        return f"{now_bytes - begun_bytes} bytes of it came in {ceil(limit_s)} s (kafka.request_timeout_s)"

    def await_reader(self, unread_bytes: int, limit_s: float) -> str | None:
        """A second has passed, and so much is there for the peer to read; why no more is waited for it, if so."""
        self._unread_s = self._unread_s + 1 if unread_bytes and unread_bytes == self._unread_bytes else 0
        self._unread_bytes = unread_bytes
        if self._unread_s <= limit_s:
            return None
        return f"it has read nothing for {self._unread_s} s, and {unread_bytes} bytes are there for it"
