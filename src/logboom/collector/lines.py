r"""Cuts blocks of bytes into lines and holds the unfinished last one. Pure: it knows bytes and positions, no files.

A line ends with `\n`; a `\r` right before it belongs to the line's end. Nothing else is touched: invalid UTF-8, NULs
and empty lines pass as they are. A line longer than `max_line_bytes` is cut into pieces of exactly that size, each its
own record, all but the last marked unfinished; so nothing is lost and memory stays bounded.
"""

from itertools import accumulate, count
from operator import add

from logboom.collector.batch import Lines


class LineSplitter:
    """Lines of one source from `start` on. `start` moves to the first byte that was not handed out yet."""

    __slots__ = ("_held", "_max_line_bytes", "start")

    def __init__(self, start: int, max_line_bytes: int) -> None:
        assert max_line_bytes > 0
        self.start = start
        self._max_line_bytes = max_line_bytes
        self._held = b""

    @property
    def next_position(self) -> int:
        """Where the next block has to come from."""
        return self.start + len(self._held)

    @property
    def held_bytes(self) -> int:
        """Length of the unfinished line in memory."""
        return len(self._held)

    def feed(self, block: bytes) -> Lines:
        """All lines that `block`, which lies at `next_position`, finishes."""
        data = self._held + block if self._held else block
        values = data.split(b"\n")
        rest = values.pop()
        lengths = list(map(len, values))
        # Each line starts behind the bytes of all before it and one newline for each of them.
        starts = list(map(add, accumulate(lengths, initial=self.start), count()))
        lines = Lines(values, starts, starts.pop())
        longest = max(lengths, default=0)
        if longest > self._max_line_bytes or len(rest) > self._max_line_bytes:
            lines, rest = self._cut(lines, rest)
        if b"\r" in data and b"\r\n" in data:  # one byte is found ten times as fast as two, and nearly never there
            lines = _without_carriage_returns(lines)
        self.start, self._held = lines.end, rest
        return lines

    def flush(self) -> Lines | None:
        """The unfinished line as it is, because its source has ended."""
        if not self._held:
            return None
        lines = Lines([self._held], [self.start], self.next_position)
        self.start, self._held = lines.end, b""
        return lines

    def _cut(self, lines: Lines, rest: bytes) -> tuple[Lines, bytes]:
        """Over-long lines in pieces; also those pieces of the unfinished line that are full."""
        values: list[bytes] = []
        starts: list[int] = []
        unfinished: list[int] = []
        size = self._max_line_bytes
        for start, value in zip([*lines.starts, lines.end], [*lines.values, rest], strict=True):
            at = 0
            while len(value) - at > size:
                unfinished.append(len(values))
                values.append(value[at : at + size])
                starts.append(start + at)
                at += size
            values.append(value[at:])
            starts.append(start + at)
        rest, end = values.pop(), starts.pop()
        return Lines(values, starts, end, frozenset(unfinished)), rest


def _without_carriage_returns(lines: Lines) -> Lines:
    values = [
        value[:-1] if value.endswith(b"\r") and index not in lines.unfinished else value
        for index, value in enumerate(lines.values)
    ]
    return lines._replace(values=values)
