"""What the broker's process looks like each second, and whether it stays so: a line through the second half."""

import os
import statistics
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from logboom.bench import report
from logboom.bench.servers import Server

METRICS: Final = ("memory_mb", "handles", "threads", "cpu_percent", "disk_mb")
ALLOWED: Final = {"memory_mb": (10.0, 0.05), "handles": (5.0, 0.05), "threads": (4.0, 0.0), "disk_mb": (64.0, 0.10)}
"""Growth over the judged time that still counts as flat: the larger of a number and a share of the median.

The broker's pools are bounded, but start a thread only when all that they have are busy, so a few come late where the
machine has other work."""
JUDGED_MIN_S: Final = 120.0
"""A shorter span is too noisy to fit a line to."""


@dataclass
class Samples:
    """One list a metric, a value a second; None while no broker runs."""

    at_s: list[float] = field(default_factory=list)
    values: dict[str, list[float | None]] = field(default_factory=lambda: {name: [] for name in METRICS})
    acked: list[float | None] = field(default_factory=list)


def sample(server: Server, acked: Callable[[], int], samples: Samples, stop: threading.Event) -> None:
    """Thread: sample once a second until stopped."""
    began, before, last_acked = time.monotonic(), (-1, 0.0), acked()
    while not stop.wait(1.0):
        samples.at_s.append(round(time.monotonic() - began, 2))
        try:
            seen, before = _look(server, before)
        except (OSError, ValueError, AssertionError):  # no process, or one that is just ending
            seen, before = {}, (-1, 0.0)
        for name in METRICS:
            samples.values[name].append(seen.get(name))
        now_acked = acked()
        samples.acked.append(float(now_acked - last_acked))
        last_acked = now_acked


def _look(server: Server, before: tuple[int, float]) -> tuple[dict[str, float], tuple[int, float]]:
    pid = server.pid
    if not server.running:
        return {}, (-1, 0.0)
    status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":" in line)
    if "VmRSS" not in status:  # a process that has ended and was not waited for yet has no memory any more
        return {}, (-1, 0.0)
    used = report.cpu_seconds(pid)
    seen = {
        "memory_mb": round(int(status["VmRSS"].split()[0]) * 1024 / 1e6, 2),
        "handles": float(len(os.listdir(f"/proc/{pid}/fd"))),
        "threads": float(status["Threads"]),
        "disk_mb": round(_disk_bytes(server.data) / 1e6, 1),
    }
    if before[0] == pid:
        seen["cpu_percent"] = round(100 * (used - before[1]), 1)
    return seen, (pid, used)


def _disk_bytes(directory: Path) -> int:
    """Bytes the files take on the disk; files deleted during the walk are skipped."""
    total = 0
    for folder, _, names in os.walk(directory):
        for name in names:
            try:
                total += os.stat(os.path.join(folder, name)).st_blocks * 512
            except FileNotFoundError:
                continue
    return total


@dataclass(frozen=True)
class Flatness:
    """A metric's line through the judged time."""

    metric: str
    median: float
    growth: float
    allowed: float
    flat: bool


def flatness(samples: Samples, from_s: float, to_s: float) -> list[Flatness]:
    """Each metric's least-squares line between two moments; empty where the span is too short for one."""
    if to_s - from_s < JUDGED_MIN_S:
        return []
    judged = []
    for metric, (number, share) in ALLOWED.items():
        points = [
            (at, value)
            for at, value in zip(samples.at_s, samples.values[metric], strict=True)
            if from_s <= at <= to_s and value is not None
        ]
        if len(points) < JUDGED_MIN_S / 2:
            continue
        slope = statistics.linear_regression([at for at, _ in points], [value for _, value in points]).slope
        median = statistics.median(value for _, value in points)
        growth, allowed = slope * (to_s - from_s), max(number, share * median)
        judged.append(Flatness(metric, round(median, 2), round(growth, 3), round(allowed, 3), growth <= allowed))
    return judged
