"""How servers start, idle and restart after kill -9, one server at a time."""

import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic

from logboom.bench import report, wire
from logboom.bench.compare.cases import Sample
from logboom.bench.compare.contestants import Contestant, server_of
from logboom.bench.produce import ProduceLoad, produce
from logboom.bench.servers import NatsServer, Server
from logboom.bench.servers.probe import kafka_takes, nats_takes
from logboom.bench.wire import BenchError

IDLE_PARTITIONS = 100
ACK_TIMEOUT_S = 300.0


@contextmanager
def fresh(contestant: Contestant, directory: Path) -> Iterator[Server]:
    """A new, empty server, not started; removed at the end."""
    server = server_of(contestant.server, directory / f"life-{contestant.name}", is_paused=False)
    server.prepare()
    try:
        yield server
    finally:
        server.remove()


def start_and_idle(contestant: Contestant, directory: Path, idle_s: float) -> Sample:
    """Seconds from the start of the process until it serves, then memory and CPU with 100 idle partitions."""
    with fresh(contestant, directory) as server:
        start_s = server.start()
        if isinstance(server, NatsServer):
            server.load("-mode", "create", "-stream", "idle")
        else:
            _make(server, "idle", IDLE_PARTITIONS, contestant)
        time.sleep(idle_s / 2)  # what starting has left to do is no idling
        used, began = report.cpu_seconds(server.pid), time.perf_counter()
        time.sleep(idle_s)
        idle_cpu = (report.cpu_seconds(server.pid) - used) / (time.perf_counter() - began)
        return {"start_s": start_s, "idle_rss_mb": rss_mb(server.pid), "idle_cpu_percent": round(100 * idle_cpu, 2)}


def restart(contestant: Contestant, directory: Path, fill_bytes: int) -> Sample:
    """Seconds from the start after kill -9 until a write to the partition that holds `fill_bytes` is acked again."""
    with fresh(contestant, directory) as server:
        server.start()
        if isinstance(server, NatsServer):
            server.load("-mode", "create", "-stream", "filled")
            # A sync for each message would need hours to write as much: such a server is filled for ten seconds.
            much = ("-seconds", "10") if contestant.name == "nats-always" else ("-messages", str(fill_bytes >> 16))
            load = server.load("-mode", "produce", "-stream", "filled", "-size", "65536", "-in-flight", "1000", *much)
            kept = int(load["records"]) * 65_536
            port = server.port

            def takes() -> bool:
                return nats_takes(port, "filled")
        else:
            _make(server, "filled", 1, contestant)
            plan = ProduceLoad(1_000, request_bytes=512 * 1024, messages=fill_bytes // 1_007)
            kept = int(str(produce(server.address, "filled", plan)["bytes"]))
            frame, error_at = wire.produce_frame("filled", 0, wire.batch_of(100, 1)), wire.produce_error_at("filled")
            port = server.port

            def takes() -> bool:
                return kafka_takes(port, frame, error_at - 4)

        server.kill9()
        began = time.perf_counter()
        server.start()
        _until(takes, f"{contestant.label} acked nothing after the restart")
        return {"restart_s": time.perf_counter() - began, "kept_gb": round(kept / 1e9, 2)}


def _until(holds: Callable[[], bool], otherwise: str) -> None:
    deadline = time.perf_counter() + ACK_TIMEOUT_S
    while not holds():
        if time.perf_counter() > deadline:
            raise BenchError(otherwise)
        time.sleep(0.005)


def _make(server: Server, stream: str, partitions: int, contestant: Contestant) -> None:
    admin = AdminClient({"bootstrap.servers": server.address, "log_level": 0})
    topic = NewTopic(stream, num_partitions=partitions, replication_factor=1, config=dict(contestant.config))
    admin.create_topics([topic], request_timeout=60)[stream].result(90)


def rss_mb(pid: int) -> float:
    """Resident memory of a process in MB of 10^6 bytes. BenchError where it has ended."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return round(int(line.split()[1]) * 1024 / 1e6, 1)
    raise BenchError(f"process {pid} has no memory of its own: it has ended")


def room_for(directory: Path, size: int) -> None:
    """BenchError where the disk has not half again as much room as a case needs."""
    free = shutil.disk_usage(directory).free
    if free < size * 1.5:
        raise BenchError(f"{size / 1e9:.0f} GB are to be written, the disk has room for {free / 1e9:.0f} GB")
