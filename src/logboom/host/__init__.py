"""Row 1: the real machine behind the ports of `base`: its file system and its clocks."""

from logboom.host.clock import SystemClock
from logboom.host.disk import OsDisk, ReadOnlyDisk

__all__ = ["OsDisk", "ReadOnlyDisk", "SystemClock"]
