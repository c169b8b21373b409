"""End-to-end latency at a held rate: an open loop, so a stall of the server is counted in full.

Latency counts from the moment a message was meant to be sent, not from when the client got round to it
("coordinated omission"). The consumer is a process of its own: it must not wait for the producer's interpreter.
"""

import multiprocessing
import time
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from logboom.bench.wire import BenchError

PERCENTILES = (50.0, 90.0, 99.0, 99.9, 99.99, 99.999, 99.9999)
WELL_KNOWN = ((256, 3_000), (1_024, 3_000), (5_120, 2_000), (1_048_000, 100))
"""Sizes in bytes and rates per second of the benchmark in "Benchmarking NATS Streaming and Apache Kafka" (T. Treat)."""


@dataclass(frozen=True)
class LatencyLoad:
    """How the load of a latency run looks."""

    record_bytes: int = 256
    rate_per_s: int = 3_000
    seconds: float = 20.0
    warm_up_s: float = 3.0
    idempotent: bool = False
    acks: str = "all"


def _histogram() -> Any:
    from hdrh.histogram import HdrHistogram

    return HdrHistogram(1, 120_000_000, 3)


def _consume(bootstrap: str, stream: str, total: int, skip: int, pipe: Connection) -> None:
    """Child process: read `total` messages, record microseconds since the time each carries, and send the summary."""
    histogram = _histogram()
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "logboom-bench", "fetch.wait.max.ms": 100})
    consumer.assign([TopicPartition(stream, 0, OFFSET_BEGINNING)])
    seen, deadline = 0, time.monotonic() + 600
    while seen < total and time.monotonic() < deadline:
        message = consumer.poll(1.0)
        if message is None or message.error() is not None:
            continue
        now = time.monotonic_ns()
        value = message.value()
        assert value is not None
        meant = int.from_bytes(value[:8], "big")
        if meant == 0:
            pipe.send("ready")
            continue
        seen += 1
        if seen > skip:
            histogram.record_value(max(1, (now - meant) // 1_000))
    consumer.close()
    pipe.send({"seen": seen, **summary(histogram), "encoded": histogram.encode().decode()})


def summary(histogram: Any) -> dict[str, object]:
    """Percentiles in milliseconds."""
    return {
        "percentiles_ms": {str(p): histogram.get_value_at_percentile(p) / 1_000 for p in PERCENTILES},
        "max_ms": histogram.get_max_value() / 1_000,
        "mean_ms": round(histogram.get_mean_value() / 1_000, 4),
        "curve_ms": [
            [p, histogram.get_value_at_percentile(p) / 1_000] for p in (100 - 100 / 2 ** (n / 4) for n in range(4 * 20))
        ],
    }


def _send_on_schedule(producer: Producer, stream: str, load: LatencyLoad, total: int, acks: Any) -> float:
    """Send `total` messages at their moments; return by how many seconds the schedule was missed at worst."""
    padding = bytes(load.record_bytes - 8)
    gap_ns = 1_000_000_000 // load.rate_per_s
    skip = int(load.warm_up_s * load.rate_per_s)

    def on_delivery_of(meant: int, number: int) -> Any:
        def acked(error: object, _message: object) -> None:
            if error is not None:
                raise BenchError(f"a message was not delivered: {error}")
            if number > skip:
                acks.record_value(max(1, (time.monotonic_ns() - meant) // 1_000))

        return acked

    start, worst = time.monotonic_ns() + 1_000_000, 0
    for number in range(total):
        meant = start + number * gap_ns
        while (left := meant - time.monotonic_ns()) > 0:
            producer.poll(min(left / 1e9, 0.05) if left > 200_000 else 0)
        worst = max(worst, -left)
        value = meant.to_bytes(8, "big") + padding
        producer.produce(stream, value, partition=0, on_delivery=on_delivery_of(meant, number))
    return worst / 1e9


def run_latency(bootstrap: str, stream: str, load: LatencyLoad) -> dict[str, object]:
    """Send at `rate_per_s` for warm-up and run, and read as a consumer; milliseconds from the meant moment."""
    total = int((load.warm_up_s + load.seconds) * load.rate_per_s)
    skip = int(load.warm_up_s * load.rate_per_s)
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    child = context.Process(target=_consume, args=(bootstrap, stream, total, skip, theirs), daemon=True)
    child.start()
    config = {
        "bootstrap.servers": bootstrap,
        "linger.ms": 0,
        "acks": load.acks,
        "enable.idempotence": load.idempotent,
        "message.max.bytes": 2_000_000,
        "queue.buffering.max.messages": 1_000_000,
    }
    producer = Producer({key: value for key, value in config.items() if value != ""})
    producer.produce(stream, bytes(8), partition=0)
    if producer.flush(30) or not ours.poll(60):
        raise BenchError(f"no message went through {bootstrap} within 60 s")
    ours.recv()
    acks = _histogram()
    late_s = _send_on_schedule(producer, stream, load, total, acks)
    if producer.flush(120):
        raise BenchError("messages were left in the client's queue after 120 s: the rate is not held")
    if not ours.poll(120):
        raise BenchError("the consumer did not see all messages within 120 s")
    result = ours.recv()
    child.join(10)
    return {"load": asdict(load), "end_to_end": result, "ack": summary(acks), "schedule_missed_by_s": round(late_s, 6)}
