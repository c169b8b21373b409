"""A router on Kubernetes: an API server of the makers of Spark's client, and executor pods that are processes here."""

import json
import os
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from tests.clients.drivers import DriverMissingError, kubernetes
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
name: podded
checkpoint: ./checkpoint
batch: {max_records: 300, interval: 100ms}
sources:
  web: {type: stream, stream: podded-web}
transforms:
  parsed: {type: parse, inputs: [web], rules: [{format: json}]}
  masked: {type: mask, inputs: [parsed], rules: [{kind: email, action: redact}]}
sinks:
  out: {type: stream, inputs: [masked], stream: podded-out}
  archive: {type: parquet, inputs: [masked], path: ./archive}
"""


@pytest.fixture
def pods(tmp_path: Path) -> Path:
    """The directory with a directory for each pod."""
    return tmp_path / "pods"


@pytest.fixture
def master(tmp_path: Path, pods: Path) -> Iterator[str]:
    """What `--master` takes for a Kubernetes that runs."""
    try:
        command = kubernetes()
    except DriverMissingError as missing:
        pytest.skip(str(missing))
    log = tmp_path / "kubernetes.log"
    with (
        log.open("wb") as out,
        subprocess.Popen(
            [*command, str(pods), str(pyspark_dir())], stdin=subprocess.PIPE, stdout=out, stderr=out
        ) as cluster,
    ):
        try:
            until(lambda: "ready" in log.read_text() or cluster.poll() is not None, "Kubernetes", every_s=0.5)
            assert cluster.poll() is None, log.read_text()[-3_000:]
            yield "k8s://" + next(line for line in log.read_text().splitlines() if "ready" in line).split()[-1]
        finally:
            assert cluster.stdin is not None
            cluster.stdin.close()  # it then ends its pods too
            try:
                cluster.wait(WAIT_S)
            finally:
                cluster.kill()


def _lines(begin: int) -> list[bytes]:
    return [json.dumps({"msg": f"mail to a{number}@example.com"}).encode() for number in range(begin, begin + COUNT)]


def _batch_is_done(checkpoint: Path, records_in: int, router: RouterProcess) -> bool:
    done = any((checkpoint / "ledger").glob("*.json")) and ledger(checkpoint)["total"]["records_in"]
    return done == {"web": records_in} or not router.alive()


def test_a_router_runs_in_pods_and_outlives_one(broker: BrokerProcess, tmp_path: Path, master: str, pods: Path) -> None:
    bootstrap, environment, file = broker.kafka, tmp_path / "environment.tar.gz", tmp_path / "podded.yaml"
    done = run_logboom(["pipeline", "package", "--out", str(environment)], timeout_s=WAIT_S)
    assert done.returncode == 0, done.stderr
    file.write_text(PIPELINE)
    for name in ("podded-web", "podded-out"):
        make_stream(bootstrap, name, 2)
    publish(bootstrap, "podded-web", _lines(0), 2)
    spark = {
        "spark.kubernetes.container.image": "spark:4.2.1",  # asked for, and not looked at by a node without containers
        "spark.kubernetes.allocation.batch.delay": "1s",
        "spark.kubernetes.driver.requestTimeout": str(int(WAIT_S * 1_000)),
        "spark.kubernetes.driver.connectionTimeout": str(int(WAIT_S * 1_000)),
        "spark.executor.instances": "1",
        "spark.executor.memory": "512m",
    }
    given = [part for name, value in spark.items() for part in ("--spark", f"{name}={value}")]
    on = ("--master", master, "--environment", str(environment))
    checkpoint = tmp_path / "checkpoint"
    with RouterProcess(file, bootstrap, *on, *given) as router:
        until(partial(_batch_is_done, checkpoint, COUNT, router), "the first records are through", every_s=0.5)
        assert router.alive(), router.log_text()[-3_000:]
        (first,) = pods.iterdir()
        os.kill(int((first / "pid").read_text()), signal.SIGKILL)
        publish(bootstrap, "podded-web", _lines(COUNT), 2)
        until(partial(_batch_is_done, checkpoint, 2 * COUNT, router), "a pod took its place", every_s=0.5)
        assert router.sigterm() == 0, router.log_text()[-3_000:]
    assert len(list(pods.iterdir())) > 1
    wanted = {f"podded-web:{number % 2}:{number // 2}" for number in range(2 * COUNT)}
    found = records(bootstrap, "podded-out")
    assert {header(one, "logboom-event-id") for one in found} == wanted
    assert all(json.loads(one.value())["body"] == "mail to [email]" for one in found)
    assert archive_ids(tmp_path / "archive") == Counter(wanted)
