"""How glibc's allocator serves this process: large buffers are used again, not given back after each use.

By default every buffer above 128 KiB is a mapping of its own, whose pages are faulted in and thrown away each time: for
fetches of 1 MiB that was half of the broker's CPU time (docs/performance-history.md). See mallopt(3).
"""

import ctypes
from typing import Final

from logboom.base.units import MIB

_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3

KEPT_BYTES: Final = 64 * MIB
"""So much freed memory stays with a broker at most."""

_MAPPED_FROM_BYTES: Final = 32 * MIB
"""Buffers from here on are still mappings of their own; the most that glibc allows."""


_new_bytearray = ctypes.pythonapi.PyByteArray_FromStringAndSize
_new_bytearray.argtypes = (ctypes.c_char_p, ctypes.c_ssize_t)
_new_bytearray.restype = ctypes.py_object


def raw_buffer(length: int) -> bytearray:
    """A buffer to be filled at once, its first bytes whatever memory held: zeros for a read of 1 MiB cost 50 us.

    The caller cuts off what it did not fill before it passes the buffer on.
    """
    buffer: bytearray = _new_bytearray(None, length)
    return buffer


def keep_buffers(kept_bytes: int = KEPT_BYTES) -> bool:
    """Set both thresholds, so that at most so much freed memory stays at the heap's end.

    False where the C library is not glibc, which loses speed alone.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    return bool(mallopt(_M_MMAP_THRESHOLD, _MAPPED_FROM_BYTES)) and bool(mallopt(_M_TRIM_THRESHOLD, kept_bytes))
