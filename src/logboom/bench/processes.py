"""CPU seconds of a family of processes, by what each of them is. Knows proc(5) and how Spark starts its workers."""

import os
from collections.abc import Iterator
from pathlib import Path

_STAT_PPID, _STAT_UTIME, _STAT_CSTIME = 1, 11, 14
"""Fields of /proc/PID/stat behind the command's closing bracket."""


def cpu_by_role(driver: int, server: int | None = None) -> dict[str, float]:
    """CPU seconds so far of a Spark driver, its JVM and its Python workers, and of a server where one is named.

    What children that have ended used is their parent's.
    """
    stats = dict(_stats())
    seconds = {"driver": 0.0, "jvm": 0.0, "workers": 0.0}
    for pid, role in _roles(driver, stats):
        seconds[role] += _seconds(stats[pid][1])
    if server is not None and server in stats:
        seconds["broker"] = _seconds(stats[server][1])
    return seconds


def family_cpu_s(pid: int) -> float:
    """CPU seconds so far of a process and all below it; what children that have ended used is their parent's."""
    stats = dict(_stats())
    return sum(_seconds(stats[one][1]) for one, _ in _roles(pid, stats))


def family(pid: int) -> list[int]:
    """A process that runs and all below it."""
    return [one for one, _ in _roles(pid, dict(_stats()))]


def _stats() -> Iterator[tuple[int, tuple[str, list[str]]]]:
    """Command and fields of every process."""
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            head, _, tail = path.read_text(errors="replace").rpartition(")")
        except OSError:  # it has ended meanwhile
            continue
        yield int(path.parent.name), (head.partition("(")[2], tail.split())


def _roles(driver: int, stats: dict[int, tuple[str, list[str]]]) -> Iterator[tuple[int, str]]:
    children: dict[int, list[int]] = {}
    for pid, (_, fields) in stats.items():
        children.setdefault(int(fields[_STAT_PPID]), []).append(pid)
    waiting = [(driver, "driver")] if driver in stats else []
    while waiting:
        pid, role = waiting.pop()
        yield pid, role
        for child in children.get(pid, ()):
            below = "workers" if role != "driver" else "jvm" if stats[child][0] == "java" else "driver"
            waiting.append((child, below))


def _seconds(fields: list[str]) -> float:
    ticks = sum(int(field) for field in fields[_STAT_UTIME : _STAT_CSTIME + 1])
    return ticks / os.sysconf("SC_CLK_TCK")
