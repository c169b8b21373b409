"""A broker that is not there yet, or goes away while the router starts, is waited for, and the wait can be ended."""

import json
import threading
from pathlib import Path
from typing import Any

import pytest
from tests.pipeline.support import RouterProcess, Said, make_stream, needs_java, publish, records, scraped
from tests.support.server import BrokerProcess, free_port
from tests.support.spark_jvms import SparkJvms
from tests.support.waiting import WAIT_S, until

from logboom.pipeline.config.compile import compile_pipeline
from logboom.pipeline.run.runner import Runner, RunOptions

pytestmark = [pytest.mark.spark, needs_java]

PIPELINE = """
name: waiting
batch: {interval: 100ms}
sources:
  web: {type: stream, stream: waiting-web}
transforms:
  parsed: {type: parse, inputs: [web], rules: [{format: json}]}
sinks:
  out: {type: stream, inputs: [parsed], stream: waiting-out}
"""


def _file(directory: Path) -> Path:
    file = directory / "waiting.yaml"
    file.write_text(PIPELINE)
    return file


def test_it_says_for_which_broker_it_waits_and_ends_on_sigterm(tmp_path: Path, spark_jvms: SparkJvms) -> None:
    nobody, http = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
    with RouterProcess(_file(tmp_path), nobody, "--http", http, jvms=spark_jvms) as router:
        told = f'{{"message":"waiting for a broker at {nobody}, where none answers yet"}}'
        until(lambda: told in router.log_text() or not router.alive(), "a word")
        assert router.alive(), router.log_text()
        assert scraped(http)["logboom_pipeline_restarts_total", ""] == 0, "it can be seen that it waits"
        assert router.sigterm() == 0
    assert router.log_text().count("waiting for a broker") == 1


def test_a_run_that_is_to_end_does_not_wait(tmp_path: Path, spark_jvms: SparkJvms) -> None:
    nobody = f"127.0.0.1:{free_port()}"
    with RouterProcess(_file(tmp_path), nobody, "--once", jvms=spark_jvms) as router:
        assert router.wait() == 1
    assert f"no broker answers at {nobody}" in router.log_text()


def test_a_broker_that_dies_while_the_router_starts_is_waited_for(spark: Any, tmp_path: Path) -> None:
    file = _file(tmp_path)
    plan, said = compile_pipeline(PIPELINE, str(file)), Said()
    with BrokerProcess(tmp_path / "data") as broker:
        make_stream(broker.kafka, "waiting-web", 1)
        publish(broker.kafka, "waiting-web", [json.dumps({"msg": "one"}).encode()], 1)
        broker.kill9()
        runner = Runner(plan, RunOptions(bootstrap=broker.kafka), said)
        # The streams were seen; then the broker died, while Spark started.
        thread = threading.Thread(target=runner.run_in, args=(spark, {"waiting-web": 1}))
        thread.start()
        try:
            until(lambda: bool(said.lines) or not thread.is_alive(), "a word")
            assert said.lines[0].startswith(f"waiting for a broker at {broker.kafka}: ")
            broker.start()
            until(lambda: bool(records(broker.kafka, "waiting-out")) or not thread.is_alive(), "the event")
            assert thread.is_alive()
        finally:
            runner.stop()
            thread.join(WAIT_S)
        assert not thread.is_alive()
        assert len(records(broker.kafka, "waiting-out")) == 1
