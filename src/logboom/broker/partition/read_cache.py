"""Reads of the last moments, kept so that many who read the same are served by one read and one check.

A thousand consumers at the end of a partition are woken together and ask for the same offset; those that catch up
follow each other closely. What a reader who goes on will ask for next is read ahead, while the reply before it is on
its way. Knows bytes and offsets; where they come from and who may see them is the partition's. On the loop alone.

Two generations: what was asked for stays for one to two seconds, and never more bytes than allowed. What nobody else
asked for goes with the next read of its partition, so a lone reader holds two buffers and no more.
"""

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from logboom.base.ids import Offset

if TYPE_CHECKING:
    from logboom.broker.partition.reads import CommittedReads

GENERATION_S: Final = 1.0

_Key: TypeAlias = "tuple[CommittedReads, Offset, int]"


@dataclass(slots=True, eq=False)
class CachedRead:
    """Whole checked batches, and what lies behind them."""

    data: bytes | memoryview
    next_offset: Offset
    ceiling: Offset | None
    """Where the high-water mark stood, if it was that which ended the read: the same read may now give more."""
    goes_on: bool
    """Whether its reader came from the batches before it."""
    uses: int = 0


class ReadCache:
    """Life: that of the broker."""

    def __init__(self, limit_bytes: int) -> None:
        self._generation_bytes = limit_bytes // 2
        self._young: dict[_Key, CachedRead] = {}
        self._old: dict[_Key, CachedRead] = {}
        self._young_bytes = 0
        self._latest: dict[CommittedReads, _Key] = {}
        self._timer: asyncio.TimerHandle | None = None

    def find(
        self, partition: "CommittedReads", offset: Offset, max_bytes: int, high_watermark: Offset
    ) -> CachedRead | None:
        """The same read, as long as it would give the same again."""
        key = (partition, offset, max_bytes)
        read = self._young.get(key)
        if read is None:
            read = self._old.pop(key, None)
            if read is None:
                return None
            self._take(key, read)
        if read.ceiling is not None and read.ceiling != high_watermark:
            return None
        return read

    def keep(self, partition: "CommittedReads", offset: Offset, max_bytes: int, read: CachedRead) -> None:
        """Remember a read for those who ask for the same."""
        key = (partition, offset, max_bytes)
        before = self._latest.get(partition)
        if before is not None:
            self._drop_unshared(before)
        if len(read.data) <= self._generation_bytes:
            self._latest[partition] = key
            self._take(key, read)
            if self._timer is None:
                self._timer = asyncio.get_running_loop().call_later(GENERATION_S, self._tick)

    def forget(self, partition: "CommittedReads") -> None:
        """The partition's records are no longer what they were."""
        self._latest.pop(partition, None)
        for generation in (self._young, self._old):
            for key in [key for key in generation if key[0] is partition]:
                self._drop(key)

    def close(self) -> None:
        """Let go of everything; nobody reads any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._turn_over()
        self._turn_over()

    @property
    def held_bytes(self) -> int:
        """Bytes of both generations."""
        return self._young_bytes + sum(len(read.data) for read in self._old.values())

    def _take(self, key: _Key, read: CachedRead) -> None:
        self._drop(key)
        if self._young_bytes + len(read.data) > self._generation_bytes:
            self._turn_over()
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

    def _turn_over(self) -> None:
        self._old, self._young = self._young, {}
        self._young_bytes = 0
        self._latest = {key[0]: key for key in self._latest.values() if key in self._old}

    def _tick(self) -> None:
        self._timer = None
        self._turn_over()
        if self._old:
            self._timer = asyncio.get_running_loop().call_later(GENERATION_S, self._tick)
