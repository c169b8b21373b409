"""What a process of this machine takes: processor time in nanoseconds, memory, threads, handles (proc(5))."""

import contextlib
from pathlib import Path


def cpu_ns(pid: int) -> int:
    """Nanoseconds on a processor so far, over all threads that live: `stat` counts in hundredths of a second."""
    total = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            total += int((task / "schedstat").read_text().split()[0])
    return total


def _status_kib(pid: int, field: str) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1])
    return 0


def memory_bytes(pid: int) -> int:
    """Resident memory, shared libraries included."""
    return 1024 * _status_kib(pid, "VmRSS")


def threads(pid: int) -> int:
    """Threads that live."""
    return sum(1 for _ in Path(f"/proc/{pid}/task").iterdir())


def wakeups(pid: int) -> int:
    """How often its threads have waited and gone on so far (voluntary context switches)."""
    total = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            lines = (task / "status").read_text().splitlines()
            total += sum(int(line.split()[1]) for line in lines if line.startswith("voluntary_ctxt_switches"))
    return total
