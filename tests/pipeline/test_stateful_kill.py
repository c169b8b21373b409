"""Transforms with a state through kill -9 of the whole router, at whatever it is doing: nothing is lost, counted or let
through twice."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.pipeline.support import RouterProcess, ledger, make_stream, needs_java, publish, records
from tests.support.server import BrokerProcess
from tests.support.waiting import until

pytestmark = [pytest.mark.spark, pytest.mark.slow, needs_java]

IDS = 1_200
PIPELINE = """
name: killed
checkpoint: ./checkpoint
batch: {max_records: 300, interval: 100ms}
sources:
  web: {type: stream, stream: killed-web}
transforms:
  parsed: {type: parse, inputs: [web], rules: [{format: json}]}
  once: {type: dedupe, inputs: [parsed], by: [attributes.id], window: 1d}
  load:
    type: aggregate
    inputs: [once]
    window: 10s
    lateness: 1m
    metrics: {requests: {type: count}, ids: {type: sum, of: attributes.id}}
sinks:
  events: {type: stream, inputs: [once], stream: killed-events}
  metrics: {type: stream, inputs: [load], stream: killed-metrics}
"""


def _lines() -> list[bytes]:
    """Ten ids for each window; each comes twice, the second time on the other of two partitions."""
    found = []
    for first in range(0, IDS, 100):
        ids = [*range(first, first + 100), *range(first + 1, first + 100), first]
        seconds = [1_700_000_000 + number for number in ids]
        found += [json.dumps({"id": a, "time": b}).encode() for a, b in zip(ids, seconds, strict=True)]
    return found


def _await_pins(pins: Path, count: int, router: RouterProcess) -> None:
    """Until so many batches have begun."""
    until(lambda: len(list(pins.glob("*.json"))) >= count or not router.alive(), "a batch begins")


@pytest.mark.in_turn(2)
def test_kill_9_neither_repeats_nor_loses_what_was_remembered(broker: BrokerProcess, tmp_path: Path) -> None:
    make_stream(broker.kafka, "killed-web", 2)
    publish(broker.kafka, "killed-web", _lines(), 2)
    file, books = tmp_path / "killed.yaml", tmp_path / "checkpoint" / "ledger"
    file.write_text(PIPELINE)
    pins = tmp_path / "checkpoint" / "pins" / "batches"
    for goal in (2, 4):
        with RouterProcess(file, broker.kafka) as router:
            _await_pins(pins, goal, router)
            assert router.alive(), router.log_text()[-3_000:]
            router.kill9(group=True)
    with RouterProcess(file, broker.kafka, "--once") as router:
        assert router.wait() == 0, router.log_text()[-3_000:]

    total = ledger(books.parent)["total"]
    assert total["records_in"] == {"web": 2 * IDS}
    assert (total["dropped"]["once"], total["dropped"]["load.late"]) == (IDS, 0)
    by_event_id: dict[str, Any] = {}
    for message in (*records(broker.kafka, "killed-events"), *records(broker.kafka, "killed-metrics")):
        event = json.loads(message.value())
        assert by_event_id.setdefault(event["event_id"], event) == event, "what is written again is the same"
    ids = Counter(event["attributes"]["id"] for event in by_event_id.values() if "id" in event["attributes"])
    assert ids == dict.fromkeys(range(IDS), 1)
    metrics = [event["attributes"] for event in by_event_id.values() if "metric.name" in event["attributes"]]
    windows = Counter((found["metric.name"], found["metric.start"]) for found in metrics)
    assert set(windows.values()) == {1}
    assert len(windows) >= 2 * (IDS // 10 - 40)
    for found in metrics:
        first = found["metric.start"] // 1_000_000 - 1_700_000_000
        wanted = 10 if found["metric.name"] == "requests" else sum(range(first, first + 10))
        assert found["metric.value"] == wanted
