"""How Linux schedules a thread: the sched_getattr(2) that Python does not have."""

import ctypes
import platform
import struct
import sys
from typing import NamedTuple

_ATTRIBUTES = struct.Struct("<IIQiIQQQ")
_NUMBER = {"x86_64": 315, "aarch64": 275}


class Scheduling(NamedTuple):
    """Its policy, its niceness, and the length of its time slices in nanoseconds; 0 where the kernel has none."""

    policy: int
    niceness: int
    slice_ns: int


def scheduling_of(thread_id: int = 0) -> Scheduling:
    """Of a thread by its number, which for a process's main thread is the pid; 0 is the calling one."""
    found = ctypes.create_string_buffer(_ATTRIBUTES.size)
    if ctypes.CDLL(None).syscall(_NUMBER[platform.machine()], thread_id, found, _ATTRIBUTES.size, 0):
        raise AssertionError(f"thread {thread_id} cannot be looked at")
    _, policy, _, niceness, _, slice_ns, _, _ = _ATTRIBUTES.unpack(found)
    return Scheduling(policy, niceness, slice_ns)


def has_time_slices() -> bool:
    """Whether this kernel lets a thread have time slices of its own (Linux 6.12)."""
    return sys.platform == "linux" and platform.machine() in _NUMBER and scheduling_of().slice_ns > 0
