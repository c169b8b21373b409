"""A router on a Spark cluster: a standalone master and two workers as processes, whose Python has none of the packages.

What the executors import travels with the pipeline. A worker and then the driver are killed while records flow; in the
end each record is delivered, and none is unaccounted for.
"""

import gzip
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import Producer
from tests.pipeline.support import RouterProcess, descendants, header, ledger, make_stream, needs_java, records
from tests.support.commands import run_logboom
from tests.support.server import BrokerProcess, free_port

from logboom.pipeline.errors import PipelineError
from logboom.pipeline.spark.environment import environment_settings, executor_python
from logboom.pipeline.spark.jvm import pyspark_dir

pytestmark = [pytest.mark.spark, needs_java, pytest.mark.timeout(900)]

WAIT_S: Final = 240
PIPELINE: Final = """
name: spread
checkpoint: ./checkpoint
batch: {max_records: 500, interval: 100ms}
sources:
  web: {type: stream, stream: spread}
transforms:
  parsed: {type: parse, inputs: [web], rules: [{format: json}]}
  masked: {type: mask, inputs: [parsed], rules: [{kind: email, action: redact}]}
sinks:
  out: {type: stream, inputs: [masked], stream: spread-out}
"""


class SparkCluster:
    """A standalone master and two workers with a core each, on free ports of 127.0.0.1."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._stack = ExitStack()
        port = free_port()
        self.master = f"spark://127.0.0.1:{port}"
        self._arguments = ("--host", "127.0.0.1", "--port", str(port), "--webui-port", "0")
        self.workers: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> "SparkCluster":
        with ExitStack() as stack:
            self._start(stack, "master", "master.Master", *self._arguments)
            self._wait_for("master", "New state: ALIVE")
            for number in (1, 2):
                work = (
                    "--work-dir",
                    str(self._directory / f"work-{number}"),
                    "--webui-port",
                    "0",
                    "--host",
                    "127.0.0.1",
                )
                name = f"worker-{number}"
                self.workers.append(
                    self._start(stack, name, "worker.Worker", "--cores", "1", "--memory", "1g", *work, self.master)
                )
            for number in (1, 2):
                self._wait_for(f"worker-{number}", "Successfully registered with master")
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def kill_worker(self, number: int) -> None:
        """The worker and its executors."""
        for pid in descendants(self.workers[number - 1].pid):
            os.kill(pid, signal.SIGKILL)

    def _start(self, stack: ExitStack, name: str, what: str, *arguments: str) -> "subprocess.Popen[bytes]":
        spark = pyspark_dir()
        # The interpreter that the test's environment was made from: nothing of ours is installed there.
        paths = os.pathsep.join((str(Path(sys.base_prefix) / "bin"), os.environ["PATH"]))
        own = {"SPARK_HOME": str(spark), "PATH": paths, "SPARK_LOCAL_IP": "127.0.0.1"}
        environment = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "PYSPARK"))}
        command = [str(spark / "bin/spark-class"), f"org.apache.spark.deploy.{what}", *arguments]
        log = stack.enter_context((self._directory / f"{name}.log").open("wb"))
        process = subprocess.Popen(command, stdout=log, stderr=log, env=environment | own, start_new_session=True)
        stack.callback(_end, process)
        return process

    def _wait_for(self, name: str, line: str) -> None:
        path, deadline = self._directory / f"{name}.log", time.monotonic() + WAIT_S
        while line not in (text := path.read_text(errors="replace")):
            assert time.monotonic() < deadline, text[-2_000:]
            time.sleep(0.1)


def _end(process: "subprocess.Popen[bytes]") -> None:
    for pid in descendants(process.pid):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue  # it ended meanwhile
    process.wait(WAIT_S)


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    archive = tmp_path_factory.mktemp("environment") / "environment.tar.gz"
    done = run_logboom(["pipeline", "package", "--out", str(archive)], timeout_s=WAIT_S)
    assert re.search(r"environment\.tar\.gz: \d\d+ packages, \d+ MiB", done.stderr.decode()), done
    return archive


def _send(broker: BrokerProcess, numbers: range) -> None:
    producer = Producer({"bootstrap.servers": broker.kafka, "enable.idempotence": True})
    for number in numbers:
        event = {"time": "2026-11-20T12:00:00Z", "msg": f"mail to a{number}@example.com", "n": number}
        producer.produce("spread", json.dumps(event), partition=number % 2)
    assert producer.flush(WAIT_S) == 0


@contextmanager
def _router(
    file: Path, broker: BrokerProcess, cluster: SparkCluster, environment: Path, *more: str
) -> Iterator[RouterProcess]:
    arguments = ("--master", cluster.master, "--environment", str(environment), "--spark", "spark.executor.memory=512m")
    with RouterProcess(file, broker.kafka, *arguments, "--spark", "spark.driver.host=127.0.0.1", *more) as router:
        yield router


def _wait_for_records(router: RouterProcess, broker: BrokerProcess, count: int) -> None:
    deadline = time.monotonic() + WAIT_S
    while len({header(one, "logboom-event-id") for one in records(broker.kafka, "spread-out")}) < count:
        assert router.process.poll() is None, router.log_text()[-3_000:]
        assert time.monotonic() < deadline, router.log_text()[-3_000:]
        time.sleep(0.5)


@pytest.mark.in_turn(3)
def test_a_worker_and_the_driver_are_killed(tmp_path: Path, broker: BrokerProcess, environment: Path) -> None:
    make_stream(broker.kafka, "spread", partitions=2)
    make_stream(broker.kafka, "spread-out", partitions=2)
    file = tmp_path / "pipeline.yaml"
    file.write_text(PIPELINE)
    with SparkCluster(tmp_path) as cluster:
        with _router(file, broker, cluster, environment) as router:
            _send(broker, range(1_000))
            _wait_for_records(router, broker, 1_000)
            _send(broker, range(1_000, 2_000))
            cluster.kill_worker(1)
            _wait_for_records(router, broker, 2_000)
            _send(broker, range(2_000, 3_000))
            router.kill9()
        with _router(file, broker, cluster, environment, "--once") as router:
            assert router.process.wait(WAIT_S) == 0, router.log_text()[-3_000:]
    found = records(broker.kafka, "spread-out")
    numbers = {json.loads(one.value() or b"")["attributes"]["n"] for one in found}
    assert numbers == set(range(3_000))
    total = ledger(tmp_path / "checkpoint")["total"]
    assert (total["records_in"], total["out"]) == ({"web": 3_000}, {"out": 3_000})
    assert b"example.com" not in b"".join(one.value() or b"" for one in found)


def test_an_archive_with_an_interpreter_of_its_own_brings_that(tmp_path: Path, environment: Path) -> None:
    """As those of venv-pack and conda-pack have one."""
    assert executor_python(str(environment)) == f"python{sys.version_info.major}.{sys.version_info.minor}"
    assert environment_settings(str(environment))["spark.executorEnv.PYTHONPATH"] == "environment"
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/python").touch()
    packed = tmp_path / "conda.tar.gz"
    subprocess.run(["tar", "czf", str(packed), "-C", str(tmp_path), "bin"], check=True)
    assert executor_python(str(packed)) == "./environment/bin/python"
    assert environment_settings(str(packed)) == {"spark.archives": f"{packed}#environment"}


def test_an_archive_that_cannot_serve_is_refused(tmp_path: Path) -> None:
    missing = str(tmp_path / "missing.tar.gz")
    with pytest.raises(PipelineError, match=f"{missing}: No such file or directory; make one with"):
        environment_settings(missing)
    for name, data in (("text", b"no archive"), ("half", gzip.compress(bytes(100_000))[:50])):
        broken = tmp_path / f"{name}.tar.gz"
        broken.write_bytes(data)
        with pytest.raises(PipelineError, match=f"--environment {broken}: .*make one with"):
            environment_settings(str(broken))
    other = tmp_path / "logboom-environment.json"
    other.write_text('{"python": "python3.9"}')
    packed = tmp_path / "other.tar.gz"
    subprocess.run(["tar", "czf", str(packed), "-C", str(tmp_path), other.name], check=True)
    with pytest.raises(PipelineError, match=r"it is for python3\.9, and this is python3\.\d\d"):
        executor_python(str(packed))
