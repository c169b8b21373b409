"""Row 1: the real machine behind the ports of `base`: its file system, its clocks, and its allocator."""

from logboom.host.allocator import keep_buffers
from logboom.host.clock import SystemClock
from logboom.host.disk import OsDisk, ReadOnlyDisk, make_directory

__all__ = ["OsDisk", "ReadOnlyDisk", "SystemClock", "keep_buffers", "make_directory"]
