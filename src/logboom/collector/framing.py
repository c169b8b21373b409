"""Octet-counted framing of stream sockets (RFC 6587, section 3.4.1): `LENGTH SP BYTES`, one behind the other. Pure."""

from logboom.collector.batch import Lines

MAX_COUNT_DIGITS = 10


class OctetSplitter:
    """Frames of one connection. The counterpart of `LineSplitter`, with the same words.

    `broken` says why the connection has to be closed: bytes came that are not a frame, and what follows them cannot be
    told apart. Frames before them are handed out all the same.
    """

    __slots__ = ("_held", "_max_line_bytes", "broken", "start")

    def __init__(self, start: int, max_line_bytes: int) -> None:
        self.start = start
        self.broken: str | None = None
        self._max_line_bytes = max_line_bytes
        self._held = b""

    @property
    def held_bytes(self) -> int:
        """Length of the unfinished frame in memory."""
        return len(self._held)

    def feed(self, block: bytes) -> Lines:
        """All frames that `block` finishes."""
        data = self._held + block
        values: list[bytes] = []
        starts: list[int] = []
        at = 0
        while (body := self._body(data, at)) is not None:
            first, length = body
            if len(data) - first < length:
                break
            values.append(data[first : first + length])
            starts.append(self.start + at)
            at = first + length
        self._held = data[at:]
        self.start += at
        return Lines(values, starts, self.start)

    def flush(self) -> Lines | None:
        """An unfinished frame is given up: its sender went away in the middle of it."""
        self.start += len(self._held)
        self._held = b""
        return None

    def _body(self, data: bytes, at: int) -> tuple[int, int] | None:
        """Position and length of the frame's bytes; None if its count is not whole yet or is none."""
        space = data.find(b" ", at, at + MAX_COUNT_DIGITS + 1)
        digits = data[at : space if space >= 0 else at + MAX_COUNT_DIGITS + 1]
        if digits and not digits.isdigit():
            self.broken = f"expected a count of bytes and found {digits[:20]!r}"
        elif space < 0 and len(digits) > MAX_COUNT_DIGITS:
            self.broken = f"a count of more than {MAX_COUNT_DIGITS} digits"
        elif space >= 0 and not digits:
            self.broken = "expected a count of bytes and found a space"
        elif space >= 0 and int(digits) > self._max_line_bytes:
            self.broken = f"a frame of {int(digits)} bytes is longer than max_line_bytes, {self._max_line_bytes}"
        if self.broken is not None or space < 0:
            return None
        return space + 1, int(digits)
