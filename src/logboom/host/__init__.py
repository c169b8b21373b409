"""Row 1: the ports of `base` on the real machine.

- `disk`: a directory tree on a POSIX file system. Positioned reads and writes, fdatasync, and a directory's own sync
  for the names in it. `ReadOnlyDisk` refuses every change, for tools that look at a broker's directory.
- `async_syncs`: fdatasync beside the event loop, by `io_uring` or `linux_aio`.
- `write_out`: write-back of a part of a file, for what is written in bulk; `reclaim`: the room of large files that were
  removed, given back a piece at a time.
- `idle_poll`: an event loop that looks for the next piece of work for a moment before it sleeps.
- `clock`, `ids`, `workers`: time, random ids, threads; `loops`: an event loop on a thread of its own.
- `tcp_ports`: ports that are held for servers which do not listen yet.
- `helper`: a process of this program beside it.
- `allocator`: settings of glibc's malloc for a process that reads and frees large buffers all the time.

The process's composition names these classes (`broker.runtime`, the collector's agent, commands); everything else is
handed a port. `sim` holds the counterparts for simulated time, threads and disks. It must not know what the bytes are.
"""

from logboom.host.allocator import keep_buffers
from logboom.host.clock import SystemClock
from logboom.host.disk import OsDisk, ReadOnlyDisk, make_directory
from logboom.host.idle_poll import IdlePoll
from logboom.host.ids import SystemIds
from logboom.host.loops import LoopThread
from logboom.host.time_slices import shorten_time_slices
from logboom.host.workers import SystemWorkers

__all__ = [
    "IdlePoll",
    "LoopThread",
    "OsDisk",
    "ReadOnlyDisk",
    "SystemClock",
    "SystemIds",
    "SystemWorkers",
    "keep_buffers",
    "make_directory",
    "shorten_time_slices",
]
