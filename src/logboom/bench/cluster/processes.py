"""Several processes of one machine beside one: rate and processor time for a message, in turns under the same load."""

import contextlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from logboom.bench import report
from logboom.bench.produce import ProduceLoad, produce
from logboom.bench.servers import LogboomNodes, LogboomServer, Server, cpu_quotas
from logboom.bench.streams import bench_stream


@dataclass(frozen=True)
class ProcessesLoad:
    """The load of each turn: requests encoded beforehand, `connections` to each process, `in_flight` over all."""

    processes: int = 2
    partitions: int = 8
    record_bytes: tuple[int, ...] = (100, 1_000)
    connections: int = 4
    in_flight: int = 32
    seconds: float = 5.0
    warm_up_s: float = 1.0
    rounds: int = 3
    core_share: float | None = None
    """The most that each broker may use of a core; None for no limit."""


def run_processes(load: ProcessesLoad, directory: Path, progress: Callable[[str], None]) -> dict[str, Any]:
    """For each size of a record: samples of one process and of several, and the medians of their quotients.

    Raises UnavailableError where brokers are to be limited and cannot be here.
    """
    contestants: dict[str, Server] = {
        "one": LogboomServer(directory / "one"),
        "several": LogboomNodes(directory / "several", load.processes, processes=True),
    }
    samples: dict[int, dict[str, list[dict[str, float]]]] = {
        size: {name: [] for name in contestants} for size in load.record_bytes
    }
    try:
        for number in range(load.rounds):
            for name, server in contestants.items():
                server.start()
                with _limited(server, load.core_share):
                    for size in load.record_bytes:
                        progress(f"{size} B, round {number + 1} of {load.rounds}: {name} ...")
                        samples[size][name].append(_sample(server, size, load))
                server.stop()
                os.sync()
    finally:
        for server in contestants.values():
            server.remove()
    return {"samples": samples, "ratios": {size: _ratios(both) for size, both in samples.items()}}


def _limited(server: Server, share: float | None) -> contextlib.AbstractContextManager[None]:
    return contextlib.nullcontext() if share is None else cpu_quotas(list(server.brokers.values()), share)


def _sample(server: Server, record_bytes: int, load: ProcessesLoad) -> dict[str, float]:
    shape = ProduceLoad(
        record_bytes,
        connections=load.connections,
        in_flight=load.in_flight,
        partitions=load.partitions,
        seconds=load.seconds,
        warm_up_s=load.warm_up_s,
    )
    with bench_stream(server.address, partitions=load.partitions) as stream:
        used = sum(map(report.cpu_seconds, server.pids))
        result: dict[str, Any] = produce(server.address, stream, shape)
        took_s = sum(map(report.cpu_seconds, server.pids)) - used
    return {
        "records_per_s": result["records_per_s"],
        "mb_per_s": result["mb_per_s"],
        "cpu_s_per_million": round(took_s / (result["records"] / 1e6), 4),
        "client_cpu_share": result["client_cpu_share"],
    }


def _ratios(both: dict[str, list[dict[str, float]]]) -> dict[str, float]:
    pairs = list(zip(both["several"], both["one"], strict=True))
    return {
        key: round(median(several[key] / one[key] for several, one in pairs), 3)
        for key in ("records_per_s", "cpu_s_per_million")
    }
