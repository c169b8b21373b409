"""Bytes from a NATS server, read in bulk.

    INFO {json}                                    what the server is, at the start and whenever that changes
    MSG subject sid [reply] size                   a message
    HMSG subject sid [reply] header-size size      a message with headers
    PING, PONG, +OK, -ERR 'text'

https://docs.nats.io/reference/reference-protocols/nats-protocol. Everything that is whole in what has arrived is read
at once. Pure. Bytes of anything else raise FrameError, after which the reader is of no use.
"""

from typing import Final, NamedTuple, TypeAlias

from logboom.base.errors import LogboomError
from logboom.base.units import KIB, MIB

LINE_BYTES_MAX: Final = 256 * KIB
"""Longest line; the longest are INFO lines that name all servers of a cluster."""
MESSAGE_BYTES_MAX: Final = 64 * MIB
"""Headers and payload of one message; nats-server allows no higher `max_payload`."""
_END: Final = b"\r\n"
_MESSAGES: Final = (b"MSG ", b"HMSG ", b"MSG\t", b"HMSG\t")
_WITH_REPLY: Final = 5
_SHOWN_BYTES: Final = 40


class FrameError(LogboomError):
    """What a server sent is not NATS's protocol."""


class Delivery(NamedTuple):
    """A message for one subscription."""

    sid: int
    subject: bytes
    reply: bytes
    """Empty where the publisher asks for no answer."""
    header: bytes
    """The header block, `NATS/1.0...`; empty where there is none."""
    payload: bytes


class Info(NamedTuple):
    """What the server says of itself, as JSON."""

    text: bytes


class Refusal(NamedTuple):
    """An error that the server tells; it closes the connection after most of them."""

    text: str


class Ping(NamedTuple):
    """Wants a PONG."""


class Pong(NamedTuple):
    """Answers a PING."""


Notice: TypeAlias = Info | Refusal | Ping | Pong


class FrameReader:
    """Reads one connection from its first byte on."""

    def __init__(self) -> None:
        self._rest: list[bytes] = []
        self._size_bytes = 0
        self._needed_bytes = 0

    @property
    def unread_bytes(self) -> int:
        """Of a frame that has not arrived whole."""
        return self._size_bytes

    def feed(self, data: bytes) -> list[list[Delivery] | Notice]:
        """What is whole now, in order: runs of messages, with the notices between them. Raises FrameError."""
        self._rest.append(data)
        self._size_bytes += len(data)
        if self._size_bytes < self._needed_bytes:
            return []
        buffer = data if len(self._rest) == 1 else b"".join(self._rest)
        read: list[list[Delivery] | Notice] = []
        at, self._needed_bytes = _read(buffer, read)
        self._size_bytes = len(buffer) - at
        self._rest = [buffer[at:]] if self._size_bytes else []
        return read


def _read(buffer: bytes, read: list[list[Delivery] | Notice]) -> tuple[int, int]:
    """Read what is whole. How many bytes that was, and how many there must be behind it before it is worth to go on."""
    at = needed = 0
    while True:
        run: list[Delivery] = []
        at, needed = _read_run(buffer, at, run)
        if run:
            read.append(run)
        line_end = buffer.find(_END, at)
        if needed or line_end < 0:
            break
        read.extend(_notice(buffer[at:line_end]))
        at = line_end + 2
    if not needed and len(buffer) - at > LINE_BYTES_MAX:
        raise FrameError(f"a line of more than {LINE_BYTES_MAX} bytes")
    return at, needed


def _read_run(buffer: bytes, at: int, run: list[Delivery]) -> tuple[int, int]:
    """Read messages up to the first line of another kind, or the first that is not whole; as `_read`."""
    end, find, make, deliver = len(buffer), buffer.find, Delivery._make, run.append
    last, head = b"", _Head(0, b"", b"", 0, 0)
    while (line_end := find(_END, at)) >= 0:
        line = buffer[at:line_end]
        if line != last:  # often many of one subject and one size come together
            if not line.startswith(_MESSAGES):
                break
            last, head = line, _head(line)
        sid, subject, reply, header_size, size = head
        body = line_end + 2
        body_end = body + size
        if body_end + 2 > end:
            return at, body_end + 2 - at
        if buffer[body_end : body_end + 2] != _END:
            raise FrameError("a message is longer than its line says")
        if header_size:
            split = body + header_size
            deliver(make((sid, subject, reply, buffer[body:split], buffer[split:body_end])))
        else:
            deliver(make((sid, subject, reply, b"", buffer[body:body_end])))
        at = body_end + 2
    return at, 0


class _Head(NamedTuple):
    """What the line of a message says."""

    sid: int
    subject: bytes
    reply: bytes
    header_size: int
    size: int
    """Of headers and payload."""


def _head(line: bytes) -> _Head:
    """The words of a line. Raises FrameError."""
    words = line.split()
    try:
        header_size = int(words.pop(-2)) if words[0] == b"HMSG" else 0
        sid, size = int(words[2]), int(words[-1])
    except (ValueError, IndexError):
        raise FrameError(f"no frame of NATS: {_shown(line)}") from None
    if not _WITH_REPLY - 1 <= len(words) <= _WITH_REPLY:
        raise FrameError(f"no frame of NATS: {_shown(line)}")
    if not 0 <= header_size <= size <= MESSAGE_BYTES_MAX:
        raise FrameError(f"a message of {size} bytes, {header_size} of them headers")
    return _Head(sid, words[1], words[3] if len(words) == _WITH_REPLY else b"", header_size, size)


def _notice(line: bytes) -> list[Notice]:
    """The notice of a line, if it is one that matters."""
    verb, _, rest = line.partition(b" ")
    match verb.upper():
        case b"PING":
            return [Ping()]
        case b"PONG":
            return [Pong()]
        case b"+OK":
            return []
        case b"-ERR":
            return [Refusal(rest.strip().strip(b"'").decode("utf-8", "replace"))]
        case b"INFO":
            return [Info(rest)]
    raise FrameError(f"no frame of NATS: {_shown(line)}")


def _shown(line: bytes) -> str:
    return repr(line[:_SHOWN_BYTES].decode("ascii", "replace"))
