"""Transforms with a state through kill -9 of the whole router, at whatever it is doing: nothing is lost, counted or let
through twice."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.pipeline.support import RouterProcess, archive_ids, ledger, make_stream, needs_java, publish, records
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


SPLIT = """
name: parted
checkpoint: ./checkpoint
batch: {max_records: 60, interval: 100ms}
sources:
  web: {type: stream, stream: parted-web}
transforms:
  parsed: {type: parse, inputs: [web], rules: [{format: json}]}
  each: {type: reshape, inputs: [parsed], split: {of: attributes.items, into: attributes}}
  once: {type: dedupe, inputs: [each], by: [attributes.id], window: 1d}
  load: {type: aggregate, inputs: [once], window: 10s, lateness: 1m, metrics: {requests: {type: count}}}
sinks:
  events: {type: stream, inputs: [once], stream: parted-events}
  metrics: {type: stream, inputs: [load], stream: parted-metrics}
  archive: {type: parquet, inputs: [each], path: ./archive}
"""
PARTS, LISTS = 5, 240


def _lists() -> list[bytes]:
    """Lists of ids that are each in two records, on both partitions; one id of each list is in it twice."""
    found = []
    for number in range(LISTS):
        ids = [*range(number * PARTS, (number + 1) * PARTS), number * PARTS]
        text = json.dumps({"time": 1_700_000_000 + number, "items": [{"id": one, "of": number} for one in ids]})
        found += [text.encode()] * 2
    return found


def test_kill_9_with_a_split_before_what_remembers_loses_no_part(broker: BrokerProcess, tmp_path: Path) -> None:
    make_stream(broker.kafka, "parted-web", 2)
    publish(broker.kafka, "parted-web", _lists(), 2)
    file, pins = tmp_path / "parted.yaml", tmp_path / "checkpoint" / "pins" / "batches"
    file.write_text(SPLIT)
    for goal in (2, 4):
        with RouterProcess(file, broker.kafka) as router:
            _await_pins(pins, goal, router)
            assert router.alive(), router.log_text()[-3_000:]
            router.kill9(group=True)
    with RouterProcess(file, broker.kafka, "--once") as router:
        assert router.wait() == 0, router.log_text()[-3_000:]

    total, parts = ledger(tmp_path / "checkpoint")["total"], 2 * LISTS * (PARTS + 1)
    assert total["records_in"] == {"web": 2 * LISTS}
    assert total["dropped"]["once"] == parts - LISTS * PARTS
    archived = archive_ids(tmp_path / "archive")
    assert len(archived) == parts, "every part is in the archive"
    assert set(archived.values()) == {1}, "and once, whatever was written again"
    assert Counter(event_id.rpartition(".")[2] for event_id in archived) == dict.fromkeys("012345", 2 * LISTS)
    by_event_id: dict[str, Any] = {}
    for message in records(broker.kafka, "parted-events"):
        event = json.loads(message.value())
        assert by_event_id.setdefault(event["event_id"], event) == event, "what is written again is the same"
    assert Counter(event["attributes"]["id"] for event in by_event_id.values()) == dict.fromkeys(
        range(LISTS * PARTS), 1
    )
    windows = {
        event["attributes"]["metric.start"]: event["attributes"]["metric.value"]
        for event in (json.loads(message.value()) for message in records(broker.kafka, "parted-metrics"))
    }
    assert set(windows.values()) == {10 * PARTS}
    assert len(windows) >= LISTS // 10 - 8
