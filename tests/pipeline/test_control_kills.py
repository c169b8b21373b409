"""kill -9 of the router between the turn of a dial and its batch, and in a reload; and a disk that is full beneath its
checkpoint: nothing is lost, and what was asked for holds afterwards."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.cli.running import ok
from tests.pipeline.support import (
    RouterProcess,
    archive_ids,
    fill_disk,
    ledger,
    make_stream,
    named_file,
    needs_java,
    publish,
    records,
)
from tests.support.server import BrokerProcess
from tests.support.waiting import until

pytestmark = [pytest.mark.spark, pytest.mark.slow, needs_java]

ROUND = 900
BATCH = 300
FILE = """
name: NAME
checkpoint: ./checkpoint
batch: {max_records: 300, interval: 100ms}
sources:
  web: {type: stream, stream: NAME-web}
transforms:
  parsed: {type: parse, inputs: [web], rules: [{format: json}]}
  once: {type: dedupe, inputs: [parsed], by: [body], window: 1d}
  sampled: {type: sample, inputs: [once], rate: {dial: noise, default: 1, min: 1, max: 100}, key: event_id}
sinks:
  archive: {type: parquet, inputs: [once], path: ./archive, on_failure: retry}
  few: {type: stream, inputs: [sampled], stream: NAME-few}
"""
MORE = "  all: {type: stream, inputs: [once], stream: NAME-all}\n"


def _lines(first: int, count: int) -> list[bytes]:
    return [json.dumps({"msg": f"line {number}"}).encode() for number in range(first, first + count)]


def _entries(checkpoint: Path) -> list[dict[str, Any]]:
    paths = sorted((checkpoint / "ledger").glob("*.json"), key=lambda path: int(path.stem))
    return [json.loads(path.read_text()) for path in paths]


def _batches(checkpoint: Path) -> int:
    return len(list((checkpoint / "pins" / "batches").glob("*.json")))


def _await_batch(router: RouterProcess, checkpoint: Path) -> None:
    before = _batches(checkpoint)
    until(lambda: _batches(checkpoint) > before or not router.alive(), "a batch begins")
    assert router.alive(), router.log_text()[-3_000:]


def _ids(bootstrap: str, stream: str) -> dict[str, set[float]]:
    """By event: the weights that it came with."""
    found: dict[str, set[float]] = {}
    for message in records(bootstrap, stream):
        event = json.loads(message.value())
        found.setdefault(event["event_id"], set()).add(event["weight"])
    return found


def test_dials_and_reloads_survive_the_router(broker: BrokerProcess, tmp_path: Path) -> None:
    bootstrap, name, checkpoint = broker.kafka, "controlled", tmp_path / "checkpoint"
    file = named_file(tmp_path, name, FILE)
    make_stream(bootstrap, f"{name}-web", 2)
    with RouterProcess(file, bootstrap) as router:
        publish(bootstrap, f"{name}-web", _lines(0, ROUND), 2)
        _await_batch(router, checkpoint)
        ok("pipeline", "dial", "set", name, "noise", "4", "--why", "deploy", bootstrap=bootstrap)
        router.kill9()
    with RouterProcess(file, bootstrap) as router:
        publish(bootstrap, f"{name}-web", _lines(ROUND, ROUND), 2)
        _await_batch(router, checkpoint)
        named_file(tmp_path, name, FILE + MORE)
        asking = [*router.command[:4], "reload", str(file)]
        with subprocess.Popen(asking, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as reload:
            request = checkpoint / "reload.request"
            until(lambda: request.exists() or "reloading" in router.log_text(), "a reload is asked for")
            router.kill9()
            reload.kill()
    publish(bootstrap, f"{name}-web", _lines(2 * ROUND, ROUND), 2)
    with RouterProcess(file, bootstrap, "--once") as router:
        assert router.wait() == 0, router.log_text()[-3_000:]
    total = ledger(checkpoint)["total"]
    assert (total["records_in"], total["dropped"]["once"]) == ({"web": 3 * ROUND}, 0)
    assert set(archive_ids(tmp_path / "archive").values()) == {1}
    assert len(archive_ids(tmp_path / "archive")) == 3 * ROUND
    few = _ids(bootstrap, f"{name}-few")
    assert all(len(weights) == 1 for weights in few.values()), "a batch that ran again kept its dials"
    dials = [entry["dials"] for entry in _entries(checkpoint)]
    assert dials[-1] == {"noise": 4}
    assert dials == sorted(dials, key=len), "it holds from one batch on"
    before = sum(entry["ledger"]["records_in"]["web"] for entry in _entries(checkpoint) if not entry["dials"])
    assert sum(weights == {1.0} for weights in few.values()) == before
    assert len(_ids(bootstrap, f"{name}-all")) >= ROUND


def test_a_full_disk_beneath_the_checkpoint_loses_nothing(
    broker: BrokerProcess, tmp_path: Path, small_disk: Path
) -> None:
    bootstrap, name, checkpoint = broker.kafka, "filled", small_disk / "checkpoint"
    file = named_file(tmp_path, name, FILE.replace("./checkpoint", str(checkpoint)))
    make_stream(bootstrap, f"{name}-web", 2)
    with RouterProcess(file, bootstrap) as router:
        publish(bootstrap, f"{name}-web", _lines(0, ROUND), 2)
        until(lambda: len(archive_ids(tmp_path / "archive")) == ROUND or not router.alive(), "events", every_s=1)
        filler = small_disk / "filler"
        fill_disk(filler)
        publish(bootstrap, f"{name}-web", _lines(ROUND, ROUND), 2)
        until(lambda: f"{checkpoint} is full" in router.log_text() or not router.alive(), "the sentence", every_s=1)
        filler.unlink()
        until(lambda: len(archive_ids(tmp_path / "archive")) == 2 * ROUND or not router.alive(), "events", every_s=1)
        assert router.sigterm() == 0, router.log_text()[-3_000:]
    publish(bootstrap, f"{name}-web", _lines(2 * ROUND - 100, 100), 2)
    with RouterProcess(file, bootstrap, "--once") as router:
        assert router.wait() == 0, router.log_text()[-3_000:]
    total = ledger(checkpoint)["total"]
    assert (total["records_in"], total["dropped"]["once"]) == ({"web": 2 * ROUND + 100}, 100)
    assert len(archive_ids(tmp_path / "archive")) == 2 * ROUND
    assert set(archive_ids(tmp_path / "archive").values()) == {1}
