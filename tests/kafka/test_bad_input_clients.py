"""What librdkafka makes of the answers: an error that is final is told once, and what may pass is tried again."""

import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, Message, Producer
from tests.kafka.attack import Raw
from tests.support.server import BrokerProcess
from tests.support.waiting import WAIT_S

HOUR_MS = 3_600_000


def produce_requests(broker: BrokerProcess) -> float:
    """How many produce requests the broker has read."""
    with urllib.request.urlopen(f"http://{broker.http}/metrics", timeout=WAIT_S) as page:
        lines = page.read().decode().splitlines()
    name = 'logboom_kafka_api_requests_total{api="Produce"}'
    return next((float(line.split()[-1]) for line in lines if line.startswith(name)), 0.0)


@pytest.mark.parametrize(
    ("setting", "value", "ahead_ms", "code"),
    [
        ({"max_message_bytes": "1000"}, bytes(5_000), 0, KafkaError.MSG_SIZE_TOO_LARGE),
        ({}, b"x", 2 * HOUR_MS, KafkaError.INVALID_TIMESTAMP),
        ({"segment_bytes": "16384", "max_message_bytes": "100000"}, bytes(20_000), 0, KafkaError.RECORD_LIST_TOO_LARGE),
        ({}, b"x", 0, KafkaError.NOT_ENOUGH_REPLICAS),
    ],
    ids=["too large", "too far ahead", "above the segment", "too few replicas"],
)
def test_librdkafka_tries_again_what_may_pass_and_nothing_else(
    tmp_path: Path, setting: dict[str, str], value: bytes, ahead_ms: int, code: int
) -> None:
    passing = code == KafkaError.NOT_ENOUGH_REPLICAS
    minimum = {"LOGBOOM_BROKER__STREAM_DEFAULTS__MIN_INSYNC_REPLICAS": "2"} if passing else {}
    with BrokerProcess(tmp_path / "data", environment=minimum) as broker, Raw(broker.kafka) as client:
        client.create("s", **setting)
        errors: list[Any] = []

        def told(error: KafkaError | None, message: Message) -> None:
            errors.append(error)

        producer = Producer({"bootstrap.servers": broker.kafka, "retries": 3, "retry.backoff.ms": 10})
        before = produce_requests(broker)
        now_ms = int(time.time() * 1000)
        producer.produce("s", value, timestamp=now_ms + ahead_ms, on_delivery=told)
        assert producer.flush(WAIT_S) == 0
        (error,) = errors
        assert error.code() == code
        assert produce_requests(broker) - before == (4 if passing else 1)
