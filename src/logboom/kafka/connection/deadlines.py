"""How long a connection waits for its peer: for the rest of a request, for its replies to be read, for its end.

Counted in ticks of about a second, so that a stall of this process does not count as the peer's time. Knows seconds and
bytes; what happens to a peer that is too late is the connection's to decide.
"""

from math import ceil
from typing import Final

from logboom.kafka.connection.frames import FrameReader

_PROGRESS_BYTES: Final = 16 * 1024
"""The least that must arrive of a request in each `request_timeout_s`. A slow link is faster; an attacker who keeps
requests open with a byte now and then is not."""


class PeerDeadline:
    """The time limits of one connection."""

    __slots__ = ("_awaited", "_seconds_left", "_unread_bytes", "_unread_s")

    def __init__(self) -> None:
        self._seconds_left = 0
        self._awaited = (0, 0)
        self._unread_bytes = 0
        self._unread_s = 0

    def start(self, limit_s: float) -> None:
        """Start a limit of whole seconds, rounded up."""
        self._seconds_left = ceil(limit_s)

    def tick(self) -> bool:
        """Count a second; returns whether the limit has passed."""
        self._seconds_left -= 1
        return self._seconds_left < 0

    def nothing_awaited(self) -> None:
        """No request has begun to arrive."""
        self._awaited = (0, 0)

    def tick_request(self, frames: FrameReader, limit_s: float) -> str | None:
        """Count a second in which a request has begun to arrive. Returns the reason to close, or None."""
        number, begun_bytes = self._awaited
        now_bytes = frames.begun_bytes
        if not begun_bytes or number != frames.completed or now_bytes - begun_bytes >= _PROGRESS_BYTES:
            self._awaited = (frames.completed, now_bytes)
            self.start(limit_s)
            return None
        if not self.tick():
            return None
        return f"{now_bytes - begun_bytes} bytes of it arrived in {ceil(limit_s)} s (kafka.request_timeout_s)"

    def tick_unread(self, unread_bytes: int, limit_s: float) -> str | None:
        """Count a second in which this many bytes lie in the write buffer. Returns the reason to close, or None."""
        self._unread_s = self._unread_s + 1 if unread_bytes and unread_bytes == self._unread_bytes else 0
        self._unread_bytes = unread_bytes
        if self._unread_s <= limit_s:
            return None
        return f"it has read nothing for {self._unread_s} s, and {unread_bytes} bytes wait for it"
