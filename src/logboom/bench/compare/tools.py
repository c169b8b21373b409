"""Kafka's own performance tools, run as its scripts run them, and the figures out of what they print."""

import re
import subprocess
from typing import Final

from logboom.bench.servers.kafka import java_command
from logboom.bench.wire import BenchError

_HEAP: Final = ("-Xmx512M",)  # bin/kafka-producer-perf-test.sh
_TIMEOUT_S: Final = 900
_SENT = re.compile(r"^(\d+) records sent, ([\d.]+) records/sec .*?([\d.]+) ms 50th, ([\d.]+) ms 95th, ([\d.]+) ms 99th")


def _run(main_class: str, *arguments: str) -> str:
    command = java_command(main_class, *arguments, options=_HEAP)
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired:
        raise BenchError(f"{main_class} did not end within {_TIMEOUT_S} s") from None
    if done.returncode != 0:
        raise BenchError(f"{main_class} failed: {(done.stderr or done.stdout).strip()[-300:]}")
    return done.stdout


def producer_performance(bootstrap: str, stream: str, record_bytes: int, records: int) -> dict[str, float]:
    """ProducerPerformance: acks=all, batches of 64 KiB, linger 5 ms, unthrottled, idempotent as by default.

    BenchError where it did not send all records.
    """
    said = _run(
        "org.apache.kafka.tools.ProducerPerformance",
        *("--topic", stream, "--num-records", str(records), "--record-size", str(record_bytes), "--throughput", "-1"),
        *("--producer-props", f"bootstrap.servers={bootstrap}", "acks=all", "batch.size=65536", "linger.ms=5"),
    )
    totals = [found for line in said.splitlines() if (found := _SENT.match(line))]
    if not totals or int(totals[-1][1]) != records:
        raise BenchError(f"ProducerPerformance did not send {records} records: {said[-300:]}")
    rate = float(totals[-1][2])
    return {
        "records": records,
        "records_per_s": rate,
        "mb_per_s": round(rate * record_bytes / 1e6, 2),
        "p50_ms": float(totals[-1][3]),
        "p99_ms": float(totals[-1][5]),
    }


def consumer_performance(bootstrap: str, stream: str, record_bytes: int, records: int) -> dict[str, float]:
    """ConsumerPerformance from the start; the time of its first rebalance does not count.

    BenchError where it did not read all records.
    """
    said = _run(
        "org.apache.kafka.tools.ConsumerPerformance",
        *("--bootstrap-server", bootstrap, "--topic", stream, "--messages", str(records), "--hide-header"),
    )
    rows = [line.split(", ") for line in said.splitlines() if line.count(", ") == 9]
    if not rows or int(rows[-1][4]) < records:
        raise BenchError(f"ConsumerPerformance did not read {records} records: {said[-300:]}")
    rate = float(rows[-1][9])
    return {
        "records": int(rows[-1][4]),
        "records_per_s": rate,
        "mb_per_s": round(rate * record_bytes / 1e6, 2),
    }
