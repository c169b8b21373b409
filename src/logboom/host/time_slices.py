"""Short time slices: how soon a thread runs after it wakes up on a machine whose cores are all in use.

Since version 6.12 Linux lets a thread ask for its own length of a time slice (EEVDF, Documentation/scheduler/
sched-eevdf.rst). A thread with a short one runs before those with long ones when it wakes up, and is replaced sooner:
its share of the core stays what its niceness gives it. This needs no privilege. Threads and processes that are started
later inherit it.
"""

import contextlib
import ctypes
import os
import platform
import struct
import sys
from typing import Final

from logboom.host.system_calls import system_call

_NUMBERS: Final = {"x86_64": (314, 315), "aarch64": (274, 275)}
"""Of sched_setattr(2) and sched_getattr(2)."""
_ATTRIBUTES: Final = struct.Struct("<IIQiIQQQ")
"""struct sched_attr in its first version: size, policy, flags, niceness, priority, runtime, deadline, period."""
_RUNTIME: Final = 5


def shorten_time_slices(slice_us: int) -> bool:
    """Ask for time slices of this many microseconds for the calling thread and what it starts; 0 asks for the system's.

    False, with nothing changed, where the kernel has no such slices or does not allow it, and where somebody gave this
    thread a policy other than SCHED_OTHER.
    """
    numbers = _NUMBERS.get(platform.machine()) if sys.platform == "linux" else None
    if numbers is None:
        return False
    setattr_number, getattr_number = numbers
    with contextlib.suppress(OSError):
        found = ctypes.create_string_buffer(_ATTRIBUTES.size)
        size, no_flags, this_thread = ctypes.c_uint(_ATTRIBUTES.size), ctypes.c_uint(0), ctypes.c_int(0)
        system_call(getattr_number, this_thread, found, size, no_flags)
        attributes = list(_ATTRIBUTES.unpack(found))
        # Older kernels tell of no runtime outside of SCHED_DEADLINE, and take none.
        if attributes[1] != os.SCHED_OTHER or not attributes[_RUNTIME]:
            return False
        attributes[0], attributes[_RUNTIME] = _ATTRIBUTES.size, slice_us * 1_000
        wanted = ctypes.create_string_buffer(_ATTRIBUTES.pack(*attributes), _ATTRIBUTES.size)
        system_call(setattr_number, this_thread, wanted, no_flags)
        return True
    return False
