"""Transforms with a state over a real broker and Spark: rows meet over all partitions, batches and runs."""

import json
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.pipeline.support import (
    Said,
    archive_ids,
    ledger,
    make_stream,
    needs_java,
    publish,
    records,
)
from tests.support.server import BrokerProcess
from tests.support.waiting import WAIT_S, until

from logboom.pipeline.config.compile import compile_pipeline
from logboom.pipeline.errors import PipelineError
from logboom.pipeline.run.dry_run import dry_run, record_batch
from logboom.pipeline.run.runner import Runner, RunOptions

pytestmark = [pytest.mark.spark, needs_java]


def _run(spark: Any, directory: Path, broker: BrokerProcess, text: str) -> Said:
    file = directory / "pipeline.yaml"
    file.write_text(text)
    said = Said()
    Runner(compile_pipeline(text, str(file)), RunOptions(bootstrap=broker.kafka, once=True), said).run_in(spark)
    return said


ONCE = """
name: once
batch: {max_records: 120}
sources:
  web: {type: stream, stream: once-web}
transforms:
  parsed: {type: parse, inputs: [web], rules: [{format: json}]}
  slow: {type: filter, inputs: [parsed], condition: "variant_get(attributes, '$.ms', 'int') > 100"}
  once: {type: dedupe, inputs: [slow], by: [attributes.id], window: 1d}
  odd: {type: filter, inputs: [once], condition: "variant_get(attributes, '$.id', 'int') % 2 = 1"}
sinks:
  archive: {type: parquet, inputs: [once], path: ./archive}
  odds: {type: stream, inputs: [odd], stream: once-odd}
  all: {type: stream, inputs: [parsed], stream: once-all}
"""


def test_repeats_are_found_over_partitions_batches_and_runs(spark: Any, broker: BrokerProcess, tmp_path: Path) -> None:
    make_stream(broker.kafka, "once-web", 3)
    for run in range(2):
        lines = [json.dumps({"id": number % 50, "ms": 99 + number % 7, "run": run}).encode() for number in range(200)]
        publish(broker.kafka, "once-web", lines, 3)
        _run(spark, tmp_path, broker, ONCE)
    slow = {number % 50 for number in range(200) if number % 7 > 1}
    total = ledger(tmp_path / "checkpoints" / "once")["total"]
    assert sum(archive_ids(tmp_path / "archive").values()) == len(slow)
    assert total["out"] == {"all": 400, "odds": sum(number % 2 for number in slow), "once": len(slow)}
    assert total["dropped"]["once"] == 2 * sum(number % 7 > 1 for number in range(200)) - len(slow)
    assert total["remembered"] == {"once": len(slow)}
    assert not (tmp_path / "checkpoints" / "once" / "state" / "exchange").exists()
    odd = Counter(json.loads(message.value())["attributes"]["id"] for message in records(broker.kafka, "once-odd"))
    assert odd == {number: 1 for number in slow if number % 2}
    orders: dict[int, list[int]] = {}
    for message in records(broker.kafka, "once-all"):
        event = json.loads(message.value())
        orders.setdefault(event["partition"], []).append(event["offset"])
    assert all(order == sorted(order) for order in orders.values())


COUNTED = """
name: counted
sources:
  web: {type: stream, stream: counted-web}
transforms:
  parsed: {type: parse, inputs: [web], rules: [{format: json}]}
  load:
    type: aggregate
    inputs: [parsed]
    window: 2s
    lateness: 0s
    by: [service]
    metrics: {requests: {type: count}, ms: {type: sum, of: attributes.ms}}
sinks:
  metrics: {type: stream, inputs: [load], stream: counted-metrics}
  archive: {type: parquet, inputs: [load], path: ./archive}
"""
PLAIN = (
    COUNTED[: COUNTED.index("  load:")]
    + """sinks:
  metrics: {type: stream, inputs: [parsed], stream: counted-metrics}
"""
)


def _counted(broker: BrokerProcess) -> list[dict[str, Any]]:
    """The metrics that the aggregate has made so far."""
    events = [json.loads(message.value()) for message in records(broker.kafka, "counted-metrics")]
    return [event for event in events if event["stream"] == "counted:load"]


def _totals(events: list[dict[str, Any]]) -> Counter[tuple[str, str]]:
    found: Counter[tuple[str, str]] = Counter()
    for event in events:
        found[event["service"], event["body"]] += event["attributes"]["metric.value"]
    return found


def test_windows_end_without_records_and_an_edit_does_not_lose_them_unseen(
    spark: Any, broker: BrokerProcess, tmp_path: Path
) -> None:
    make_stream(broker.kafka, "counted-web", 2)
    publish(broker.kafka, "counted-web", [b'{"msg": "before"}'], 2)
    _run(spark, tmp_path, broker, PLAIN)  # the checkpoint is older than the transform
    lines = [json.dumps({"service": "ab"[number % 2], "ms": number}).encode() for number in range(100)]
    publish(broker.kafka, "counted-web", lines, 2)
    _run(spark, tmp_path, broker, COUNTED)
    assert ledger(tmp_path / "checkpoints" / "counted")["total"]["remembered"]["load"] > 0
    with pytest.raises(PipelineError, match=r"cannot continue with the state of load .*--drop-state load"):
        _run(spark, tmp_path, broker, COUNTED.replace("window: 2s", "window: 3s"))

    file = tmp_path / "pipeline.yaml"
    file.write_text(COUNTED)
    runner = Runner(compile_pipeline(COUNTED, str(file)), RunOptions(bootstrap=broker.kafka), Said())
    thread = threading.Thread(target=runner.run_in, args=(spark,))
    thread.start()
    archive = tmp_path / "archive"
    expected = {("a", "requests"): 50, ("b", "requests"): 50, ("a", "ms"): 2450, ("b", "ms"): 2500}
    try:
        until(lambda: _totals(_counted(broker)) == expected, "windows end by ticks", every_s=1)
        until(lambda: archive_ids(archive).total() == len(_counted(broker)), "and are archived", every_s=1)
    finally:
        runner.stop()
        thread.join(WAIT_S)
    events = _counted(broker)
    assert _totals(events) == expected
    assert len({event["event_id"] for event in events}) == len(events)

    file.write_text(PLAIN)
    options = RunOptions(bootstrap=broker.kafka, once=True, drop_state=("load",))
    Runner(compile_pipeline(PLAIN, str(file)), options, Said()).run_in(spark)
    assert archive_ids(archive).total() == len(events)


HELD = """
name: held
sources:
  web: {type: stream, stream: held-web}
transforms:
  parsed: {type: parse, inputs: [web], rules: [{format: json}]}
  tail: {type: tail_sample, inputs: [parsed], wait: 1h, keep: {all: "severity_number >= 0"}}
  load: {type: aggregate, inputs: [tail], window: 1d, metrics: {n: {type: count}}}
sinks:
  events: {type: stream, inputs: [tail], stream: held-events}
  metrics: {type: stream, inputs: [load], stream: held-metrics}
"""


def test_what_has_become_due_leaves_with_the_next_run_though_no_record_has_come(
    spark: Any, broker: BrokerProcess, tmp_path: Path
) -> None:
    """It stayed until there was a record: a run from a timer brought windows out a night late."""
    text = COUNTED.replace("counted", "due")
    make_stream(broker.kafka, "due-web", 1)
    publish(broker.kafka, "due-web", [b'{"service": "a", "ms": 7}'] * 10, 1)
    _run(spark, tmp_path, broker, text)

    def ended() -> int:
        _run(spark, tmp_path, broker, text)
        return sum(
            json.loads(message.value())["body"] == "requests" for message in records(broker.kafka, "due-metrics")
        )

    until(lambda: ended() == 1, "the window, by runs without records")
    assert ledger(tmp_path / "checkpoints" / "due")["total"]["records_in"] == {"web": 10}


def test_a_replay_ends_with_all_that_transforms_hold(spark: Any, broker: BrokerProcess, tmp_path: Path) -> None:
    """Events of traces and windows that were still open stayed in the checkpoint of the replay, which was over."""
    make_stream(broker.kafka, "held-web", 2)
    lines = [json.dumps({"trace_id": f"{number // 4 + 1:032x}", "msg": "m"}).encode() for number in range(40)]
    publish(broker.kafka, "held-web", lines, 2)
    file = tmp_path / "pipeline.yaml"
    file.write_text(HELD)
    plan = compile_pipeline(HELD, str(file))
    for _ in range(2):  # the second, of a replay that is resumed behind its end, has nothing left to do
        Runner(plan, RunOptions(bootstrap=broker.kafka, once=True, is_replay=True), Said()).run_in(spark)
        assert len(records(broker.kafka, "held-events")) == 40
        (metric,) = records(broker.kafka, "held-metrics")
        assert json.loads(metric.value())["attributes"]["metric.value"] == 40
    last = ledger(tmp_path / "checkpoints" / "held")
    assert (last["ledger"]["held"], last["total"]["records_in"]) == ({"tail": 0, "load": 0}, {"web": 40})
    sources = {"held-web": (plan.sources[0], 2)}
    with dry_run(plan, {}) as counted:
        assert counted.by_sink(record_batch(records(broker.kafka, "held-web"), sources)) == {}
        assert counted.rest_by_sink() == {"events": 40, "metrics": 1}
