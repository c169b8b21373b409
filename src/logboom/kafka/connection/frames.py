"""Cutting the bytes of a connection into frames: four bytes of length, then as many bytes.

Pure: it returns the buffer for the next bytes and is then given their number. Every frame is a bytearray of its own,
because the broker patches its records in place and keeps them until they are written. A frame gets memory as its bytes
arrive and not for the length it announces; otherwise a few bytes of a client could make the server reserve gigabytes.
"""

from struct import Struct
from typing import Final

from logboom.base.units import KIB, MIB
from logboom.broker.misdirected_peer import is_broker

SCRATCH_BYTES: Final = 128 * KIB
"""The most that one read returns between frames."""

_UNTRUSTED_BYTES: Final = 64 * KIB
"""Frames up to this length get their buffer at once; longer ones as their bytes arrive, twice as much each time."""

_TRUSTED_BYTES: Final = MIB
"""The same on a connection that has sent a whole frame of such a length before."""

_LIMIT: Final = "kafka.max_request_bytes"
_HEAD_BYTES: Final = 4
_LENGTH: Final = Struct(">i")
_REQUEST_BYTES_MIN: Final = 8
"""API key, version and correlation id: the shortest request."""


class FrameReader:
    """The frame reader of one connection.

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
        "buffer_bytes",
        "completed",
        "from_broker",
        "limit",
        "max_bytes",
    )

    def __init__(self, scratch: memoryview, max_frame_bytes: int) -> None:
        self._scratch = scratch
        self.max_bytes = max_frame_bytes
        self._head = b""
        self._frame: bytearray | None = None
        self._size = 0
        self._filled = 0
        self._trusted_bytes = _UNTRUSTED_BYTES
        self.buffer_bytes = 0
        """The buffer of the frame that is arriving, if it is longer than a trusted connection gets at once; else 0."""
        self.completed = 0
        """Number of complete frames that have arrived."""
        self.limit = ""
        """The limit that is exceeded, if that is the reason in `broken`."""
        self.broken: str | None = None
        """Why nothing more can be read: an impossible length arrived, or a broker that introduces itself. None if all
        is well."""
        self.from_broker = False
        """Whether it is a broker that introduces itself."""

    @property
    def in_frame(self) -> bool:
        """Whether a frame has begun to arrive and has not ended."""
        return self._frame is not None or bool(self._head)

    @property
    def begun_bytes(self) -> int:
        """Bytes that have arrived of a frame that has not ended."""
        return len(self._head) if self._frame is None else _HEAD_BYTES + self._filled

    def buffer(self) -> memoryview:
        """The buffer for the next bytes."""
        if self._frame is not None:
            return memoryview(self._frame)[self._filled :]
        if self._head:
            self._scratch[: len(self._head)] = self._head
            return self._scratch[len(self._head) :]
        return self._scratch

    def received(self, count: int) -> list[bytearray]:
        """`count` bytes were written to the buffer: the frames that they completed. Check `broken` afterwards."""
        assert self.broken is None
        if self._frame is None:
            frames = self._cut(len(self._head) + count)
            self.completed += len(frames)
            return frames
        self._filled += count
        if self._filled == self._size:
            frame, self._frame = self._frame, None
            self.buffer_bytes = 0
            self._trusted_bytes = max(self._trusted_bytes, min(self._size, _TRUSTED_BYTES))
            self.completed += 1
            return [frame]
        if self._filled == len(self._frame):
            # A new buffer, because a bytearray cannot be resized while a view of it may exist.
            self._frame = self._frame + bytes(min(self._size, 2 * self._filled) - self._filled)
            self._note_buffer(self._frame)
        return []

    def _cut(self, end: int) -> list[bytearray]:
        """Copy the frames out of the first `end` bytes of the scratch buffer."""
        frames: list[bytearray] = []
        scratch = self._scratch
        position = 0
        if not self.completed and is_broker(scratch[:end]):
            self.from_broker, self.broken = True, "it is another broker, which is to connect to peer.listen"
            return frames
        while end - position >= _HEAD_BYTES:
            (size,) = _LENGTH.unpack_from(scratch, position)
            if not _REQUEST_BYTES_MIN <= size <= self.max_bytes:
                self.broken = impossible_length(bytes(scratch[position:end][:8]), self.max_bytes)
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
        self._note_buffer(self._frame)

    def _note_buffer(self, frame: bytearray) -> None:
        self.buffer_bytes = len(frame) if len(frame) > _TRUSTED_BYTES else 0


_OTHER_PROTOCOLS: Final = {
    b"GET ": "HTTP",
    b"POST": "HTTP",
    b"HEAD": "HTTP",
    b"PUT ": "HTTP",
    b"OPTI": "HTTP",
    b"PRI ": "HTTP/2",
    b"SSH-": "SSH",
    b"CONN": "NATS",
}


def impossible_length(head: bytes, max_bytes: int) -> str:
    """The reason to report for a length that is impossible: mostly it is the beginning of another protocol."""
    if head[:2] == b"\x16\x03":
        return "this looks like a TLS handshake, and this listener speaks plain text (security.protocol=PLAINTEXT)"
    if head[:4] in _OTHER_PROTOCOLS:
        return f"this looks like {_OTHER_PROTOCOLS[head[:4]]}, and this listener speaks the Kafka protocol"
    (size,) = _LENGTH.unpack_from(head)
    if size > max_bytes:
        return f"a request of {size} bytes is longer than the limit of {max_bytes} ({_LIMIT})"
    return f"a request cannot have a length of {size} bytes"
