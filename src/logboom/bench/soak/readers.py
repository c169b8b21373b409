"""The reading side of a soak: an auditor that reads every offset once, groups with changing members, a slow reader."""

import random
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from logboom.bench.soak.ledger import Ledger
from logboom.bench.soak.load import Flow
from logboom.bench.soak.writers import client

_PASSING_ERRORS = ("_TRANSPORT", "_ALL_BROKERS_DOWN", "_RESOLVE", "_TIMED_OUT")


def _messages(consumer: Consumer, count: int, ledger: Ledger, who: str) -> Iterator[Any]:
    """Messages of one call; errors that a broker's restart explains are passed over, others are faults."""
    for message in consumer.consume(count, 0.2):
        error = message.error()
        if error is None:
            yield message
        elif error.name() not in _PASSING_ERRORS and not error.retriable():
            ledger.fault(f"{who}: {error}")


def _checked(message: Any, flows: dict[str, Flow], ledger: Ledger, who: str) -> tuple[tuple[str, int], int]:
    flow = flows[message.topic()]
    place, offset, value = (message.topic(), message.partition()), message.offset(), message.value()
    number = int.from_bytes(value[:8], "big")
    ledger.read(place, offset, number, who)
    if value != flow.value(number):
        ledger.fault(f"{place}: {who} found other bytes at offset {offset} than were written")
    return place, offset


def audit(bootstrap: str, flows: tuple[Flow, ...], ledger: Ledger, stop: threading.Event) -> None:
    """Thread: read every partition from its start; an offset that is gone before it was read is a fault."""
    consumer = Consumer(
        client(
            bootstrap,
            **{"group.id": "soak-audit", "enable.auto.commit": False, "auto.offset.reset": "error"},
        )
    )
    consumer.assign([TopicPartition(flow.stream, n, 0) for flow in flows for n in range(flow.partitions)])
    by_stream = {flow.stream: flow for flow in flows}
    while not stop.is_set():
        for message in _messages(consumer, 500, ledger, "the auditor"):
            place, offset = _checked(message, by_stream, ledger, "the auditor")
            ledger.audited(place, offset)
    consumer.close()


def read_slowly(bootstrap: str, flow: Flow, ledger: Ledger, stop: threading.Event) -> None:
    """Thread: a reader that takes a few records a second, so that retention overtakes it; it may jump ahead."""
    consumer = Consumer(
        client(
            bootstrap,
            **{
                "group.id": "soak-slow",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "queued.max.messages.kbytes": 64,
                "fetch.message.max.bytes": 65_536,
            },
        )
    )
    consumer.assign([TopicPartition(flow.stream, n, OFFSET_BEGINNING) for n in range(flow.partitions)])
    last: dict[tuple[str, int], int] = {}
    while not stop.wait(0.1):
        for message in _messages(consumer, 1, ledger, "the slow reader"):
            place, offset = _checked(message, {flow.stream: flow}, ledger, "the slow reader")
            before = last.get(place, -1)
            if offset <= before:
                ledger.fault(f"{place}: the slow reader went back from offset {before} to {offset}")
            elif offset > before + 1:
                ledger.count("jumps of the slow reader")
            last[place] = offset
    consumer.close()


class Group:
    """A consumer group whose members, each a thread, live for a random while, leave, and are replaced."""

    def __init__(self, name: str, flows: tuple[Flow, ...], ledger: Ledger) -> None:
        self.name = name
        self.streams = tuple(flow.stream for flow in flows)
        self._flows = {flow.stream: flow for flow in flows}
        self._ledger = ledger

    def member(self, bootstrap: str, life_s: tuple[float, float], rng: random.Random, stop: threading.Event) -> None:
        """Thread: one member after another."""
        while not stop.is_set():
            ends = time.monotonic() + rng.uniform(*life_s)
            self._live(bootstrap, lambda ends=ends: stop.is_set() or time.monotonic() > ends)  # type: ignore[misc]

    def _live(self, bootstrap: str, over: Callable[[], bool]) -> None:
        consumer = Consumer(
            client(
                bootstrap,
                **{
                    "group.id": self.name,
                    "auto.offset.reset": "earliest",
                    "auto.commit.interval.ms": 1_000,
                    "session.timeout.ms": 6_000,
                    "heartbeat.interval.ms": 1_000,
                },
            )
        )
        consumer.subscribe(list(self.streams), on_assign=lambda *_: self._ledger.count("assignments"))
        try:
            while not over():
                for message in _messages(consumer, 200, self._ledger, self.name):
                    place, offset = _checked(message, self._flows, self._ledger, self.name)
                    self._ledger.processed(self.name, place, offset)
        finally:
            consumer.close()


def scan(bootstrap: str, flows: tuple[Flow, ...], ledger: Ledger, timeout_s: float = 120.0) -> int:
    """Read all that is kept once more; records read. Each partition must end where its producer did."""
    consumer = Consumer(client(bootstrap, **{"group.id": "soak-scan", "enable.auto.commit": False}))
    by_stream = {flow.stream: flow for flow in flows}
    left, read = {}, 0
    for place, end in ledger.ends().items():
        first, last = consumer.get_watermark_offsets(TopicPartition(*place), timeout=30)
        if last != end:
            ledger.fault(f"{place}: {end} records were acked, the log ends at {last}")
        if first < last:
            left[place] = last
    consumer.assign([TopicPartition(*place, OFFSET_BEGINNING) for place in left])
    deadline = time.monotonic() + timeout_s
    while left and time.monotonic() < deadline:
        for message in _messages(consumer, 500, ledger, "the last scan"):
            place, offset = _checked(message, by_stream, ledger, "the last scan")
            read += 1
            if offset + 1 == left.get(place):
                del left[place]
    consumer.close()
    if left:
        ledger.fault(f"the last scan did not come to the end of {sorted(left)} within {timeout_s:.0f} s")
    return read
