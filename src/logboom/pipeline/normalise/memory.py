"""Python's garbage collector while a kernel runs.

A kernel creates many small objects without reference cycles. Must not know any kernel.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def no_collections() -> Iterator[None]:
    """Pauses the collector while a batch is processed: scanning all the new objects would find no cycle."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
