"""Quotas as unmodified clients meet them: they are told to wait, they wait, and nothing is lost over it."""

import json
import re
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from tests.cli.running import ok
from tests.clients.drivers import DRIVERS, DriverMissingError
from tests.support.server import BrokerProcess
from tests.support.skipping import skipped_on
from tests.support.waiting import WAIT_S

pytestmark = [pytest.mark.clients, pytest.mark.xdist_group("clients")]

COUNT, SIZE = 60, 20_000


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """With a window of two tenths of a second, so that little is sent ahead of the rate."""
    window = {"LOGBOOM_BROKER__QUOTA_WINDOW_NUM": "2", "LOGBOOM_BROKER__QUOTA_WINDOW_SIZE_S": "200ms"}
    with BrokerProcess(tmp_path_factory.mktemp("quotas") / "data", environment=window) as process:
        yield process


def throttled(broker: BrokerProcess, quota: str) -> float:
    with urllib.request.urlopen(f"http://{broker.http}/metrics", timeout=WAIT_S) as answer:
        found = re.findall(rf'^logboom_kafka_throttled_total{{quota="{quota}"}} (\S+)$', answer.read().decode(), re.M)
    return float(found[0]) if found else 0.0


class Statistics:
    """The longest wait that librdkafka's statistics tell of."""

    def __init__(self) -> None:
        self.throttle_ms = 0.0

    def __call__(self, text: str) -> None:
        told: dict[str, Any] = json.loads(text)
        for one in told["brokers"].values():
            self.throttle_ms = max(self.throttle_ms, one.get("throttle", {}).get("max", 0))


def test_librdkafka_is_held_to_its_rates(broker: BrokerProcess, tmp_path: Path) -> None:
    """1.2 MB at 500 KB a second, each way; another client at the same time is told nothing."""
    rate = "500kB"
    ok("quotas", "set", "--client", "held", "--produce", rate, "--fetch", rate, bootstrap=broker.kafka)
    statistics, others = Statistics(), Statistics()
    common = {"bootstrap.servers": broker.kafka, "statistics.interval.ms": 100}
    producer = Producer({**common, "client.id": "held", "stats_cb": statistics, "linger.ms": 0})
    free = Producer({**common, "client.id": "free", "stats_cb": others})
    for number in range(COUNT):
        producer.produce("t", number.to_bytes(4, "big") + bytes(SIZE), partition=0)
        free.produce("u", bytes(SIZE), partition=0)
        producer.poll(0)
    assert free.flush(WAIT_S) == 0
    assert producer.flush(WAIT_S) == 0
    assert throttled(broker, "producer_byte_rate") > 0
    assert statistics.throttle_ms > 0
    assert others.throttle_ms == 0

    statistics = Statistics()
    settings = {**common, "client.id": "held", "group.id": "held", "stats_cb": statistics}
    consumer = Consumer({**settings, "auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition("t", 0, 0)])
    numbers: list[int] = []
    deadline = time.monotonic() + WAIT_S
    while len(numbers) < COUNT or not statistics.throttle_ms:
        assert time.monotonic() < deadline, f"{len(numbers)} records, {statistics.throttle_ms} ms"
        message = consumer.poll(0.2)
        if message is not None and not message.error():
            numbers.append(int.from_bytes((message.value() or b"")[:4], "big"))
    consumer.close()
    assert numbers == list(range(COUNT))
    assert throttled(broker, "consumer_byte_rate") > 0
    ok("quotas", "remove", "--client", "held", bootstrap=broker.kafka)


def test_the_java_client_sets_quotas_and_keeps_to_them(broker: BrokerProcess) -> None:
    driver = next(driver for driver in DRIVERS if driver.name == "java")
    with skipped_on(DriverMissingError):
        command = driver.command()
    done = subprocess.run(
        [*command, "quotas", broker.kafka, "java-quotas"], capture_output=True, text=True, timeout=WAIT_S, check=False
    )
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    assert done.stdout.splitlines()[-1] == "ok quotas"
