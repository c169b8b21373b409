"""What a broker takes that has little to do: memory and processor time with quiet partitions, connections, trickles.

Steps of one life of one broker, each measured for the same time: partitions without traffic, connections that have
said hello and then nothing, partitions that get a message a minute each, and one consumer that follows all of those.
"""

import contextlib
import socket
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

from confluent_kafka import Consumer, Producer, TopicPartition

from logboom.bench import footprint
from logboom.bench.blast import dial
from logboom.bench.servers import Server
from logboom.bench.streams import bench_stream

_MINUTE_S = 60.0
_SETTLE_S = 1.0
_HELLO = struct.pack(">ihhih", 10, 18, 0, 1, -1)
"""ApiVersions v0 without a client id."""


@dataclass(frozen=True)
class IdleLoad:
    """How much there is of what does nothing, and how long it is looked at."""

    partitions: int = 100
    connections: int = 2_000
    trickle_partitions: int = 1_000
    seconds: float = 20.0
    starts: int = 3


class _IdleRun:
    def __init__(self, server: Server, load: IdleLoad, progress: Callable[[str], None]) -> None:
        self._server, self._load, self._progress = server, load, progress

    def measure(self) -> dict[str, object]:
        load, server = self._load, self._server
        starts = []
        for _ in range(load.starts):
            server.stop()
            starts.append(round(server.start(), 3))
        result: dict[str, object] = {
            "start_s": median(starts),
            "start_cpu_s": round(footprint.cpu_ns(server.pid) / 1e9, 3),
            "empty": self._watch("a broker with nothing in it"),
        }
        with bench_stream(server.address, partitions=load.partitions):
            result["partitions"] = self._watch(f"{load.partitions} quiet partitions")
            with contextlib.ExitStack() as links:
                for _ in range(load.connections):
                    links.enter_context(_greeted(server.address))
                result["connections"] = self._watch(f"{load.connections} quiet connections")
            with bench_stream(server.address, partitions=load.trickle_partitions) as stream:
                trickle = _Trickle(server.address, stream, load.trickle_partitions)
                text = f"{load.trickle_partitions} partitions with a message a minute each"
                result["trickle"] = self._watch(text, trickle.until)
                with _Follower(server.address, stream, load.trickle_partitions) as follower:
                    trickle.meanwhile = follower.poll
                    result["trickle_followed"] = self._watch(f"{text}, read by one consumer", trickle.until)
                trickle.flush()
        return {**result, "connection_bytes": self._connection_bytes(result)}

    def _watch(self, what: str, work: Callable[[float], None] | None = None) -> dict[str, float]:
        self._progress(f"{what} ...")
        (work or _sleep_until)(time.perf_counter() + _SETTLE_S)
        pid = self._server.pid
        cpu, wakeups, began_s = footprint.cpu_ns(pid), footprint.wakeups(pid), time.perf_counter()
        (work or _sleep_until)(began_s + self._load.seconds)
        took_s = time.perf_counter() - began_s
        return {
            "cpu_percent": round((footprint.cpu_ns(pid) - cpu) / 1e7 / took_s, 3),
            "memory_mb": round(footprint.memory_bytes(pid) / 1e6, 1),
            "wakeups_per_s": round((footprint.wakeups(pid) - wakeups) / took_s, 1),
            "threads": footprint.threads(pid),
        }

    def _connection_bytes(self, result: dict[str, object]) -> int:
        """Resident memory of the broker per connection; the kernel's socket buffers are not included."""
        before, after = result["partitions"], result["connections"]
        assert isinstance(before, dict)
        assert isinstance(after, dict)
        added_mb = float(after["memory_mb"]) - float(before["memory_mb"])
        return round(added_mb * 1e6 / max(1, self._load.connections))


def _greeted(address: str) -> socket.socket:
    """A connection that completed an ApiVersions exchange."""
    link = dial(address)
    link.sendall(_HELLO)
    (length,) = struct.unpack(">i", link.recv(4, socket.MSG_WAITALL))
    link.recv(length, socket.MSG_WAITALL)
    return link


def _sleep_until(until_s: float) -> None:
    time.sleep(max(0.0, until_s - time.perf_counter()))


class _Trickle:
    """A message a minute to each partition of a stream, one after the other."""

    def __init__(self, address: str, stream: str, partitions: int) -> None:
        self._producer = Producer({"bootstrap.servers": address, "linger.ms": 0, "log_level": 0})
        self._stream, self._partitions = stream, partitions
        self._sent = 0
        self.meanwhile: Callable[[], None] = lambda: None

    def until(self, until_s: float) -> None:
        """Send at the rate until then."""
        next_s = time.perf_counter()
        while next_s < until_s:
            _sleep_until(next_s)
            self._producer.produce(self._stream, b"a line of a quiet log", partition=self._sent % self._partitions)
            self._producer.poll(0)
            self.meanwhile()
            self._sent += 1
            next_s += _MINUTE_S / self._partitions
        _sleep_until(until_s)

    def flush(self) -> None:
        """Wait for the last acks."""
        self._producer.flush(30)


class _Follower:
    """One consumer of all partitions of a stream."""

    def __init__(self, address: str, stream: str, partitions: int) -> None:
        self._consumer = Consumer({"bootstrap.servers": address, "group.id": stream, "enable.auto.commit": False})
        self._consumer.assign([TopicPartition(stream, index, 0) for index in range(partitions)])

    def __enter__(self) -> "_Follower":
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()

    def poll(self) -> None:
        """Read the bytes that arrived."""
        self._consumer.consume(1_000, 0)


def run_idle(server: Server, load: IdleLoad, progress: Callable[[str], None]) -> dict[str, object]:
    """Measure a server that is not running yet, or is restarted; it runs afterwards."""
    return _IdleRun(server, load, progress).measure()
