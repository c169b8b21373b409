"""How long a broker takes to serve again after kill -9 under load, with real data in it, beside a start without any.

What was acked before the kill is counted against what is there after it.
"""

import contextlib
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from logboom.bench import footprint
from logboom.bench.produce import ProduceLoad, produce
from logboom.bench.servers import Server
from logboom.bench.streams import bench_stream
from logboom.bench.wire import BenchError

_KILLED_AFTER_S = 2.0


@dataclass(frozen=True)
class RestartLoad:
    """How much is in the log when the broker is killed, and in how many partitions."""

    gigabytes: float = 6.0
    partitions: int = 1
    record_bytes: int = 1_000
    kills: int = 3


class _RestartRun:
    def __init__(self, server: Server, stream: str, load: RestartLoad, progress: Callable[[str], None]) -> None:
        self._server, self._stream, self._load, self._progress = server, stream, load, progress
        self._fill = ProduceLoad(load.record_bytes, partitions=load.partitions, in_flight=32)

    def measure(self) -> dict[str, object]:
        load, server = self._load, self._server
        records = int(load.gigabytes * 1e9 / (load.record_bytes + 10))
        self._progress(f"{load.gigabytes} GB into {load.partitions} partitions ...")
        fill = ProduceLoad(load.record_bytes, partitions=load.partitions, in_flight=32, messages=records)
        filled = produce(server.address, self._stream, fill)
        acked = int(str(filled["records"]))
        starts, processor = [], []
        for _ in range(load.kills):
            self._progress("kill -9 under load ...")
            self._kill_under_load()
            starts.append(round(server.start(), 3))
            processor.append(round(footprint.cpu_ns(server.pid) / 1e9, 3))
            self._progress(f"served again after {starts[-1]} s")
        found = self._found()
        if found < acked:
            raise BenchError(f"{acked} records were acked and {found} are there")
        server.stop()
        clean = round(server.start(), 3)
        return {
            "bytes": filled["bytes"],
            "records_acked_before": acked,
            "records_after": found,
            "after_kill_s": starts,
            "after_kill_cpu_s": processor,
            "after_clean_stop_s": clean,
            "memory_mb": round(footprint.memory_bytes(server.pid) / 1e6, 1),
        }

    def _kill_under_load(self) -> None:
        def send() -> None:
            with contextlib.suppress(BenchError, ConnectionError):  # it ends with the broker
                produce(self._server.address, self._stream, self._fill)

        sender = threading.Thread(target=send)
        sender.start()
        time.sleep(_KILLED_AFTER_S)
        self._server.kill9()
        sender.join()

    def _found(self) -> int:
        admin = AdminClient({"bootstrap.servers": self._server.address, "log_level": 0})
        latest: OffsetSpec = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        wanted = {TopicPartition(self._stream, index): latest for index in range(self._load.partitions)}
        return sum(future.result(60).offset for future in admin.list_offsets(wanted, request_timeout=60).values())


def run_restart(server: Server, load: RestartLoad, progress: Callable[[str], None]) -> dict[str, object]:
    """Fill a server, kill it and start it again; it is started here and runs afterwards."""
    empty = [round(server.start(), 3)]
    for _ in range(2):
        server.stop()
        empty.append(round(server.start(), 3))
    with bench_stream(server.address, partitions=load.partitions) as stream:
        return {"empty_s": empty, **_RestartRun(server, stream, load, progress).measure()}
