"""Reads one file forward, line by line, and notices when its content was replaced under it.

It knows one open file; which files there are, and what a rotation means, is the business of `files`.
"""

import os
import secrets
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from typing import NamedTuple

from logboom.collector.batch import Lines, concatenate
from logboom.collector.fingerprint import HEAD_BYTES, TAIL_BYTES, Fingerprint
from logboom.collector.joiner import Joiner, JoinRule
from logboom.collector.lines import LineSplitter


class Identity(NamedTuple):
    """Which file: true as long as the file exists, given to another one after that."""

    device: int
    inode: int


_ID_BYTES = 8


def new_content_id() -> str:
    """An id that no other content of a file, and no other buffer, of any host has."""
    return secrets.token_hex(_ID_BYTES)


@dataclass(slots=True, eq=False)
class Generation:
    """One content of one file: what a checkpoint speaks of. A truncated file begins a new generation.

    `path` is the path under which the content was written; it stays when the file is renamed. `acked` moves only when
    the log has acknowledged everything before it. `closed` means that no more will be read from it.
    """

    path: str
    identity: Identity
    acked: Fingerprint
    closed: bool = False
    outstanding: int = 0
    id: str = field(default_factory=new_content_id)
    """Sent with every line: with the line's position it tells the line from every other one."""
    durable_head_bytes: int = -1
    """How many bytes of its head the last checkpoint covers; -1 if no checkpoint holds it."""

    @property
    def finished(self) -> bool:
        """Whether everything of it was read and acknowledged, so that it can be forgotten."""
        return self.closed and self.outstanding == 0

    @property
    def is_durable(self) -> bool:
        """Whether a checkpoint holds the id, and all that is known of the head. Only then may lines be sent: otherwise
        a run after a crash would send them again with another id, or take any other content of the file for this one,
        and send that with this id."""
        return self.durable_head_bytes >= self.acked.head_bytes

    def note_checkpoint(self) -> None:
        """It is in a checkpoint as it is now."""
        self.durable_head_bytes = self.acked.head_bytes

    def acknowledge(self, mark: Fingerprint) -> None:
        """The log has everything before the mark. More may be known of the head since it was taken."""
        known = self.acked
        longer = mark.head_bytes < known.head_bytes
        self.acked = replace(mark, head_bytes=known.head_bytes, head=known.head) if longer else mark


class FileBatch(NamedTuple):
    """Lines of one generation, and the mark to which the checkpoint moves once they are acknowledged."""

    generation: Generation
    lines: Lines
    mark: Fingerprint


class Reading(Enum):
    """What a turn of reading found."""

    MORE = auto()
    AT_END = auto()
    REPLACED = auto()


@dataclass(frozen=True, slots=True)
class ReadRule:
    """How the lines of one input are read."""

    max_line_bytes: int
    block_bytes: int
    join: JoinRule | None


class FileTail:
    """One generation being read. The handle may be given back between turns and is opened again by its path."""

    def __init__(self, generation: Generation, location: str, rule: ReadRule, handle: int, position: int) -> None:
        self.generation = generation
        self.location = location
        self._rule = rule
        self._handle: int | None = handle
        self._splitter = LineSplitter(position, rule.max_line_bytes)
        self._joiner = Joiner(rule.join) if rule.join else None
        self._head = b""
        self._see_head(self.read_at(0, HEAD_BYTES), 0)
        tail_start = max(0, position - TAIL_BYTES)
        self._tail = self.read_at(tail_start, position - tail_start)

    # --- the handle ---

    @property
    def is_open(self) -> bool:
        """Whether it holds a handle."""
        return self._handle is not None

    def take_handle(self, handle: int) -> None:
        """Give it a handle of its file again."""
        assert self._handle is None
        self._handle = handle

    def release(self) -> None:
        """Give the handle back; idempotent."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None

    def detach(self) -> int:
        """Take the handle away, still open, for another tail of the same file."""
        assert self._handle is not None
        handle, self._handle = self._handle, None
        return handle

    def stat(self) -> os.stat_result:
        """Of the open file, wherever it is now."""
        assert self._handle is not None
        return os.fstat(self._handle)

    def read_at(self, position: int, length: int) -> bytes:
        """Bytes of the open file; fewer only at its end."""
        assert self._handle is not None
        return os.pread(self._handle, length, position)

    # --- reading ---

    @property
    def read_position(self) -> int:
        """Up to where bytes were taken into memory."""
        return self._splitter.next_position

    @property
    def emitted_position(self) -> int:
        """Up to where lines were handed out."""
        pending = self._joiner.start if self._joiner else None
        return self._splitter.start if pending is None else pending

    @property
    def holds_event(self) -> bool:
        """Whether a joined event waits for its next line."""
        return self._joiner is not None and self._joiner.start is not None

    @property
    def holds_something(self) -> bool:
        """Whether an unfinished line or event is in memory."""
        return self.emitted_position < self.read_position

    def content(self) -> Fingerprint:
        """Of everything that was read so far, to find a copy of it."""
        return Fingerprint.of(self.read_position, self._head, self._tail)

    def read(self, now_ms: int) -> tuple[Reading, FileBatch | None]:
        """One block. The bytes before it and the head of the file are compared with what they were, after the read, so
        a block is taken only if the file was still the same one."""
        position = self.read_position
        known = len(self._tail)
        data = self.read_at(position - known, known + self._rule.block_bytes)
        if not data.startswith(self._tail) or self.read_at(0, len(self._head)) != self._head:
            return Reading.REPLACED, None
        block = data[known:] if known else data
        if not block:
            return Reading.AT_END, None
        self._see_head(block, position)
        lines = self._splitter.feed(block)
        self._tail = data[-TAIL_BYTES:]
        if self._joiner:
            lines = self._joiner.feed(lines, now_ms)
        reading = Reading.MORE if len(block) == self._rule.block_bytes else Reading.AT_END
        if not lines.values:
            return reading, None
        return reading, self._batch(lines, self._tail_before(lines.end, data, position - known))

    def is_replaced(self) -> bool:
        """Whether another content begins where the known one began. Learns the head of a growing file on the way, so
        that a copy is known even of a file whose turn to be read never came."""
        head = self.read_at(0, HEAD_BYTES)
        if not head.startswith(self._head):
            return True
        self._see_head(head, 0)
        return False

    def _see_head(self, block: bytes, position: int) -> None:
        """A file shorter than the window of its fingerprint is known the better the more it grows."""
        known = len(self._head)
        if known < HEAD_BYTES and position <= known < position + len(block):
            self._head = (self._head + block[known - position :])[:HEAD_BYTES]
            self.generation.acked = self.generation.acked.with_head(self._head)

    def idle_event(self, now_ms: int) -> FileBatch | None:
        """The joined event that waited too long for a next line."""
        if self._joiner is None or not self._joiner.is_idle(now_ms):
            return None
        lines = self._joiner.flush()
        assert lines is not None
        return self._batch(lines, self._tail_before(lines.end, self._tail, self.read_position - len(self._tail)))

    def finish(self, now_ms: int) -> FileBatch | None:
        """What is still held, an unfinished line included, because nothing more will come."""
        pieces = [self._splitter.flush()]
        if self._joiner:
            if pieces[0] is not None:
                pieces = [self._joiner.feed(pieces[0], now_ms)]
            pieces.append(self._joiner.flush())
        lines = concatenate(piece for piece in pieces if piece is not None and piece.values)
        return None if lines is None else self._batch(lines, self._tail)

    def _batch(self, lines: Lines, tail: bytes) -> FileBatch:
        self.generation.outstanding += 1
        return FileBatch(self.generation, lines, Fingerprint.of(lines.end, self._head, tail))

    def _tail_before(self, position: int, window: bytes, window_start: int) -> bytes:
        """The bytes right before `position`, out of the window where it holds them."""
        wanted_start = max(0, position - TAIL_BYTES)
        if wanted_start >= window_start:
            return window[wanted_start - window_start : position - window_start]
        if self._handle is None:
            return b""
        return self.read_at(wanted_start, position - wanted_start)


def last_line_start(handle: int, size: int, max_line_bytes: int) -> Fingerprint:
    """The start of the last, unfinished line; the end of the file where its last line is finished.

    A line longer than `max_line_bytes` is not looked for: then the end of the file counts as well.
    """
    window_start = max(0, size - max_line_bytes)
    newline = os.pread(handle, size - window_start, window_start).rfind(b"\n")
    position = window_start + newline + 1 if newline >= 0 or window_start == 0 else size
    return Fingerprint.taken(position, lambda start, length: os.pread(handle, length, start))
