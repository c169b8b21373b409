"""Joins the lines of one event, such as a stack trace, by the pattern of its first line. Pure: time is handed in.

A line that matches the start pattern begins an event; every other line belongs to the event before it. An event is
handed out when the next one begins, when it reaches a bound, or when its source was silent for `idle_timeout_ms`.
"""

import re
from dataclasses import dataclass

from logboom.collector.batch import Lines

PATTERN_SIGHT_BYTES = 4096
"""The pattern sees this much of a line, so a hostile line cannot keep it busy for long."""


@dataclass(frozen=True, slots=True)
class JoinRule:
    """How lines of one input become events."""

    start: re.Pattern[bytes]
    max_lines: int
    max_bytes: int
    idle_timeout_ms: int


class Joiner:
    """The event in the making of one source. `start` is the position of its first byte, None if there is none."""

    __slots__ = ("_end", "_glue", "_lines_count", "_parts", "_rule", "_size_bytes", "_touched_ms", "start")

    def __init__(self, rule: JoinRule) -> None:
        self._rule = rule
        self._parts: list[bytes] = []
        self._size_bytes = 0
        self._lines_count = 0
        self._glue = b""
        self._end = 0
        self._touched_ms = 0
        self.start: int | None = None

    def feed(self, lines: Lines, now_ms: int) -> Lines:
        """Every event that these lines finish. `end` is where the event in the making begins."""
        values: list[bytes] = []
        starts: list[int] = []
        sees_start = self._rule.start.match
        ends = [*lines.starts[1:], lines.end] if lines.values else []
        for index, (value, start, end) in enumerate(zip(lines.values, lines.starts, ends, strict=True)):
            continues_line = self._parts and not self._glue
            begins = not continues_line and sees_start(value, 0, PATTERN_SIGHT_BYTES) is not None
            if self._parts and (begins or self._is_full(len(value))):
                self._hand_out(values, starts)
            self._take(value, start, end, b"" if index in lines.unfinished else b"\n")
        if lines.values:
            self._touched_ms = now_ms
        return Lines(values, starts, lines.end if self.start is None else self.start)

    def flush(self) -> Lines | None:
        """The event in the making, because its source has ended or fell silent."""
        if self.start is None:
            return None
        values: list[bytes] = []
        starts: list[int] = []
        end = self._end
        self._hand_out(values, starts)
        return Lines(values, starts, end)

    def is_idle(self, now_ms: int) -> bool:
        """Whether an event waits and no line came for the idle timeout."""
        return self.start is not None and now_ms - self._touched_ms >= self._rule.idle_timeout_ms

    def _is_full(self, more_bytes: int) -> bool:
        return self._lines_count >= self._rule.max_lines or self._size_bytes + 1 + more_bytes > self._rule.max_bytes

    def _take(self, value: bytes, start: int, end: int, glue: bytes) -> None:
        if self.start is None:
            self.start = start
        else:
            self._parts.append(self._glue)
        self._parts.append(value)
        self._size_bytes += len(value) + 1
        self._lines_count += 1
        self._glue = glue
        self._end = end

    def _hand_out(self, values: list[bytes], starts: list[int]) -> None:
        assert self.start is not None
        values.append(b"".join(self._parts))
        starts.append(self.start)
        self._parts = []
        self._size_bytes = self._lines_count = 0
        self._glue = b""
        self.start = None
