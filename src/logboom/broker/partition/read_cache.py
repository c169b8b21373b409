"""Recent reads, kept so that many consumers that read the same are served by one read and one check of the batches.

A thousand consumers at the end of a partition are woken together and ask for the same offset; those that catch up
follow each other closely. What a sequential reader will ask for next is read ahead, while the reply before it is on its
way. Knows bytes and offsets; `reads` decides where they come from and what may be seen. On the loop alone.

Two generations: what was asked for stays for one to two seconds, and never more bytes than allowed. What no second
reader asked for goes with the next read of its partition, so a lone reader holds two buffers and no more.
"""

import asyncio
from dataclasses import dataclass
from typing import Final, TypeAlias

from logboom.base.ids import Offset

GENERATION_S: Final = 1.0

_Key: TypeAlias = tuple[object, Offset, int]
"""The owner of the read (a partition's reads, by identity), its first offset and its limit of bytes."""


@dataclass(slots=True, eq=False)
class CachedRead:
    """Whole checked batches, and what lies behind them."""

    data: bytes | memoryview
    next_offset: Offset
    ceiling: Offset | None
    """The high-water mark at which the read stopped, None where its byte limit did: once the mark has moved, the same
    read may give more."""
    sequential: bool
    """Whether its reader came from the batches before it."""
    uses: int = 0


class ReadCache:
    """Life: that of the broker."""

    def __init__(self, limit_bytes: int) -> None:
        self._generation_bytes = limit_bytes // 2
        self._young: dict[_Key, CachedRead] = {}
        self._old: dict[_Key, CachedRead] = {}
        self._young_bytes = 0
        self._latest: dict[object, _Key] = {}
        self._timer: asyncio.TimerHandle | None = None

    def find(self, owner: object, offset: Offset, max_bytes: int, high_watermark: Offset) -> CachedRead | None:
        """The same read, as long as it would give the same again."""
        key = (owner, offset, max_bytes)
        read = self._young.get(key)
        if read is None:
            read = self._old.pop(key, None)
            if read is None:
                return None
            self._put(key, read)
        if read.ceiling is not None and read.ceiling != high_watermark:
            return None
        return read

    def keep(self, owner: object, offset: Offset, max_bytes: int, read: CachedRead) -> None:
        """Remember a read for others that ask for the same."""
        key = (owner, offset, max_bytes)
        before = self._latest.get(owner)
        if before is not None:
            self._drop_unshared(before)
        if len(read.data) <= self._generation_bytes:
            self._latest[owner] = key
            self._put(key, read)
            if self._timer is None:
                self._timer = asyncio.get_running_loop().call_later(GENERATION_S, self._tick)

    def forget(self, owner: object) -> None:
        """Drop all reads of an owner whose records are no longer what they were."""
        self._latest.pop(owner, None)
        for generation in (self._young, self._old):
            for key in [key for key in generation if key[0] is owner]:
                self._drop(key)

    def close(self) -> None:
        """Drop everything; nothing is read any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._start_generation()
        self._start_generation()

    @property
    def held_bytes(self) -> int:
        """Bytes of both generations."""
        return self._young_bytes + sum(len(read.data) for read in self._old.values())

    def _put(self, key: _Key, read: CachedRead) -> None:
        self._drop(key)
        if self._young_bytes + len(read.data) > self._generation_bytes:
            self._start_generation()
        self._young[key] = read
        self._young_bytes += len(read.data)

    def _drop_unshared(self, key: _Key) -> None:
        read = self._young.get(key) or self._old.get(key)
        if read is not None and read.uses == 1:
            self._drop(key)

    def _drop(self, key: _Key) -> None:
        read = self._young.pop(key, None)
        if read is not None:
            self._young_bytes -= len(read.data)
        self._old.pop(key, None)

    def _start_generation(self) -> None:
        self._old, self._young = self._young, {}
        self._young_bytes = 0
        self._latest = {key[0]: key for key in self._latest.values() if key in self._old}

    def _tick(self) -> None:
        self._timer = None
        self._start_generation()
        if self._old:
            self._timer = asyncio.get_running_loop().call_later(GENERATION_S, self._tick)
