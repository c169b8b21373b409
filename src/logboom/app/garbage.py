"""Short garbage collections in a process that keeps millions of objects: what has survived a full one is not visited
again for long.

A full collection of the interpreter visits every object there is, and nothing else runs meanwhile: with ten thousand
partitions long enough to lose the broker's lease. It comes whenever a quarter more objects are there than the last
time, this many times while those partitions are made. Here each full collection sets aside what it leaves
(`gc.freeze`), so that the next one visits only what was made since. Garbage among what was set aside stays until that
has doubled: then one collection visits everything. Where that would take long, it stays until there is eight times as
much.

While a node starts there are none: see `no_collections_at_start`.
"""

import asyncio
import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_FULL: Final = 2
"""The oldest generation of the interpreter."""
_WHOLE_MIN: Final = 200_000
"""So many objects are visited in a few milliseconds."""
_WHOLE_MAX: Final = 500_000
"""More take longer than a broker may stand still on a busy machine: half a second of processor time for a million."""
_GROWTH: Final = 2
_GROWTH_OF_MANY: Final = 8
"""So many times as many are there before all are visited again, few and many of them."""
_START_MAX_S: Final = 60.0
"""A start that takes longer has something to wait for."""
_FIRST_LOOK: Final = 8
"""After this many full collections, and twice as many, and so on, what was set aside is counted, which visits it
too."""


class _Collections:
    """Called at each collection of the interpreter, on the thread that caused it."""

    def __init__(self) -> None:
        self._kept = 0
        """How many objects the last collection has left that visited all of them."""
        self._is_whole = True
        self._collections = 0
        """Since then."""
        self._next_look = _FIRST_LOOK

    def __call__(self, phase: str, info: dict[str, int]) -> None:
        if phase != "stop" or info["generation"] != _FULL:
            return
        gc.freeze()
        self._collections += 1
        if self._is_whole:
            self._kept, self._is_whole = gc.get_freeze_count(), False
            self._collections, self._next_look = 0, _FIRST_LOOK
        elif self._collections == self._next_look:
            self._next_look *= 2
            growth = _GROWTH if _GROWTH * self._kept <= _WHOLE_MAX else _GROWTH_OF_MANY
            if gc.get_freeze_count() > max(growth * self._kept, _WHOLE_MIN):
                gc.unfreeze()
                self._is_whole = True


def keep_collections_short() -> None:
    """From now on. Once in a process."""
    gc.callbacks.append(_Collections())


@contextmanager
def no_collections_at_start() -> Iterator[None]:
    """While a node starts, on its loop. What a start makes stays as long as the process, so that to look for garbage in
    it finds nothing, and takes a quarter of the processor time of a start with ten thousand partitions. It is set aside
    at the end. A start that waits for others, which may take long, has collections again: what it tries leaves garbage.
    """
    waits = asyncio.get_running_loop().call_later(_START_MAX_S, gc.enable)
    gc.disable()
    try:
        yield
    finally:
        waits.cancel()
        gc.enable()
        gc.freeze()
