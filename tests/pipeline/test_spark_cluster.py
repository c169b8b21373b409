"""A router on a Spark cluster: a standalone master and two workers as processes, whose Python has none of the packages.

What the executors import travels with the pipeline. A worker and then the driver are killed while records flow; in the
end each record is delivered, and none is unaccounted for.
"""

import contextlib
import gzip
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import distribution
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import Producer
from tests.pipeline.support import RouterProcess, descendants, header, ledger, make_stream, needs_java, records
from tests.support.commands import run_logboom
from tests.support.server import BrokerProcess
from tests.support.waiting import WAIT_S, until

from logboom.bench.spark_cluster import StandaloneCluster
from logboom.pipeline.errors import PipelineError
from logboom.pipeline.run.executor_watch import WAIT_S as WAIT_FOR_EXECUTORS_S
from logboom.pipeline.run.executor_watch import ExecutorWatch
from logboom.pipeline.spark import environment as environment_module
from logboom.pipeline.spark.environment import environment_settings, executor_python, pack
from logboom.pipeline.spark.gateway import SparkJvm
from logboom.pipeline.spark.session import missing_for, start_jvm
from logboom.pipeline.spark.settings import SessionOptions

pytestmark = [pytest.mark.spark, needs_java]

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


def _cluster(directory: Path, workers: int = 2) -> StandaloneCluster:
    """Workers whose Python is the one that the tests' environment was made from: nothing of ours is in it."""
    paths = os.pathsep.join((str(Path(sys.base_prefix) / "bin"), os.environ["PATH"]))
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "PYSPARK"))}
    return StandaloneCluster(directory, workers, environment={**environment, "PATH": paths})


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    archive = tmp_path_factory.mktemp("environment") / "environment.tar.gz"
    done = run_logboom(["pipeline", "package", "--out", str(archive)], timeout_s=WAIT_S)
    assert re.search(r"environment\.tar\.gz: \d\d+ packages, \d+ MiB", done.stderr.decode()), done
    return archive


def test_the_metadata_of_a_distribution_is_not_parsed_for_each_of_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was, which took more of the time of `package` than all compression."""
    read: list[str] = []
    kio = distribution("kio")
    read_text = kio.read_text

    def noted(name: str) -> str | None:
        read.append(name)
        return read_text(name)

    monkeypatch.setattr(kio, "read_text", noted)
    monkeypatch.setattr(environment_module, "_needed", lambda: [kio])
    packed = pack(tmp_path / "kio.tar.gz", lambda _: None)
    assert packed.files > 100
    assert read.count("METADATA") < 10


def _send(broker: BrokerProcess, numbers: range, stream: str = "spread") -> None:
    producer = Producer({"bootstrap.servers": broker.kafka, "enable.idempotence": True})
    for number in numbers:
        event = {"time": "2026-11-20T12:00:00Z", "msg": f"mail to a{number}@example.com", "n": number}
        producer.produce(stream, json.dumps(event), partition=number % 2)
    assert producer.flush(WAIT_S) == 0


@contextmanager
def _router(
    file: Path, broker: BrokerProcess, cluster: StandaloneCluster, environment: Path, *more: str
) -> Iterator[RouterProcess]:
    arguments = ("--master", cluster.master, "--environment", str(environment), "--spark", "spark.executor.memory=512m")
    with RouterProcess(file, broker.kafka, *arguments, "--spark", "spark.driver.host=127.0.0.1", *more) as router:
        yield router


def _wait_for_records(router: RouterProcess, broker: BrokerProcess, count: int, stream: str = "spread-out") -> None:
    deadline = time.monotonic() + WAIT_S
    while len({header(one, "logboom-event-id") for one in records(broker.kafka, stream)}) < count:
        assert router.process.poll() is None, router.log_text()[-3_000:]
        assert time.monotonic() < deadline, router.log_text()[-3_000:]
        time.sleep(0.5)


@pytest.mark.in_turn(3)
def test_a_worker_and_the_driver_are_killed(tmp_path: Path, broker: BrokerProcess, environment: Path) -> None:
    make_stream(broker.kafka, "spread", partitions=2)
    make_stream(broker.kafka, "spread-out", partitions=2)
    file = tmp_path / "pipeline.yaml"
    file.write_text(PIPELINE)
    with _cluster(tmp_path) as cluster:
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


@pytest.mark.in_turn(3)
def test_a_run_continues_after_the_cluster_has_ended_its_application(
    tmp_path: Path, broker: BrokerProcess, environment: Path
) -> None:
    """A master ends it when no executor can be launched, for example on full disks of its workers. Here a file is where
    the worker makes the directories of executors, and the running one is killed."""
    make_stream(broker.kafka, "ended", partitions=2)
    make_stream(broker.kafka, "ended-out", partitions=2)
    file, work = tmp_path / "pipeline.yaml", tmp_path / "work-1"
    file.write_text(PIPELINE.replace("spread", "ended"))
    with _cluster(tmp_path, 1) as cluster, _router(file, broker, cluster, environment) as router:
        _send(broker, range(500), "ended")
        _wait_for_records(router, broker, 500, "ended-out")
        moved = work.rename(tmp_path / "moved")
        work.touch()
        worker = cluster.workers[0].pid
        for pid in descendants(worker) - {worker}:
            with contextlib.suppress(ProcessLookupError):  # those of Python end with the executor
                os.kill(pid, signal.SIGKILL)
        _send(broker, range(500, 1_000), "ended")
        told = "Spark's application was ended by its cluster"
        until(lambda: told in router.log_text() or not router.alive(), "the end of the application", every_s=0.2)
        work.unlink()
        moved.rename(work)
        _wait_for_records(router, broker, 1_000, "ended-out")
        assert "nothing is lost: the run restarts Spark in 1 s" in router.log_text()
        router.kill9()


def test_a_cluster_without_an_executor_is_told_once() -> None:
    clock, counts, told = [0.0], [0], list[str]()
    watch = ExecutorWatch(lambda: counts[0], told.append, lambda: clock[0])
    for clock[0] in (0.0, WAIT_FOR_EXECUTORS_S - 1):
        watch.look()
    assert told == []
    for clock[0] in (WAIT_FOR_EXECUTORS_S, WAIT_FOR_EXECUTORS_S + 100):
        watch.look()
    assert [line.partition(":")[0] for line in told] == ["the cluster has had no executor for this run for 30 s"]
    counts[0] = 2
    watch.look()
    watch.look()
    assert told[1:] == ["executors of the cluster are running now"]
    counts[0] = 0
    for clock[0] in (500.0, 500.0 + WAIT_FOR_EXECUTORS_S):
        watch.look()
    assert len(told) == 3


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


def test_what_yarn_and_kubernetes_need_is_asked_for_before_spark_starts() -> None:
    assert missing_for("local[*]", {}, {}) is None
    assert "set HADOOP_CONF_DIR to the directory" in str(missing_for("yarn", {}, {}))
    assert missing_for("yarn", {}, {"YARN_CONF_DIR": "/etc/hadoop"}) is None
    image = {"spark.kubernetes.executor.container.image": "spark:4.2.0"}
    wanted = "--spark spark.kubernetes.container.image=REPOSITORY/IMAGE:TAG"
    assert wanted in str(missing_for("k8s://https://10.0.0.1:6443", {}, {}))
    assert missing_for("k8s://https://10.0.0.1:6443", image, {}) is None
    cluster = {"spark.submit.deployMode": "cluster"}
    assert "the driver runs on the machine of `run`" in str(
        missing_for("yarn", cluster, {"HADOOP_CONF_DIR": "/etc/hadoop"})
    )


@pytest.mark.parametrize("master", ["yarn", "k8s://https://10.0.0.1:6443"])
def test_the_command_that_starts_spark_has_all_that_travels(
    tmp_path: Path, environment: Path, monkeypatch: pytest.MonkeyPatch, master: str
) -> None:
    """What would be given to Spark is looked at: neither is started here."""
    given: list[dict[str, str]] = []

    def started(_: object, settings: dict[str, str], *, silent: bool) -> None:
        given.append(settings)
        assert silent

    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "SPARK_LOCAL_IP"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    monkeypatch.setattr(SparkJvm, "__init__", started)
    image = {"spark.kubernetes.container.image": "spark:4.2.0"}
    start_jvm(SessionOptions(master=master, environment=str(environment), settings=image))
    (settings,) = given
    assert settings["spark.master"] == master
    assert settings["spark.archives"] == f"{environment}#environment"
    assert settings["spark.executorEnv.PYTHONPATH"] == "environment"
    assert settings["spark.executorEnv.SPARK_SCALA_VERSION"] == "2.13"
    assert "spark-sql-kafka-0-10_2.13-4.2.0.jar" in settings["spark.jars"]
    assert os.environ["PYSPARK_PYTHON"] == f"python{sys.version_info.major}.{sys.version_info.minor}"
    assert "SPARK_LOCAL_IP" not in os.environ


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
