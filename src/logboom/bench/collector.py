"""The collector's speed: a file of log lines into a broker, by the command a user would run.

Its two clients take turns, and what starting and stopping costs, seen with a file of one line, is taken off. MB are
10^6 bytes of lines, line ends included.
"""

import random
import resource
import statistics
import string
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from logboom.bench import report
from logboom.bench.servers import LogboomServer
from logboom.bench.wire import BenchError

CLIENTS: Final = ("auto", "librdkafka")
_DISTINCT_LINES: Final = 20_000
_RUN_MAX_S: Final = 1_800.0

_CONFIG: Final = """\
data_dir: {directory}/state
host: web-1.example.net
output: {{bootstrap: '{bootstrap}', stream: {stream}, client: {client}}}
inputs:
  app: {{type: file, include: ['{file}']}}
"""


@dataclass(frozen=True)
class CollectorLoad:
    """The load: line sizes, megabytes of each, and runs with each client."""

    line_bytes: tuple[int, ...] = (118, 1_025)
    megabytes: int = 300
    rounds: int = 3
    clients: tuple[str, ...] = CLIENTS


@dataclass(frozen=True)
class _CollectorRun:
    seconds: float
    collector_cpu_s: float
    broker_cpu_s: float


def log_line(rng: random.Random, line_bytes: int) -> bytes:
    """A line as services write them, its newline included."""
    text = (
        f"2026-11-20T16:{rng.randrange(60):02d}:{rng.randrange(60):02d}.{rng.randrange(1000):03d}Z "
        f"{rng.choice(('INFO', 'INFO', 'WARN'))} shop.web request id={rng.getrandbits(32):08x} "
        f"path=/items/{rng.randrange(100_000)} status={rng.choice((200, 200, 404))} ms={rng.randrange(900)} "
    )
    filler = "".join(rng.choices(string.ascii_lowercase + " ", k=max(0, line_bytes - 1 - len(text))))
    return (text + filler)[: line_bytes - 1].encode() + b"\n"


def write_lines(path: Path, line_bytes: int, megabytes: float) -> int:
    """Write a file of about that many megabytes; its number of lines."""
    rng = random.Random(line_bytes)  # noqa: S311  # made-up input, nothing secret
    total = max(1, round(megabytes * 1e6 / line_bytes))
    block = [log_line(rng, line_bytes) for _ in range(min(total, _DISTINCT_LINES))]
    with path.open("wb") as file:
        for _ in range(total // len(block)):
            file.writelines(block)
        file.writelines(block[: total % len(block)])
    return total


def run_collector(server: LogboomServer, load: CollectorLoad, progress: Callable[[str], None]) -> dict[str, Any]:
    """For each size of line and each client: the medians of its rounds, and every round."""
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="logboom-bench-lines-") as directory:
        lines_file, one_line = Path(directory, "lines.log"), Path(directory, "one.log")
        write_lines(one_line, 100, 0)
        for line_bytes in load.line_bytes:
            count = write_lines(lines_file, line_bytes, load.megabytes)
            rounds: dict[str, list[dict[str, float]]] = {client: [] for client in load.clients}
            for number in range(load.rounds):
                for client in load.clients:
                    idle = _collect(server, one_line, client, f"one-{line_bytes}-{number}-{client}")
                    full = _collect(server, lines_file, client, f"lines-{line_bytes}-{number}-{client}")
                    rounds[client].append(_figures(full, idle, count, line_bytes))
                    progress(f"{line_bytes} B, {client}: {rounds[client][-1]['mb_per_s']:.1f} MB/s")
            results[str(line_bytes)] = {client: _median(many) for client, many in rounds.items()}
    return {"load": asdict(load), "lines": results}


def _collect(server: LogboomServer, file: Path, client: str, stream: str) -> _CollectorRun:
    with tempfile.TemporaryDirectory(prefix="logboom-bench-collector-") as directory:
        config = Path(directory, "collector.yaml")
        config.write_text(
            _CONFIG.format(directory=directory, bootstrap=server.address, stream=stream, client=client, file=file)
        )
        command = [sys.executable, "-m", "logboom.cli", "collect", "--once", str(config)]
        log = Path(directory, "log")
        broker_before_s, before_s, began_s = report.cpu_seconds(server.pid), _children_cpu_s(), time.monotonic()
        with log.open("wb") as output, subprocess.Popen(command, stdout=output, stderr=output) as collector:
            try:
                collector.wait(_RUN_MAX_S)
            except subprocess.TimeoutExpired:
                collector.kill()
                raise BenchError(f"the collector took more than {_RUN_MAX_S:.0f} s") from None
        seconds = time.monotonic() - began_s
        if collector.returncode:
            raise BenchError(f"the collector failed: {log.read_text()[-500:]}")
        return _CollectorRun(seconds, _children_cpu_s() - before_s, report.cpu_seconds(server.pid) - broker_before_s)


def _children_cpu_s() -> float:
    """Of processes that have ended; the broker has not."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _figures(full: _CollectorRun, idle: _CollectorRun, lines: int, line_bytes: int) -> dict[str, float]:
    seconds = max(full.seconds - idle.seconds, 1e-3)
    millions = lines / 1e6
    return {
        "mb_per_s": round(lines * line_bytes / 1e6 / seconds, 2),
        "lines_per_s": round(lines / seconds),
        "collector_cpu_s_per_million": round(max(0.0, full.collector_cpu_s - idle.collector_cpu_s) / millions, 3),
        "broker_cpu_s_per_million": round(max(0.0, full.broker_cpu_s - idle.broker_cpu_s) / millions, 3),
    }


def _median(rounds: list[dict[str, float]]) -> dict[str, Any]:
    return {**{key: statistics.median(one[key] for one in rounds) for key in rounds[0]}, "rounds": rounds}
