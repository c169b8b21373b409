"""Row 1: the real machine behind the ports of `base`: its file system, clocks, threads and random numbers, and its
allocator."""

from logboom.host.allocator import keep_buffers
from logboom.host.clock import SystemClock
from logboom.host.disk import OsDisk, ReadOnlyDisk, make_directory
from logboom.host.ids import SystemIds
from logboom.host.workers import SystemWorkers

__all__ = [
    "OsDisk",
    "ReadOnlyDisk",
    "SystemClock",
    "SystemIds",
    "SystemWorkers",
    "keep_buffers",
    "make_directory",
]
