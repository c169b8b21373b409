"""The writing side of a soak: idempotent producers, and a thread that creates, fills, reads and deletes streams."""

import threading
import time
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from logboom.bench.soak.ledger import Ledger
from logboom.bench.soak.load import Flow

WAITING_MAX = 5_000
"""Records a producer may have unacked in one partition; while the broker is down it stops there."""
CHURN_RECORDS = 50
TRY_FOR_S = 120.0
_TICK_S = 0.02


def client(bootstrap: str, **more: Any) -> dict[str, Any]:
    """Settings of every client: silent, and back soon after the broker is."""
    return {
        "bootstrap.servers": bootstrap,
        "log_level": 0,
        "reconnect.backoff.ms": 50,
        "reconnect.backoff.max.ms": 500,
        **more,
    }


def write_flow(bootstrap: str, flow: Flow, rate: float, ledger: Ledger, stop: threading.Event) -> None:
    """Thread: send at the flow's rate until stopped, then wait until everything is acked."""
    producer = Producer(
        client(
            bootstrap,
            **{
                "enable.idempotence": True,
                "compression.type": flow.codec,
                "linger.ms": 5,
                "message.timeout.ms": 0,  # never given up: whatever was sent must be acked in the end
            },
        )
    )
    started, sent = time.monotonic(), 0
    while not stop.wait(_TICK_S):
        due = int((time.monotonic() - started) * flow.rate_per_s * rate)
        while sent < due:
            place = (flow.stream, sent % flow.partitions)
            sent += 1
            if ledger.waiting(place) < WAITING_MAX:
                _send(producer, flow, place[1], ledger)
        producer.poll(0)
    if producer.flush(TRY_FOR_S):
        ledger.fault(f"{flow.stream}: records were not acked within {TRY_FOR_S:.0f} s of the end")


def _send(producer: Producer, flow: Flow, partition: int, ledger: Ledger) -> None:
    place = (flow.stream, partition)
    number = ledger.next_number(place)

    def delivered(error: KafkaError | None, message: Any) -> None:
        if error is not None:
            ledger.fault(f"{place}: record {number} was refused: {error}")
        else:
            ledger.acked(place, number, message.offset())

    while True:
        try:
            producer.produce(flow.stream, flow.value(number), partition=partition, on_delivery=delivered)
        except BufferError:
            producer.poll(0.1)
        else:
            return


def make_streams(bootstrap: str, flows: tuple[Flow, ...], rate: float) -> None:
    """The streams of all flows, which keep what fits their rates."""
    admin = AdminClient(client(bootstrap))
    topics = [NewTopic(flow.stream, num_partitions=flow.partitions, config=flow.config(rate)) for flow in flows]
    for made in admin.create_topics(topics, request_timeout=30).values():
        made.result(40)


def churn(bootstrap: str, pause_s: float, ledger: Ledger, stop: threading.Event) -> None:
    """Thread: one stream after another is made, written, read back and removed."""
    number = 0
    while not stop.wait(pause_s):
        number += 1
        name = f"soak-passing-{number}"
        deadline = time.monotonic() + TRY_FOR_S
        try:
            _admin(bootstrap, deadline, "create", name, ("TOPIC_ALREADY_EXISTS",))
            _fill(bootstrap, name)
            seen = _read_back(bootstrap, name, deadline)
            if seen != list(range(CHURN_RECORDS)):
                ledger.fault(f"{name}: {CHURN_RECORDS} records were written, {seen[:60]} were read")
            _admin(bootstrap, deadline, "delete", name, ("UNKNOWN_TOPIC_OR_PART",))
        except (KafkaException, TimeoutError) as error:
            ledger.fault(f"{name}: {error}")
        else:
            ledger.count("streams made and removed")


def _admin(bootstrap: str, deadline: float, what: str, name: str, done_already: tuple[str, ...]) -> None:
    """Retry until it succeeds: the broker may have been killed between doing it and replying."""
    while True:
        admin = AdminClient(client(bootstrap))
        try:
            if what == "create":
                admin.create_topics([NewTopic(name, num_partitions=1)], request_timeout=5)[name].result(10)
            else:
                admin.delete_topics([name], request_timeout=5)[name].result(10)
        except KafkaException as error:
            if error.args[0].name() in done_already:
                return
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)
        else:
            return


def _fill(bootstrap: str, name: str) -> None:
    producer = Producer(client(bootstrap, **{"enable.idempotence": True, "message.timeout.ms": 0}))
    for number in range(CHURN_RECORDS):
        producer.produce(name, str(number).encode(), partition=0)
    if producer.flush(TRY_FOR_S):
        raise TimeoutError(f"{CHURN_RECORDS} records were not acked within {TRY_FOR_S:.0f} s")


def _read_back(bootstrap: str, name: str, deadline: float) -> list[int]:
    consumer = Consumer(client(bootstrap, **{"group.id": "soak-passing", "enable.auto.commit": False}))
    seen: list[int] = []
    try:
        consumer.assign([TopicPartition(name, 0, OFFSET_BEGINNING)])
        while len(seen) < CHURN_RECORDS and time.monotonic() < deadline:
            came = (message for message in consumer.consume(CHURN_RECORDS, 0.5) if message.error() is None)
            seen.extend(int(message.value() or b"-1") for message in came)
    finally:
        consumer.close()
    return seen
