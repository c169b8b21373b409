"""Tells whether bytes at the same place are still the same content: file identity beyond device and inode. Pure.

A fingerprint of a reading position covers the head of the file (up to `HEAD_BYTES`) and the bytes right before the
position (up to `TAIL_BYTES`). Log lines carry times, so two contents that agree in both are the same content.
"""

from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Protocol

HEAD_BYTES = 1024
TAIL_BYTES = 256
_DIGEST_BYTES = 12


class ReadAt(Protocol):
    """Reads up to `length` bytes at `position`; fewer only at the end."""

    def __call__(self, position: int, length: int) -> bytes: ...


def digest(content: bytes) -> str:
    """A short name for some bytes."""
    return blake2b(content, digest_size=_DIGEST_BYTES).hexdigest()


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """What lay at the head of a file and before `position` when it was read."""

    position: int = 0
    head_bytes: int = 0
    head: str = ""
    tail_bytes: int = 0
    tail: str = ""

    @classmethod
    def of(cls, position: int, head: bytes, tail: bytes) -> "Fingerprint":
        """From the bytes themselves; `tail` ends at `position`, `head` may reach beyond it."""
        head = head[:HEAD_BYTES]
        tail = tail[-TAIL_BYTES:]
        return cls(position, len(head), digest(head), len(tail), digest(tail))

    @classmethod
    def taken(cls, position: int, read_at: ReadAt) -> "Fingerprint":
        """From a file as it is now."""
        tail_start = max(0, position - TAIL_BYTES)
        return cls.of(position, read_at(0, HEAD_BYTES), read_at(tail_start, position - tail_start))

    def with_head(self, head: bytes) -> "Fingerprint":
        """The same position, with more known of the head."""
        return replace(self, head_bytes=len(head), head=digest(head))

    @property
    def says_nothing(self) -> bool:
        """Whether it covers no byte, so that every file would match."""
        return self.head_bytes == 0 and self.tail_bytes == 0

    def matches(self, read_at: ReadAt) -> bool:
        """Whether a file still (or also) holds that content before that position."""
        return self._same(read_at, self.position - self.tail_bytes, self.tail_bytes, self.tail) and self._same(
            read_at, 0, self.head_bytes, self.head
        )

    @staticmethod
    def _same(read_at: ReadAt, position: int, length: int, expected: str) -> bool:
        return length == 0 or digest(read_at(position, length)) == expected
