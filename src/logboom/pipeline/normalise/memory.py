"""How kernels live with Python's garbage collector.

It knows that a kernel makes very many small objects that hold no circles. It must not know kernels.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def no_collections() -> Iterator[None]:
    """No collection while a batch is worked on: it would look through all its objects, again and again, in vain."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
