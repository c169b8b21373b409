"""Bytes from a NATS server, read in bulk.

    INFO {json}                                    what the server is, at the start and whenever that changes
    MSG subject sid [reply] size                   a message
    HMSG subject sid [reply] header-size size      a message with headers
    PING, PONG, +OK, -ERR 'text'

https://docs.nats.io/reference/reference-protocols/nats-protocol. Everything that is whole in what has arrived is read
at once; messages of one subject that stand one behind the other are split in one go, into columns. Pure. Bytes of
anything else raise FrameError, after which the reader is of no use.
"""

from collections.abc import Sequence
from itertools import chain
from struct import iter_unpack
from typing import Final, NamedTuple, TypeAlias, overload

from logboom.base.errors import LogboomError
from logboom.base.units import KIB, MIB
from logboom.nats.link.commands import is_word

LINE_BYTES_MAX: Final = 256 * KIB
"""Longest line; the longest are INFO lines that name all servers of a cluster."""
MESSAGE_BYTES_MAX: Final = 64 * MIB
"""Headers and payload of one message; nats-server allows no higher `max_payload`."""
_END: Final = b"\r\n"
_MESSAGES: Final = (b"MSG ", b"HMSG ", b"MSG\t", b"HMSG\t")
_WITH_REPLY: Final = 5
_SHOWN_BYTES: Final = 40
_REFUSAL_BYTES_MAX: Final = 4 * KIB
"""Of the text of an error, which is logged: more than any that names a subject."""
_ALIKE_FRAMES: Final = 16
"""So many frames of the size of the first are looked at first when messages are split in one go; then more."""
_ALIKE_BYTES_MAX: Final = 256 * KIB
_ALIKE_ROWS: Final = 1_024
"""So many frames are looked at first as rows of a table; then more."""
_PIECE_BYTES: Final = KIB
"""Smaller pieces of a frame are kept together."""


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


class Alike(Sequence[Delivery]):
    """Messages of one subscription and one subject, without headers, in their order; kept as columns."""

    __slots__ = ("are_of_one_size", "payloads", "replies", "sid", "size_bytes", "subject")

    def __init__(self, sid: int, subject: bytes) -> None:
        self.sid = sid
        self.subject = subject
        self.replies: list[bytes] = []
        self.payloads: list[bytes] = []
        self.size_bytes = 0
        """Of all payloads."""
        self.are_of_one_size = True
        """Whether all replies are of one size, none where one has none, and all payloads."""

    def add(self, replies: Sequence[bytes], payloads: Sequence[bytes], *, of_one_size: bool) -> None:
        """More messages, at least one. `of_one_size`: whether these are."""
        if self.are_of_one_size:
            self.are_of_one_size = of_one_size and (
                not self.payloads
                or (len(self.payloads[0]) == len(payloads[0]) and len(self.replies[0]) == len(replies[0]))
            )
        self.size_bytes += len(payloads) * len(payloads[0]) if of_one_size else sum(map(len, payloads))
        self.replies += replies
        self.payloads += payloads

    def __len__(self) -> int:
        return len(self.payloads)

    @overload
    def __getitem__(self, place: int) -> Delivery: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[Delivery]: ...
    def __getitem__(self, place: int | slice) -> Delivery | Sequence[Delivery]:
        if isinstance(place, slice):
            return [self[one] for one in range(*place.indices(len(self)))]
        return Delivery(self.sid, self.subject, self.replies[place], b"", self.payloads[place])


Run: TypeAlias = list[Delivery] | Alike
"""Messages that came one behind the other."""


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
        self._rest: list[bytes | bytearray] = []
        self._size_bytes = 0
        self._needed_bytes = 0
        self._has_line = True
        """Whether what is unread has a whole line in it, or may have."""

    @property
    def unread_bytes(self) -> int:
        """Of a frame that has not arrived whole."""
        return self._size_bytes

    def feed(self, data: bytes) -> list[Run | Notice]:
        """What is whole now, in order: runs of messages, with the notices between them. Raises FrameError."""
        self._has_line = self._has_line or self._ends_a_line(data)
        self._keep(data)
        if self._size_bytes < self._needed_bytes:
            return []
        if not self._has_line:
            self._check_line()
            return []
        buffer = data if len(self._rest) == 1 else b"".join(self._rest)
        read: list[Run | Notice] = []
        at, self._needed_bytes = _read(buffer, read)
        self._size_bytes = len(buffer) - at
        self._rest = [buffer[at:]] if self._size_bytes else []
        self._has_line = not self._size_bytes or self._needed_bytes > 0
        self._check_line()
        return read

    def _keep(self, data: bytes) -> None:
        """What comes in pieces of some bytes takes as much memory as it has bytes, and not an object for each piece."""
        self._size_bytes += len(data)
        if not self._rest or len(data) >= _PIECE_BYTES:
            self._rest.append(data)
            return
        last = self._rest[-1]
        if isinstance(last, bytearray):
            last += data
        elif data:
            self._rest.append(bytearray(data))

    def _ends_a_line(self, data: bytes) -> bool:
        """Whether the line that has not arrived whole ends in what comes now. What came before is not looked at again:
        a line that drips in would cost the square of its length."""
        return _END in data or (data[:1] == _END[1:] and self._rest[-1][-1:] == _END[:1])

    def _check_line(self) -> None:
        if not self._has_line and self._size_bytes > LINE_BYTES_MAX:
            raise FrameError(f"a line of more than {LINE_BYTES_MAX} bytes")


def _read(buffer: bytes, read: list[Run | Notice]) -> tuple[int, int]:
    """Read what is whole. How many bytes that was, and how many there must be behind it before it is worth to go on."""
    at = needed = 0
    while True:
        at, needed = _read_messages(buffer, at, read)
        line_end = buffer.find(_END, at)
        if needed or line_end < 0:
            break
        read.extend(_notice(buffer[at:line_end]))
        at = line_end + 2
    return at, needed


def _read_messages(buffer: bytes, at: int, read: list[Run | Notice]) -> tuple[int, int]:
    """Read messages up to the first line of another kind, or the first that is not whole; as `_read`."""
    end, find, make, run = len(buffer), buffer.find, Delivery._make, list[Delivery]()
    last, head, start = b"", _Head(0, b"", b"", 0, 0), b""
    needed, open_ = 0, None
    while (line_end := find(_END, at)) >= 0:
        line = buffer[at:line_end]
        if line != last:
            if not line.startswith(_MESSAGES):
                break
            last, head = line, _head(line)
            start = b"" if head.header_size else b"MSG %b %d " % (head.subject, head.sid)
        sid, subject, reply, header_size, size = head
        body = line_end + 2
        body_end = body + size
        if body_end + 2 > end:
            needed = body_end + 2 - at
            break
        if buffer[body_end : body_end + 2] != _END:
            raise FrameError("a message is longer than its line says")
        if start and buffer.startswith(start, body_end + 2) and buffer.startswith(start, at):
            alike, after = _read_alike(buffer, at, start, head, body_end + 2 - at)
            if alike:
                read += [run, alike] if run else [alike]
                at, run, open_ = after, [], alike
                continue
        at = body_end + 2
        if open_ is not None and start and sid == open_.sid and subject == open_.subject:
            open_.add((reply,), (buffer[body:body_end],), of_one_size=True)
            continue
        open_, split = None, body + header_size
        run.append(make((sid, subject, reply, buffer[body:split], buffer[split:body_end])))
    if run:
        read.append(run)
    return at, needed


def _read_alike(buffer: bytes, at: int, start: bytes, head: "_Head", frame_bytes: int) -> tuple[Alike, int]:
    """Read frames that begin with `start`, of which there is a whole one at `at`, and where they end. Of those that
    differ in size the last one is left to be read alone, since nothing behind it says that it is whole."""
    alike, between, window = Alike(head.sid, head.subject), _END + start, _ALIKE_FRAMES * frame_bytes
    if 0 <= buffer.find(between, at + len(start), at + frame_bytes + len(start)) < at + frame_bytes - len(_END):
        return alike, at  # what separates messages is in its payload, so that splitting would not find its end
    rows_max = _ALIKE_ROWS
    while rows_max:
        row = at
        at = _take_rows(buffer, at, start, head, rows_max, alike)
        rows_max = _ALIKE_ROWS * rows_max if at - row == rows_max * frame_bytes else 0
    while buffer.startswith(start, at):
        pieces = buffer[at + len(start) : at + window].split(between)
        pieces.pop()
        taken = _take_columns(pieces, alike)
        at += sum(map(len, pieces[:taken])) + taken * len(between)
        if taken < len(pieces) or not taken:
            break
        window = min(4 * window, max(window, _ALIKE_BYTES_MAX))
    return alike, at


def _take_rows(buffer: bytes, at: int, start: bytes, head: "_Head", rows_max: int, alike: Alike) -> int:
    """Add the frames that stand from `at` on like rows of a table, one of them known to be right: replies of one size,
    payloads of one size. Where they end: at `at` where they are too few. More than `rows_max` are not looked at: of
    many that stand there a few may be alike, which would be looked at again and again.

    What is the same in all of them is compared a column of bytes at a time, so no frame is looked at by itself.
    """
    reply_bytes = len(head.reply)
    between = b" %d\r\n" % head.size if reply_bytes else b"%d\r\n" % head.size
    frame_bytes = len(start) + reply_bytes + len(between) + head.size + len(_END)
    fixed = ((0, start), (len(start) + reply_bytes, between), (frame_bytes - len(_END), _END))
    rows = min((len(buffer) - at) // frame_bytes, rows_max)
    for place, text in fixed:
        for column, byte in enumerate(text, at + place):
            found = buffer[column : at + rows * frame_bytes : frame_bytes]
            if found.count(byte) < rows:
                rows -= len(found.lstrip(bytes((byte,))))
            if rows < _ALIKE_FRAMES:
                return at
    end = at + rows * frame_bytes
    row = f"{len(start)}x{reply_bytes}s{len(between)}x{head.size}s{len(_END)}x"
    cells = list(chain.from_iterable(iter_unpack(row, memoryview(buffer)[at:end])))
    if not _are_words(cells[::2]):
        return at
    alike.add(cells[::2], cells[1::2], of_one_size=True)
    return end


def _take_columns(pieces: list[bytes], alike: Alike) -> int:
    """Add messages, each without the start of its line: how many, up to the first that is no whole message, since
    what separates messages may be in its payload."""
    of_one_size = _columns_of_one_size(pieces)
    columns = of_one_size or _columns(pieces)
    if columns is not None and _are_words(columns[0]):
        alike.add(*columns, of_one_size=of_one_size is not None)
        return len(pieces)
    for taken, piece in enumerate(pieces):
        line, between, payload = piece.partition(_END)
        reply, _, size = line.rpartition(b" ")
        if not between or not size.isdigit() or int(size) != len(payload) or not _are_words((reply,)):
            return taken
        alike.add((reply,), (payload,), of_one_size=True)
    return len(pieces)


_Columns = tuple[Sequence[bytes], Sequence[bytes]]
"""Replies and payloads."""


def _columns_of_one_size(pieces: list[bytes]) -> _Columns | None:
    """The columns of messages whose payloads are of one size, and whose replies are; None where they are not."""
    if not pieces or list(map(len, pieces)).count(len(pieces[0])) < len(pieces):
        return None
    line, between, payload = pieces[0].partition(_END)
    reply, _, size = line.rpartition(b" ")
    if not size.isdigit() or int(size) != len(payload):
        return None
    size_at, at = len(reply), len(line) + len(between)
    if {piece[size_at:at] for piece in pieces} != {pieces[0][size_at:at]}:
        return None
    replies = [piece[:size_at] for piece in pieces] if reply else [b""] * len(pieces)
    return replies, [piece[at:] for piece in pieces]


def _columns(pieces: list[bytes]) -> _Columns | None:
    """The columns of messages of any size; None where one of them is no whole message."""
    try:
        lines, payloads = zip(*[piece.split(_END, 1) for piece in pieces], strict=True)
        split = [line.rpartition(b" ") for line in lines]
        sizes = [int(size) for _, _, size in split]
    except ValueError:
        return None
    return ([reply for reply, _, _ in split], payloads) if sizes == list(map(len, payloads)) else None


def _are_words(replies: Sequence[bytes]) -> bool:
    """Whether there is no white space in them."""
    together = b"".join(replies)
    return not together or is_word(together)


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
    words = [word for word in line.replace(b"\t", b" ").split(b" ") if word]
    if not is_word(b"".join(words)):
        raise FrameError(f"no frame of NATS: {_shown(line)}")
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
            return [Refusal(rest[:_REFUSAL_BYTES_MAX].strip().strip(b"'").decode("utf-8", "replace"))]
        case b"INFO":
            return [Info(rest)]
    raise FrameError(f"no frame of NATS: {_shown(line)}")


def _shown(line: bytes) -> str:
    return repr(line[:_SHOWN_BYTES].decode("ascii", "replace"))
