"""Keeps garbage collections short in a process with millions of objects: what has survived a full collection is not
visited again for a long time.

A full collection of the interpreter visits every object, and nothing else runs meanwhile. With ten thousand partitions
that takes long enough to lose the broker's lease, and it happens whenever there are a quarter more objects than at the
last one, so again and again while partitions are created. Here each full collection sets aside what it leaves
(`gc.freeze`), so that the next one visits only what was made since. Garbage among the objects set aside stays until
their number has doubled: then one collection visits everything. If that would take long, it stays until there are eight
times as many.
"""

import asyncio
import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_FULL: Final = 2
"""The oldest generation of the interpreter."""
_WHOLE_MIN: Final = 200_000
"""The number of objects that are visited in a few milliseconds."""
_WHOLE_MAX: Final = 500_000
"""With more objects a full collection takes longer than a broker may stand still on a busy machine: half a second of
processor time for a million."""
_GROWTH: Final = 2
_GROWTH_OF_MANY: Final = 8
"""How many times as many objects there have to be before all are visited again, below and above that number."""
_START_MAX_S: Final = 60.0
"""A start that takes longer is waiting for something."""
_FIRST_LOOK: Final = 8
"""After this many full collections, then twice as many and so on, the objects set aside are counted, which visits them
too."""


class _Collections:
    """Called at each collection of the interpreter, on the thread that caused it."""

    def __init__(self) -> None:
        self._kept = 0
        """The number of objects left by the last collection that visited all of them."""
        self._is_whole = True
        self._collections = 0
        """Full collections since then."""
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
    """Take effect from now on. Call once in a process."""
    gc.callbacks.append(_Collections())


@contextmanager
def no_collections_at_start() -> Iterator[None]:
    """No collections while a node starts, on its loop. What a start makes stays as long as the process, so looking for
    garbage in it finds nothing and takes a quarter of the processor time of a start with ten thousand partitions. It is
    set aside at the end. A start that waits for other brokers, which may take long, has collections again, since its
    retries leave garbage."""
    waits = asyncio.get_running_loop().call_later(_START_MAX_S, gc.enable)
    gc.disable()
    try:
        yield
    finally:
        waits.cancel()
        gc.enable()
        gc.freeze()
