"""Where results go: a folder with `result.json` and a picture, and what machine and settings they came from."""

import json
import os
import platform
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any


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
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "logboom": version("logboom"),
        "librdkafka_client": version("confluent-kafka"),
    }


def cpu_seconds(pid: int) -> float:
    """User and system seconds a process has used so far (proc(5))."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def write(folder: Path, name: str, result: dict[str, Any]) -> Path:
    """Write the data; return the folder of this run."""
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    target = folder / f"{stamp}-{name}"
    target.mkdir(parents=True, exist_ok=True)
    (target / "result.json").write_text(json.dumps({"bench": name, "machine": machine(), **result}, indent=2) + "\n")
    return target


def bars(target: Path, title: str, values: dict[str, float], unit: str) -> Path:
    """A bar for each name."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 0.8 + 0.5 * len(values)), layout="constrained")
    drawn = axes.barh(list(values), list(values.values()), color="#3b6ea5")
    axes.bar_label(drawn, fmt="%.1f", padding=4)
    axes.margins(x=0.15)
    axes.invert_yaxis()
    axes.set_xlabel(unit)
    axes.set_title(title)
    figure.savefig(target / "picture.png", dpi=120)
    plt.close(figure)
    return target / "picture.png"


def curves(target: Path, title: str, lines: dict[str, list[list[float]]]) -> Path:
    """Percentile curves: the share of slower messages on a log axis to the right, milliseconds upwards."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(8, 4.5), layout="constrained")
    for name, points in lines.items():
        axes.plot([100 / (100 - p) for p, _ in points], [ms for _, ms in points], label=name)
    axes.set_xscale("log")
    axes.set_yscale("log")
    ticks = [2, 10, 100, 1_000, 10_000, 100_000, 1_000_000]
    axes.set_xticks(ticks, ["50", "90", "99", "99.9", "99.99", "99.999", "99.9999"])
    axes.set_xlabel("percentile")
    axes.set_ylabel("ms from the meant moment of sending")
    axes.set_title(title)
    axes.legend()
    axes.grid(alpha=0.3)
    figure.savefig(target / "picture.png", dpi=120)
    plt.close(figure)
    return target / "picture.png"
