"""What each broker of a cluster takes while nothing happens: its partitions have replicas, leaders and no records."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from logboom.bench import footprint
from logboom.bench.servers import LogboomNodes
from logboom.bench.streams import bench_stream

SETTLE_S = 10.0
"""What a new stream has left to do after it is served is no idling."""


@dataclass(frozen=True)
class IdleClusterLoad:
    """How many partitions, with how many replicas each, are looked at for how long."""

    partitions: int = 1_000
    replicas: int = 3
    seconds: float = 20.0


def run_idle_cluster(server: LogboomNodes, load: IdleClusterLoad, progress: Callable[[str], None]) -> dict[str, Any]:
    """Start the nodes, and measure each with nothing in it and with the partitions; they run afterwards."""
    start_s = server.start()
    progress("a cluster with nothing in it ...")
    time.sleep(SETTLE_S)
    empty = _watched(server, load.seconds)
    began = time.perf_counter()
    with bench_stream(server.address, partitions=load.partitions, replicas=load.replicas):
        created_s = time.perf_counter() - began
        progress(f"{load.partitions} partitions with {load.replicas} replicas ...")
        time.sleep(SETTLE_S)
        full = _watched(server, load.seconds)
    return {"start_s": round(start_s, 2), "created_s": round(created_s, 2), "empty": empty, "partitions": full}


def _watched(server: LogboomNodes, seconds: float) -> list[dict[str, float]]:
    """Each broker's share of a core in percent, its memory in MB and its wake-ups."""
    pids = list(server.brokers.values())
    began = time.perf_counter()
    before = [(footprint.cpu_ns(pid), footprint.wakeups(pid)) for pid in pids]
    time.sleep(seconds)
    took_s = time.perf_counter() - began
    return [
        {
            "cpu_percent": round((footprint.cpu_ns(pid) - cpu) / 1e7 / took_s, 3),
            "memory_mb": round(footprint.memory_bytes(pid) / 1e6, 1),
            "wakeups_per_s": round((footprint.wakeups(pid) - wakeups) / took_s, 1),
            "threads": footprint.threads(pid),
        }
        for pid, (cpu, wakeups) in zip(pids, before, strict=True)
    ]
