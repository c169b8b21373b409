"""A router on YARN: Hadoop's own resource manager and node manager, and executors in containers of theirs."""

import json
import subprocess
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from tests.clients.drivers import DriverMissingError, yarn
from tests.pipeline.support import (
    RouterProcess,
    archive_ids,
    header,
    ledger,
    make_stream,
    needs_java,
    publish,
    records,
)
from tests.support.commands import run_logboom
from tests.support.server import BrokerProcess
from tests.support.waiting import WAIT_S, until

from logboom.pipeline.spark.jvm import pyspark_dir

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.clients, needs_java]

COUNT = 600
PIPELINE = """
name: contained
checkpoint: ./checkpoint
batch: {max_records: 300, interval: 100ms}
sources:
  web: {type: stream, stream: contained-web}
transforms:
  parsed: {type: parse, inputs: [web], rules: [{format: json}]}
  masked: {type: mask, inputs: [parsed], rules: [{kind: email, action: redact}]}
sinks:
  out: {type: stream, inputs: [masked], stream: contained-out}
  archive: {type: parquet, inputs: [masked], path: ./archive}
"""


@pytest.fixture
def settings(tmp_path: Path) -> Iterator[Path]:
    """The directory with the settings of a YARN that runs."""
    try:
        command = yarn()
    except DriverMissingError as missing:
        pytest.skip(str(missing))
    directory = tmp_path / "hadoop"
    directory.mkdir()
    log = directory / "log"
    with (
        log.open("wb") as out,
        subprocess.Popen([*command, str(directory)], stdin=subprocess.PIPE, stdout=out, stderr=out) as cluster,
    ):
        try:
            until(lambda: "ready" in log.read_text() or cluster.poll() is not None, "YARN", every_s=0.5)
            assert cluster.poll() is None, log.read_text()[-3_000:]
            yield directory
        finally:
            assert cluster.stdin is not None
            cluster.stdin.close()  # it then ends its containers too
            try:
                cluster.wait(WAIT_S)
            finally:
                cluster.kill()


def _is_there(directory: Path, files: str, router: RouterProcess) -> bool:
    return any(directory.glob(files)) or not router.alive()


def test_a_router_runs_in_the_containers_of_yarn(
    broker: BrokerProcess, tmp_path: Path, settings: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bootstrap, environment, file = broker.kafka, tmp_path / "environment.tar.gz", tmp_path / "contained.yaml"
    done = run_logboom(["pipeline", "package", "--out", str(environment)], timeout_s=WAIT_S)
    assert done.returncode == 0, done.stderr
    file.write_text(PIPELINE)
    for name in ("contained-web", "contained-out"):
        make_stream(bootstrap, name, 2)
    lines = [json.dumps({"msg": f"mail to a{number}@example.com"}).encode() for number in range(COUNT)]
    publish(bootstrap, "contained-web", lines, 2)
    monkeypatch.setenv("HADOOP_CONF_DIR", str(settings))
    spark = {
        "spark.yarn.jars": f"local:{pyspark_dir()}/jars/*",  # there already: Spark would send 400 MB of them
        "spark.yarn.stagingDir": str(tmp_path),
        "spark.executor.instances": "1",
        "spark.executor.memory": "512m",
        "spark.yarn.am.memory": "512m",
    }
    given = [part for name, value in spark.items() for part in ("--spark", f"{name}={value}")]
    on = ("--master", "yarn", "--environment", str(environment))
    started = (
        (settings, "data/*/*/*-logDir-*/*/container_*_000001/stderr", "Spark's application is begun"),
        (settings, "data/*/*/*-logDir-*/*/container_*_000002/stderr", "an executor is begun"),
        (tmp_path, "checkpoint/router/metadata", "the router is begun"),
        (tmp_path, "checkpoint/ledger/*.json", "a batch is done"),
    )
    with RouterProcess(file, bootstrap, "--once", *on, *given) as router:
        for directory, files, what in started:  # a loaded machine takes minutes for each
            until(partial(_is_there, directory, files, router), what, every_s=0.5)
        assert router.wait() == 0, router.log_text()[-3_000:]
    wanted = {f"contained-web:{number % 2}:{number // 2}" for number in range(COUNT)}
    found = records(bootstrap, "contained-out")
    assert {header(one, "logboom-event-id") for one in found} == wanted
    assert all(json.loads(one.value())["body"] == "mail to [email]" for one in found)
    assert archive_ids(tmp_path / "archive") == Counter(wanted)
    assert ledger(tmp_path / "checkpoint")["total"]["records_in"] == {"web": COUNT}
