"""Where results go: a folder with `result.json` and a picture, and what machine and settings they came from."""

import json
import os
import platform
import subprocess
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from logboom.base import build


def machine() -> dict[str, object]:
    """Hardware and versions that a figure is meaningless without."""
    model = ""
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        models = [line.split(":", 1)[1].strip() for line in cpuinfo.read_text().splitlines() if "model name" in line]
        model = models[0] if models else ""
    return {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "cpu": model,
        "cores": os.cpu_count(),
        "load_average_1_min": round(os.getloadavg()[0], 2),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "kernel": platform.release(),
        "pages_out_idle_memory": pages_out_idle_memory(),
        "python": platform.python_version(),
        "logboom": version("logboom"),
        "build": build.describe(),
        "commit": _commit(),
        "librdkafka_client": version("confluent-kafka"),
    }


def _commit() -> str:
    """The commit of the checkout that this runs from, marked where files differ; empty for an installed package."""
    git = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty", "--abbrev=10"]
    try:
        return subprocess.run(git, capture_output=True, text=True, timeout=10, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""


def warnings() -> list[str]:
    """What about this machine makes figures doubtful; empty on a quiet one of the usual kind."""
    found = []
    load, cores = os.getloadavg()[0], os.cpu_count() or 1
    if load >= cores / 2:
        found.append(
            f"this machine is busy (load average {load:.1f} on {cores} cores): trust ratios taken in one run, "
            "nothing else"
        )
    if pages_out_idle_memory():
        found.append(
            "this kernel pages out memory that was idle for a while (DAMON pageout): what was written a minute ago may "
            "be read from the disk"
        )
    return found


_DAMON: Final = Path("/sys/kernel/mm/damon/admin/kdamonds")


def pages_out_idle_memory(damon: Path = _DAMON) -> bool:
    """Whether the kernel drops memory that was not touched for a while although there is room (DAMON's `pageout`).

    Some virtual machines do so to give memory back to their host. What was written half a minute ago may then be read
    from the disk, and a page of new data costs more than elsewhere (Documentation/admin-guide/mm/damon/usage.rst).
    """
    try:
        return any(
            scheme.read_text().strip() == "pageout"
            for kdamond in damon.glob("[0-9]*")
            if (kdamond / "state").read_text().strip() == "on"
            for scheme in kdamond.glob("contexts/*/schemes/*/action")
        )
    except OSError:  # it is for root alone
        return False


def cpu_seconds(pid: int) -> float:
    """User and system seconds a process has used so far (proc(5))."""
    return sum(cpu_split(pid))


def cpu_split(pid: int) -> tuple[float, float]:
    """The seconds that a process has used so far in its own code, and in the kernel (proc(5))."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    ticks_per_s = os.sysconf("SC_CLK_TCK")
    return int(fields[11]) / ticks_per_s, int(fields[12]) / ticks_per_s


def write(folder: Path, name: str, result: dict[str, Any]) -> Path:
    """Write the data; return the folder of this run."""
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    target = folder / f"{stamp}-{name}"
    target.mkdir(parents=True, exist_ok=True)
    (target / "result.json").write_text(json.dumps({"bench": name, "machine": machine(), **result}, indent=2) + "\n")
    return target
