"""`logboom pipeline run` as a person and as a scraper meet it: streams that are not there, and /metrics."""

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from tests.pipeline.support import (
    RouterProcess,
    make_stream,
    named_file,
    needs_java,
    publish,
    scraped,
)
from tests.support.server import BrokerProcess, free_port
from tests.support.spark_jvms import SparkJvms
from tests.support.waiting import until

pytestmark = [pytest.mark.spark, needs_java]

PIPELINE = """
name: NAME
sources:
  web: {type: stream, stream: NAME-web}
transforms:
  parsed: {type: parse, inputs: [web], rules: [{format: json}]}
  clean: {type: filter, inputs: [parsed], condition: "severity_text <> 'DEBUG'"}
  masked: {type: mask, inputs: [clean], rules: [{kind: email, action: redact}]}
  split: {type: route, inputs: [masked], routes: {errors: "severity_number >= 17"}}
sinks:
  errors: {type: stream, inputs: [split.errors, masked], stream: NAME-errors}
  screen: {type: console, inputs: [split.unmatched]}
"""


def _said(router: RouterProcess) -> list[dict[str, Any]]:
    lines = [line for line in router.log_text().splitlines() if line.startswith("{")]
    return [json.loads(line) for line in lines]


def test_once_ends_with_a_sentence_where_a_stream_is_missing(
    broker: BrokerProcess, tmp_path: Path, spark_jvms: SparkJvms
) -> None:
    with RouterProcess(named_file(tmp_path, "absent", PIPELINE), broker.kafka, "--once", jvms=spark_jvms) as router:
        assert router.wait() == 1
    text = router.log_text()
    assert "the stream absent-web does not exist; make it with: logboom streams create absent-web" in text
    assert "Traceback" not in text
    assert not (tmp_path / "checkpoints").exists()


def test_an_unknown_level_of_spark_s_log_is_refused_before_spark_starts(tmp_path: Path) -> None:
    with RouterProcess(named_file(tmp_path, "loud", PIPELINE), "127.0.0.1:1", "--spark-log", "LOUD") as router:
        assert router.wait() == 1
    assert "--spark-log LOUD: should be one of ALL, DEBUG, ERROR" in router.log_text()


def test_without_once_it_waits_and_says_so(broker: BrokerProcess, tmp_path: Path, spark_jvms: SparkJvms) -> None:
    with RouterProcess(named_file(tmp_path, "later", PIPELINE), broker.kafka, jvms=spark_jvms) as router:
        until(lambda: len(_said(router)) >= 2 or not router.alive(), "a word")
        states = [line["state"] for line in _said(router) if "state" in line]
        messages = [line["message"] for line in _said(router) if "message" in line]
        assert states == ["waiting"]
        assert messages == ["waiting for the stream later-web, which does not exist yet"]
        assert router.sigterm() == 0


def test_metrics_show_the_balance_while_it_runs_and_ctrl_c_lets_a_batch_end(
    broker: BrokerProcess, tmp_path: Path, spark_jvms: SparkJvms
) -> None:
    """That nothing outlives a router that was stopped is shown by test_kill, whose JVMs are its own."""
    make_stream(broker.kafka, "seen-web", 1)
    lines = [json.dumps({"level": level, "msg": "to a@example.com"}).encode() for level in ("INFO", "ERROR", "DEBUG")]
    publish(broker.kafka, "seen-web", [*lines * 10, b'{"cut": '], 1)
    http = f"127.0.0.1:{free_port()}"
    with RouterProcess(named_file(tmp_path, "seen", PIPELINE), broker.kafka, "--http", http, jvms=spark_jvms) as router:

        def delivered() -> bool:
            assert router.alive(), router.log_text()[-2_000:]
            return scraped(http).get(("logboom_pipeline_delivered_total", "screen"), 0) >= 10

        until(delivered, "events on the screen")
        found = scraped(http)

        # As a terminal does it: to all processes in the foreground, here in the middle of a batch.
        checkpoint = tmp_path / "checkpoints" / "seen"
        publish(broker.kafka, "seen-web", lines * 700, 1)
        until((checkpoint / "pins" / "batches" / "1.json").exists, "another batch begins")
        os.killpg(router.process.pid, signal.SIGINT)
        assert router.wait() == 0, router.log_text()[-2_000:]
        assert (checkpoint / "router" / "commits" / "1").exists(), router.log_text()[-2_000:]
    assert found["logboom_pipeline_records_in_total", "web"] == 31
    assert found["logboom_pipeline_copies_total", ""] == 20
    assert found["logboom_pipeline_records_out_total", "errors"] == 30
    assert found["logboom_pipeline_records_out_total", "split.unmatched"] == 10
    assert found["logboom_pipeline_records_dropped_total", "clean"] == 10
    assert found["logboom_pipeline_dead_letters_total", "parsed"] == 1
    assert found["logboom_pipeline_masked_total", "email"] == 20
    assert found["logboom_pipeline_unbalanced_records", ""] == 0
    total = {
        kind: sum(value for (name, _), value in found.items() if name == f"logboom_pipeline_{kind}_total")
        for kind in ("records_in", "copies", "records_out", "records_dropped", "dead_letters")
    }
    gone = total["records_out"] + total["records_dropped"] + total["dead_letters"]
    assert total["records_in"] + total["copies"] == gone
