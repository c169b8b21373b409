"""kill -9 of a running router, again and again: the balance of records holds, the archive has each event once."""

import json
import threading
from pathlib import Path

import pytest
from tests.pipeline.support import (
    RouterProcess,
    all_ended,
    archive_ids,
    descendants,
    header,
    ledger,
    make_stream,
    needs_java,
    publish,
    records,
    wait_until,
)
from tests.support.server import BrokerProcess

pytestmark = [pytest.mark.spark, needs_java, pytest.mark.timeout(900)]

EVENTS = 3_200
PARTITIONS = 2
PIPELINE = """
name: kill
checkpoint: ./checkpoint
batch: {max_records: 400, interval: 100ms}
sources:
  web: {type: stream, stream: web}
transforms:
  parsed: {type: parse, inputs: [web], rules: [{format: json}]}
  clean: {type: filter, inputs: [parsed], condition: "severity_text <> 'DEBUG'"}
  masked: {type: mask, inputs: [clean], rules: [{kind: email, action: redact}]}
  split: {type: route, inputs: [masked], routes: {errors: "severity_number >= 17"}}
sinks:
  archive: {type: parquet, inputs: [masked], path: ./archive}
  errors: {type: stream, inputs: [split.errors], stream: errors}
  rest: {type: stream, inputs: [split.unmatched], stream: rest}
"""


def _line(number: int) -> bytes:
    if number % 500 == 3:
        return b'{"cut": '
    level = ("INFO", "ERROR", "WARN", "DEBUG")[number // PARTITIONS % 4]
    event = {"time": "2026-11-20T12:00:00Z", "level": level, "msg": f"mail to a{number}@example.com", "n": number}
    return json.dumps(event).encode()


def _kind(number: int) -> str:
    if number % 500 == 3:
        return "dead"
    return ("rest", "errors", "rest", "dropped")[number // PARTITIONS % 4]


def _event_ids(wanted: set[str]) -> int:
    return sum(_kind(number) in wanted for number in range(EVENTS))


def test_a_router_killed_under_load_loses_and_repeats_nothing(tmp_path: Path) -> None:
    file = tmp_path / "kill.yaml"
    file.write_text(PIPELINE)
    checkpoint, archive = tmp_path / "checkpoint", tmp_path / "archive"
    pins, manifests = checkpoint / "pins" / "batches", archive / "_logboom" / "manifests"

    def count(directory: Path) -> int:
        return max((int(path.stem) + 1 for path in directory.glob("**/*.json") if path.stem.isdigit()), default=0)

    with BrokerProcess(tmp_path / "data") as broker:
        make_stream(broker.kafka, "web", PARTITIONS)
        lines = [_line(number) for number in range(EVENTS)]
        load = threading.Thread(target=publish, args=(broker.kafka, "web", lines, PARTITIONS))
        load.start()
        with RouterProcess(file, broker.kafka) as router:
            wait_until(lambda: count(pins) >= 1 or not router.alive(), "a batch")
            assert router.sigterm() == 0, router.log_text()[-2_000:]
        # Killed as a batch begins, then as the archive commits, the driver alone, its JVM left to notice.
        for queries, more, group in ((pins, 2, True), (manifests, 1, False)):
            with RouterProcess(file, broker.kafka) as router:
                seen = count(queries)
                wait_until(lambda: count(queries) >= seen + more or not router.alive(), "a batch")  # noqa: B023
                assert router.alive(), router.log_text()[-2_000:]
                started = descendants(router.process.pid)
                assert len(started) >= 2, "the driver and its JVM"
                router.kill9(group=group)
                # Nothing outlives a driver: the JVM and its workers notice that it is gone.
                wait_until(lambda: all_ended(started), "all end", 30)  # noqa: B023
        load.join()
        with RouterProcess(file, broker.kafka, "--once") as router:
            wait_until(lambda: len(descendants(router.process.pid)) > 1 or not router.alive(), "its JVM")
            started = descendants(router.process.pid) - {router.process.pid}
            assert router.wait() == 0, router.log_text()[-3_000:]
            wait_until(lambda: all_ended(started), "its JVM, which stops Spark by itself, has ended")
        errors, rest = records(broker.kafka, "errors"), records(broker.kafka, "rest")
        dead = records(broker.kafka, "kill.dead.parsed")

    ids = archive_ids(archive)
    assert len(ids) == _event_ids({"rest", "errors"})
    assert set(ids.values()) == {1}
    assert len({header(message, "logboom-event-id") for message in errors}) == _event_ids({"errors"})
    assert len({header(message, "logboom-event-id") for message in rest}) == _event_ids({"rest"})
    assert len({header(message, "logboom-origin") for message in dead}) == _event_ids({"dead"})
    total = ledger(checkpoint)["total"]
    assert total["records_in"] == {"web": EVENTS}
    assert total["dead"]["parsed"] == _event_ids({"dead"})
    assert total["dropped"] == {"clean": _event_ids({"dropped"})}
    assert sum(total["out"].values()) == 2 * _event_ids({"rest", "errors"})
    assert total["copies"] == _event_ids({"rest", "errors"})
