"""End-to-end latency at a held rate: an open loop, so a stall of the server is counted in full.

Latency counts from the moment a message was meant to be sent, not from when the client got round to it
("coordinated omission"). The producer is librdkafka, one message a request; the consumer is a process of its own: it
must not wait for the producer's interpreter.
"""

import ctypes
import gc
import multiprocessing
import resource
import time
from array import array
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection
from typing import Any

from confluent_kafka import Producer

from logboom.bench.histogram import histogram_of, summary
from logboom.bench.latency_reader import read
from logboom.bench.wire import BenchError

WELL_KNOWN = ((256, 3_000), (1_024, 3_000), (5_120, 2_000), (1_048_000, 100))
"""Sizes in bytes and rates per second of the benchmark in "Benchmarking NATS Streaming and Apache Kafka" (T. Treat)."""

HELD_WITHIN_S = 1.0
"""The rate counts as held where the last message came within this time of its moment: no queue was left growing."""
_PR_SET_TIMERSLACK = 29


@dataclass(frozen=True)
class LatencyLoad:
    """How the load of a latency run looks. `reader` is `raw`, for one partition, or `librdkafka`."""

    record_bytes: int = 256
    rate_per_s: int = 3_000
    seconds: float = 20.0
    warm_up_s: float = 3.0
    idempotent: bool = False
    acks: str = "all"
    reader: str = "raw"
    partitions: int = 1
    """Each message goes to the next one."""


class _Sender:
    """Sends at moments fixed beforehand and sleeps in between: spinning would take a core from the server."""

    def __init__(self, bootstrap: str, stream: str, load: LatencyLoad) -> None:
        self._stream, self._load = stream, load
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "linger.ms": 0,
                "acks": load.acks,
                "enable.idempotence": load.idempotent,
                "message.max.bytes": 2_000_000,
                "queue.buffering.max.messages": 1_000_000,
                "queue.buffering.max.kbytes": 2_000_000,
            }
        )
        self.ack_latencies_us = array("q")
        self.late_us = array("q")
        """How long after its moment each message was handed to librdkafka: the sender's own share of its latency."""
        self._failure = ""

    def first(self) -> None:
        """One message, to prove that reader and broker are connected. BenchError where it is not acked in 30 s."""
        self._producer.produce(self._stream, bytes(self._load.record_bytes), partition=0)
        if self._producer.flush(30):
            raise BenchError("no message was acked within 30 s")

    def send(self, total: int) -> None:
        """All `total` messages at their moments; BenchError where one is refused or not acked in two minutes."""
        load, producer = self._load, self._producer
        padding = bytes(load.record_bytes - 8)
        gap_ns = 1_000_000_000 // load.rate_per_s
        start = time.monotonic_ns() + 1_000_000
        for number in range(total):
            meant = start + number * gap_ns
            self._wait_for(meant)
            self.late_us.append((time.monotonic_ns() - meant) // 1_000)
            value = meant.to_bytes(8, "big") + padding
            producer.produce(self._stream, value, partition=number % load.partitions, on_delivery=self._acked)
            producer.poll(0)
            if self._failure:
                raise BenchError(self._failure)
        if producer.flush(120) or self._failure:
            raise BenchError(self._failure or "messages were not acked within 120 s: the rate is not held")

    def _wait_for(self, meant: int) -> None:
        while (left := meant - time.monotonic_ns()) > 0:
            if left > 3_000_000:
                self._producer.poll((left - 2_000_000) / 1e9)  # whole milliseconds; ends early for an ack
            else:
                time.sleep(left / 1e9)

    def _acked(self, error: object, message: Any) -> None:
        if error is not None:
            self._failure = f"a message was not delivered: {error}"
            return
        meant = int.from_bytes(message.value()[:8], "big")
        self.ack_latencies_us.append((time.monotonic_ns() - meant) // 1_000)


def run_latency(bootstrap: str, stream: str, load: LatencyLoad) -> dict[str, Any]:
    """Send at `rate_per_s` through warm-up and run, and read as a consumer; milliseconds from the intended send time.

    `ack` is seen when the client next looks: up to one gap of the schedule later than it came. `sent_late` is the part
    of the latency that passed before librdkafka had the message. The CPU shares are of one core, over the whole run.
    BenchError where a message is refused, not acked or not read.
    """
    total = int((load.warm_up_s + load.seconds) * load.rate_per_s)
    skip = int(load.warm_up_s * load.rate_per_s)
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    partitions = load.partitions if load.reader == "librdkafka" else 0
    child = context.Process(target=read, args=(bootstrap, stream, total, skip, partitions, theirs), daemon=True)
    child.start()
    theirs.close()
    try:
        sender = _Sender(bootstrap, stream, load)
        sender.first()
        _received(ours, 60, f"no message went through {bootstrap} within 60 s")
        cpu_share = _send_calmly(sender, total)
        reading = _received(ours, 120, "the consumer did not see all messages within 120 s: the rate is not held")
        latencies = array("q", ours.recv_bytes())
    finally:
        child.terminate()
        child.join(10)
    if reading["seen"] != total:
        raise BenchError(f"the consumer saw {reading['seen']} of {total} messages")
    return {
        "load": asdict(load),
        "end_to_end": summary(histogram_of(latencies)),
        "ack": summary(histogram_of(sender.ack_latencies_us[skip:])),
        "held": latencies[-1] < HELD_WITHIN_S * 1e6,
        "sent_late": summary(histogram_of(sender.late_us[skip:])),
        "producer_cpu_share": cpu_share,
        "consumer_cpu_share": reading["cpu_share"],
    }


def _received(pipe: Connection, timeout_s: float, otherwise: str) -> Any:
    try:
        if pipe.poll(timeout_s):
            return pipe.recv()
    except EOFError:
        otherwise = "the consumer's process ended early"
    raise BenchError(otherwise)


def _send_calmly(sender: _Sender, total: int) -> float:
    """Send everything with exact timers and no pauses for garbage; the share of a core that this took."""
    ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, 1, 0, 0, 0)  # sleeps end within microseconds, not 50 us late
    used, began = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
    gc.disable()
    try:
        sender.send(total)
    finally:
        gc.enable()
    took_s, now = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_SELF)
    return round((now.ru_utime + now.ru_stime - used.ru_utime - used.ru_stime) / took_s, 3)
