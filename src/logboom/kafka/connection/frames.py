"""Cutting the bytes of a connection into frames: four bytes of length, then so many bytes.

Pure: it hands out where the next bytes go and is told how many came. Every frame is a bytearray of its own, for its
records are patched in place and outlive the read. A frame is never given room for what was only announced.
"""

from struct import Struct
from typing import Final

from logboom.base.units import KIB, MIB

SCRATCH_BYTES: Final = 128 * KIB
"""What one read takes at most between frames."""

_STRANGERS_BYTES: Final = 64 * KIB
"""Frames up to this length get their room at once; longer ones as their bytes come, twice as much each time."""

_TRUSTED_BYTES: Final = MIB
"""The same on a connection that has sent a frame of such a length whole."""

_LIMIT: Final = "kafka.max_request_bytes"
_HEAD_BYTES: Final = 4
_LENGTH: Final = Struct(">i")
_REQUEST_BYTES_MIN: Final = 8
"""API key, version and correlation id: what the shortest request has."""


class FrameReader:
    """One connection's bytes on their way to frames.

    `scratch` may be shared by all connections of a loop: it holds nothing between `buffer` and `received`.
    """

    __slots__ = (
        "_filled",
        "_frame",
        "_head",
        "_scratch",
        "_size",
        "_trusted_bytes",
        "broken",
        "completed",
        "limit",
        "max_bytes",
        "room_bytes",
    )

    def __init__(self, scratch: memoryview, max_frame_bytes: int) -> None:
        self._scratch = scratch
        self.max_bytes = max_frame_bytes
        self._head = b""
        self._frame: bytearray | None = None
        self._size = 0
        self._filled = 0
        self._trusted_bytes = _STRANGERS_BYTES
        self.room_bytes = 0
        """What is in memory for the frame that has begun and not ended, once that is more than any may have."""
        self.completed = 0
        """Frames that came whole so far."""
        self.limit = ""
        """The limit that a length is beyond, if that is all that is wrong with it."""
        self.broken: str | None = None
        """Why nothing more can be read, once a length came that no request has."""

    @property
    def in_frame(self) -> bool:
        """Whether a frame has begun and not ended."""
        return self._frame is not None or bool(self._head)

    @property
    def begun_bytes(self) -> int:
        """What has come of the frame that has begun and not ended."""
        return len(self._head) if self._frame is None else _HEAD_BYTES + self._filled

    def buffer(self) -> memoryview:
        """Where the next bytes go."""
        if self._frame is not None:
            return memoryview(self._frame)[self._filled :]
        if self._head:
            self._scratch[: len(self._head)] = self._head
            return self._scratch[len(self._head) :]
        return self._scratch

    def received(self, count: int) -> list[bytearray]:
        """The frames that `count` more bytes completed; look at `broken` behind them."""
        assert self.broken is None
        if self._frame is None:
            frames = self._cut(len(self._head) + count)
            self.completed += len(frames)
            return frames
        self._filled += count
        if self._filled == self._size:
            frame, self._frame = self._frame, None
            self.room_bytes = 0
            self._trusted_bytes = max(self._trusted_bytes, min(self._size, _TRUSTED_BYTES))
            self.completed += 1
            return [frame]
        if self._filled == len(self._frame):
            # A new one, for a view handed out may still hold the old one at its length.
            self._frame = self._frame + bytes(min(self._size, 2 * self._filled) - self._filled)
            self._note_room(self._frame)
        return []

    def _cut(self, end: int) -> list[bytearray]:
        """Copy the frames out of the first `end` bytes of the scratch buffer."""
        frames: list[bytearray] = []
        scratch = self._scratch
        position = 0
        while end - position >= _HEAD_BYTES:
            (size,) = _LENGTH.unpack_from(scratch, position)
            if not _REQUEST_BYTES_MIN <= size <= self.max_bytes:
                self.broken = unlikely_length(bytes(scratch[position:end][:8]), self.max_bytes)
                self.limit = _LIMIT if _LIMIT in self.broken else ""
                return frames
            position += _HEAD_BYTES
            if end - position < size:
                self._begin(size, scratch[position:end])
                self._head = b""
                return frames
            frames.append(bytearray(scratch[position : position + size]))
            position += size
        self._head = bytes(scratch[position:end])
        return frames

    def _begin(self, size: int, start: memoryview) -> None:
        self._size = size
        self._filled = len(start)
        self._frame = bytearray(min(size, max(self._trusted_bytes, 2 * len(start))))
        self._frame[: len(start)] = start
        self._note_room(self._frame)

    def _note_room(self, frame: bytearray) -> None:
        self.room_bytes = len(frame) if len(frame) > _TRUSTED_BYTES else 0


_FOREIGN: Final = {
    b"GET ": "HTTP",
    b"POST": "HTTP",
    b"HEAD": "HTTP",
    b"PUT ": "HTTP",
    b"OPTI": "HTTP",
    b"PRI ": "HTTP/2",
    b"SSH-": "SSH",
    b"CONN": "NATS",
}


def unlikely_length(head: bytes, max_bytes: int) -> str:
    """What to say of a frame whose length cannot be one: mostly it is another protocol's first words."""
    if head[:2] == b"\x16\x03":
        return "this looks like a TLS handshake, and this listener speaks plain text (security.protocol=PLAINTEXT)"
    if head[:4] in _FOREIGN:
        return f"this looks like {_FOREIGN[head[:4]]}, and this listener speaks the Kafka protocol"
    (size,) = _LENGTH.unpack_from(head)
    if size > max_bytes:
        return f"a request of {size} bytes is longer than the limit of {max_bytes} ({_LIMIT})"
    return f"a request cannot have a length of {size} bytes"
