"""A router on YARN: Hadoop's own resource manager and node manager, and executors in containers of theirs."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from tests.clients.drivers import DriverMissingError, yarn
from tests.pipeline.support import RouterProcess, ledger, make_stream, needs_java, publish
from tests.support.cluster_manager import PIPELINE, check_delivered, cluster_manager, lines, router_arguments
from tests.support.server import BrokerProcess
from tests.support.skipping import skipped_on
from tests.support.waiting import until

from logboom.pipeline.spark.jvm import pyspark_dir

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.clients, needs_java]

COUNT = 600


@pytest.fixture
def settings(tmp_path: Path) -> Iterator[Path]:
    """The directory with the settings of a YARN that runs."""
    with skipped_on(DriverMissingError):
        command = yarn()
    directory = tmp_path / "hadoop"
    directory.mkdir()
    with cluster_manager([*command, str(directory)], directory / "log", "YARN"):
        yield directory


def _is_there(directory: Path, files: str, router: RouterProcess) -> bool:
    return any(directory.glob(files)) or not router.alive()


def test_a_router_runs_in_the_containers_of_yarn(
    broker: BrokerProcess, tmp_path: Path, settings: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bootstrap, file = broker.kafka, tmp_path / "contained.yaml"
    file.write_text(PIPELINE.format(name="contained"))
    for name in ("contained-web", "contained-out"):
        make_stream(bootstrap, name, 2)
    publish(bootstrap, "contained-web", lines(0, COUNT), 2)
    monkeypatch.setenv("HADOOP_CONF_DIR", str(settings))
    spark = {
        "spark.yarn.jars": f"local:{pyspark_dir()}/jars/*",  # there already: Spark would send 400 MB of them
        "spark.yarn.stagingDir": str(tmp_path),
        "spark.yarn.am.memory": "512m",
    }
    started = (
        (settings, "data/*/*/*-logDir-*/*/container_*_000001/stderr", "Spark's application is begun"),
        (settings, "data/*/*/*-logDir-*/*/container_*_000002/stderr", "an executor is begun"),
        (tmp_path, "checkpoint/router/metadata", "the router is begun"),
        (tmp_path, "checkpoint/ledger/*.json", "a batch is done"),
    )
    with RouterProcess(file, bootstrap, "--once", *router_arguments("yarn", tmp_path, spark)) as router:
        for directory, files, what in started:  # a loaded machine takes minutes for each
            until(partial(_is_there, directory, files, router), what, every_s=0.5)
        assert router.wait() == 0, router.log_text()[-3_000:]
    check_delivered(bootstrap, "contained", COUNT, tmp_path / "archive")
    assert ledger(tmp_path / "checkpoint")["total"]["records_in"] == {"web": COUNT}
