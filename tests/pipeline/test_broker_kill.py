"""kill -9 of the broker under a running router: it waits, goes on, and the balance of records holds."""

import json
import threading
from pathlib import Path

import pytest
from tests.pipeline.support import (
    RouterProcess,
    archive_ids,
    header,
    ledger,
    make_stream,
    needs_java,
    publish,
    records,
    wait_until,
)
from tests.support.server import BrokerProcess

pytestmark = [pytest.mark.spark, needs_java, pytest.mark.timeout(300)]

EVENTS = 2_400
PARTITIONS = 2
KILLS = 2
PIPELINE = """
name: gone
checkpoint: ./checkpoint
batch: {max_records: 300, interval: 100ms}
sources:
  web: {type: stream, stream: web}
transforms:
  parsed: {type: parse, inputs: [web], rules: [{format: json}]}
  split: {type: route, inputs: [parsed], routes: {errors: "severity_number >= 17"}}
sinks:
  archive: {type: parquet, inputs: [parsed], path: ./archive, on_failure: retry}
  errors: {type: stream, inputs: [split.errors], stream: errors}
  rest: {type: stream, inputs: [split.unmatched], stream: rest}
"""


def _line(number: int) -> bytes:
    if number % 100 == 7:
        return b'{"cut": '
    level = "ERROR" if number // PARTITIONS % 4 == 0 else "INFO"
    return json.dumps({"time": "2026-11-20T12:00:00Z", "level": level, "n": number}).encode()


def test_a_broker_killed_under_the_router_costs_time_and_no_record(tmp_path: Path) -> None:
    file = tmp_path / "gone.yaml"
    file.write_text(PIPELINE)
    checkpoint = tmp_path / "checkpoint"
    lines = [_line(number) for number in range(EVENTS)]
    dead = sum(line.startswith(b'{"cut"') for line in lines)
    errors = sum(b"ERROR" in line for line in lines)

    with BrokerProcess(tmp_path / "data") as broker:
        make_stream(broker.kafka, "web", PARTITIONS)
        load = threading.Thread(target=publish, args=(broker.kafka, "web", lines, PARTITIONS))
        load.start()
        with RouterProcess(file, broker.kafka) as router:

            def read() -> int:
                assert router.alive(), router.log_text()[-3_000:]
                books = list((checkpoint / "ledger").glob("*.json"))
                return int(ledger(checkpoint)["total"]["records_in"]["web"]) if books else 0

            for _ in range(KILLS):
                seen = read()
                wait_until(lambda: read() > seen, "a batch")  # noqa: B023
                broker.kill9()
                broker.restart()
            load.join(60)
            wait_until(lambda: read() >= EVENTS, "the rest")
            archive = tmp_path / "archive"
            wait_until(lambda: len(archive_ids(archive)) >= EVENTS - dead, "the archive", every_s=0.5)
            assert router.sigterm() == 0, router.log_text()[-3_000:]
        found = {stream: records(broker.kafka, stream) for stream in ("errors", "rest", "gone.dead.parsed")}

    ids = archive_ids(tmp_path / "archive")
    assert len(ids) == EVENTS - dead
    assert set(ids.values()) == {1}
    assert len({header(message, "logboom-event-id") for message in found["errors"]}) == errors
    assert len({header(message, "logboom-event-id") for message in found["rest"]}) == EVENTS - dead - errors
    assert len({header(message, "logboom-origin") for message in found["gone.dead.parsed"]}) == dead
    total = ledger(checkpoint)["total"]
    assert total["records_in"] == {"web": EVENTS}
    assert total["dead"]["parsed"] == dead
    assert sum(total["out"].values()) == EVENTS - dead + total["copies"]
