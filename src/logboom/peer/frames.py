"""Frames of an authenticated connection: how they look, how they are sealed, and how bytes are cut into them.

A frame is a head of 20 bytes, a seal of 16 bytes and a body:

    u32 length of the body | u32 covered | u8 what | u8 kind | u16 0 | u32 number | u32 timeout in ms | seal | body

The seal is HMAC-SHA256, cut to 16 bytes, over the frame's position among the frames of its direction, the head and the
first `covered` bytes of the body, under a key of this connection and direction alone. A frame that was changed there,
inserted, left out, repeated or moved by somebody on the way therefore ends the connection. Pure: knows no socket.
"""

import hmac
from collections.abc import Iterable, Sequence
from enum import IntEnum
from hashlib import sha256
from struct import Struct
from typing import Final, NamedTuple

from logboom.base.ports import Bytes
from logboom.base.units import KIB
from logboom.broker.peers import BODY_BYTES_MAX

SCRATCH_BYTES: Final = 256 * KIB
"""The most that one read returns between frames."""

_HEAD: Final = Struct(">IIBBHII")
_SIZE: Final = Struct(">I")
_POSITION: Final = Struct(">Q")
_SEAL_BYTES: Final = 16
PREFIX_BYTES: Final = _HEAD.size + _SEAL_BYTES
"""What a frame has beside its body."""

NUMBER_MAX: Final = 2**32 - 1
TIMEOUT_MS_MAX: Final = 2**32 - 1


_SHA256_BLOCK_BYTES: Final = 64
_INNER: Final = bytes(byte ^ 0x36 for byte in range(256))
_OUTER: Final = bytes(byte ^ 0x5C for byte in range(256))
"""What HMAC makes of the key's bytes for its two hashes (RFC 2104)."""


def size_of(body: Sequence[Bytes]) -> int:
    """Size in bytes, also of views whose items are longer."""
    size_bytes = 0
    for part in body:
        size_bytes += part.nbytes if isinstance(part, memoryview) else len(part)
    return size_bytes


class What(IntEnum):
    """What a frame is for."""

    REQUEST = 1
    POST = 2
    ANSWER = 3
    FAILURE = 4
    """The answer is an error (`failures`)."""
    PING = 5
    PONG = 6
    PART = 7
    """Of an answer that follows, to a request whose sender takes parts."""


_WHATS: Final = {int(what): what for what in What}
_WITHOUT_BODY: Final = frozenset({What.PING, What.PONG})


class FrameError(Exception):
    """Bytes that are not a frame of the other side; the text says why."""


class Frame(NamedTuple):
    """One frame that has arrived."""

    what: What
    kind: int
    """Of a request or a post: `broker.peers.FrameKind`; else 0."""
    number: int
    """Of a request, its sender's count; of an answer, that of its request; else 0."""
    timeout_ms: int
    """Of a request: how long its sender waits; else 0."""
    body: memoryview


class Sealer:
    """Seals the frames of one direction, or checks their seals, in their order.

    The two hashes of HMAC are kept as they are behind the key: `hmac.HMAC` is some calls of Python functions more for
    each frame, a third of its time, and a commit of three replicas has a dozen of them.
    """

    __slots__ = ("_inner", "_outer", "_position")

    def __init__(self, key: bytes) -> None:
        assert len(key) <= _SHA256_BLOCK_BYTES, "HMAC hashes longer keys first"
        block = key.ljust(_SHA256_BLOCK_BYTES, b"\0")
        self._inner = sha256(block.translate(_INNER))
        self._outer = sha256(block.translate(_OUTER))
        self._position = 0

    def seal(self, head: Bytes, body: Iterable[Bytes]) -> bytes:
        """The seal of the next frame."""
        inner = self._inner.copy()
        inner.update(_POSITION.pack(self._position) + head)
        self._position += 1
        for part in body:
            inner.update(part)
        outer = self._outer.copy()
        outer.update(inner.digest())
        return outer.digest()[:_SEAL_BYTES]


class FrameWriter:
    """The frames of one direction of a connection, as buffers to send."""

    __slots__ = ("_sealer",)

    def __init__(self, key: bytes) -> None:
        self._sealer = Sealer(key)

    def prefix(
        self,
        what: What,
        body: Sequence[Bytes],
        *,
        kind: int = 0,
        number: int = 0,
        timeout_ms: int = 0,
        covered: int | None = None,
    ) -> bytes:
        """What comes before the body of the next frame. The seal covers the first `covered` buffers of the body; all
        by default."""
        size_bytes = covered_bytes = size_of(body)
        assert size_bytes <= BODY_BYTES_MAX
        if covered is not None:
            body = body[:covered]
            covered_bytes = size_of(body)
        head = _HEAD.pack(size_bytes, covered_bytes, what, kind, 0, number, timeout_ms)
        return head + self._sealer.seal(head, body)


class FrameReader:
    """Cuts the bytes of one direction into frames.

    `scratch` may be shared by all connections of a loop: it holds nothing between `buffer` and `received`. A body that
    arrives in several reads is read into a buffer of its own; whoever gets a frame may keep its body.
    """

    __slots__ = ("_body", "_filled", "_prefix", "_rest", "_scratch", "_sealer")

    def __init__(self, key: bytes, scratch: memoryview) -> None:
        self._sealer = Sealer(key)
        self._scratch = scratch
        self._rest = b""
        self._prefix = b""
        self._body: bytearray | None = None
        self._filled = 0

    def buffer(self) -> memoryview:
        """The buffer for the next bytes."""
        if self._body is not None:
            return memoryview(self._body)[self._filled :]
        if self._rest:
            self._scratch[: len(self._rest)] = self._rest
            return self._scratch[len(self._rest) :]
        return self._scratch

    def received(self, count: int) -> list[Frame]:
        """`count` bytes were written to the buffer: the frames that they completed. Raises FrameError."""
        if self._body is None:
            end = len(self._rest) + count
            return self._cut(self._scratch[:end])
        self._filled += count
        if self._filled < len(self._body):
            return []
        body, self._body = self._body, None
        return [self._frame(self._prefix, memoryview(body))]

    def feed(self, data: Bytes) -> list[Frame]:
        """As `received`, for bytes that were read before this reader was there. Raises FrameError."""
        return self._cut(memoryview(data))

    def _cut(self, data: memoryview) -> list[Frame]:
        frames: list[Frame] = []
        position = 0
        while len(data) - position >= PREFIX_BYTES:
            (size,) = _SIZE.unpack_from(data, position)
            if size > BODY_BYTES_MAX:
                raise FrameError(f"a frame of {size} bytes is longer than the limit of {BODY_BYTES_MAX}")
            prefix = bytes(data[position : position + PREFIX_BYTES])
            position += PREFIX_BYTES
            if len(data) - position < size:
                self._begin(prefix, size, data[position:])
                return frames
            frames.append(self._frame(prefix, memoryview(bytes(data[position : position + size]))))
            position += size
        self._rest = bytes(data[position:])
        return frames

    def _begin(self, prefix: bytes, size: int, start: memoryview) -> None:
        self._prefix = prefix
        self._rest = b""
        self._body = bytearray(size)
        self._body[: len(start)] = start
        self._filled = len(start)

    def _frame(self, prefix: bytes, body: memoryview) -> Frame:
        size, covered_bytes, what_number, kind, zero, number, timeout_ms = _HEAD.unpack_from(prefix)
        seal = self._sealer.seal(prefix[: _HEAD.size], (body[:covered_bytes],))
        if not hmac.compare_digest(seal, prefix[_HEAD.size :]):
            raise FrameError("a frame was changed on its way, or is not the other broker's: its seal is wrong")
        what = _WHATS.get(what_number)
        if what is None or zero or covered_bytes > size or (what in _WITHOUT_BODY and size):
            raise FrameError(f"a frame of unknown form ({prefix[: _HEAD.size].hex()})")
        return Frame(what, kind, number, timeout_ms, body)
