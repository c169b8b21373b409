"""Events at an output as they come, and events of the past once more into one sink."""

import json
import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from tests.cli.running import ok, refused
from tests.pipeline.support import WAIT_S, archive_ids, header, make_stream, needs_java, publish, records
from tests.support.commands import run_logboom
from tests.support.server import BrokerProcess

pytestmark = [pytest.mark.spark, needs_java, pytest.mark.timeout(600)]

FILE = """
name: past
sources:
  web: {type: stream, stream: past-web}
transforms:
  parsed: {type: parse, inputs: [web], rules: [{format: json}]}
  masked: {type: mask, inputs: [parsed], rules: [{kind: email, action: redact}]}
  split: {type: route, inputs: [masked], routes: {errors: "severity_number >= 17"}}
sinks:
  errors: {type: stream, inputs: [split.errors], stream: past-errors}
  archive: {type: parquet, inputs: [masked], path: ./archive}
"""


def _line(number: int) -> bytes:
    level = "ERROR" if number % 2 else "INFO"
    service = "shop" if number < 10 else "cart"
    return json.dumps({"level": level, "service": service, "msg": f"{number} of ann@example.com"}).encode()


def _events(broker: BrokerProcess, stream: str) -> list[dict[str, Any]]:
    return [json.loads(message.value()) for message in records(broker.kafka, stream)]


def _replayed(bootstrap: str, *arguments: str) -> str:
    """Runs a replay, which takes Spark its time; what it says beside its progress."""
    environment = {**os.environ, "LOGBOOM_BOOTSTRAP": bootstrap}
    done = run_logboom((*arguments, "--json", "--master", "local[2]"), timeout_s=WAIT_S, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stderr.decode()


@pytest.fixture
def file(broker: BrokerProcess, tmp_path: Path) -> Path:
    path = tmp_path / "past.yaml"
    path.write_text(FILE)
    return path


@pytest.mark.slow
def test_the_past_goes_once_more_into_one_sink(broker: BrokerProcess, file: Path) -> None:
    bootstrap = broker.kafka
    make_stream(bootstrap, "past-web", 2)
    publish(bootstrap, "past-web", [_line(number) for number in range(20)], 2)
    call = ("pipeline", "replay", str(file), "--sink")
    assert "has no sink 'erors' (did you mean 'errors'?)" in refused(
        *call, "erors", "--from", "1h", bootstrap=bootstrap
    )
    assert "--where service >: " in refused(
        *call, "errors", "--from", "1h", "--where", "service >", bootstrap=bootstrap
    )
    assert "there is no replay 'gone'" in refused(
        "pipeline", "replay", str(file), "--resume", "gone", bootstrap=bootstrap
    )
    chosen = (*call, "errors", "--from", "1h", "--where", "service = 'cart'")
    told = ok(*chosen, "--dry-run", "--json", bootstrap=bootstrap).json
    assert (told["records"], told["events"]) == (20, 5)
    assert _events(broker, "past-errors") == []

    name = _replayed(bootstrap, *chosen, "--rate", "1000").split("replay ")[1].split(":")[0]
    events = _events(broker, "past-errors")
    assert sorted(event["body"] for event in events) == sorted(f"{number} of [email]" for number in range(11, 20, 2))
    assert {event["attributes"]["logboom.replay"] for event in events} == {name}
    assert {header(message, "logboom-event-id") for message in records(bootstrap, "past-errors")} == {
        event["event_id"] for event in events
    }

    # What came behind it is not of this replay.
    publish(bootstrap, "past-web", [_line(number) for number in range(20, 30)], 2)
    _replayed(bootstrap, "pipeline", "replay", str(file), "--resume", name)
    assert len(_events(broker, "past-errors")) == 5

    ids = file.parent / "ids"
    ids.write_text("".join(f"{event['event_id']}\n" for event in events[:2]))
    _replayed(bootstrap, *call, "archive", "--from", "1h", "--ids", str(ids))
    assert set(archive_ids(file.parent / "archive")) == {event["event_id"] for event in events[:2]}


def test_a_tap_shows_what_comes_to_an_output(broker: BrokerProcess, file: Path) -> None:
    bootstrap = broker.kafka
    known = "seen: {type: dedupe, inputs: [masked], window: 1h}"
    file.write_text(FILE.replace("past", "tapped").replace("inputs: [masked], routes", "inputs: [seen], routes"))
    file.write_text(file.read_text().replace("  split:", f"  {known}\n  split:"))
    make_stream(bootstrap, "tapped-web", 2)
    assert "has no output 'split.erors' (did you mean 'split.errors'?)" in refused(
        "pipeline", "tap", str(file), "split.erors", bootstrap=bootstrap
    )
    ended = threading.Event()

    def keep_publishing() -> None:
        while not ended.is_set():
            publish(bootstrap, "tapped-web", [_line(number) for number in range(10)], 2)
            time.sleep(0.2)  # a tap begins with what comes after it, and says nothing of its beginning

    writer = threading.Thread(target=keep_publishing)
    writer.start()
    try:
        ran = ok("pipeline", "tap", str(file), "split.errors", "--count", "3", "--json", bootstrap=bootstrap)
    finally:
        ended.set()
        writer.join()
    events = ran.json_lines
    assert len(events) == 3
    assert {event["severity_number"] for event in events} == {17}
    assert all(event["body"].endswith("of [email]") for event in events)
    counted = ("pipeline", "replay", str(file), "--sink", "errors", "--from", "1h", "--dry-run", "--json")
    told = ok(*counted, "--where", "body LIKE '1 %'", bootstrap=bootstrap).json
    assert told["records"] == 10 * told["events"] > 0
    assert ok("pipeline", "tap", str(file), "parsed", "--for", "1s", bootstrap=bootstrap).out == ""
