"""A router on Kubernetes: an API server of the makers of Spark's client, and executor pods that are processes here."""

import os
import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from tests.clients.drivers import DriverMissingError, kubernetes
from tests.pipeline.support import RouterProcess, ledger, make_stream, needs_java, publish
from tests.support.cluster_manager import PIPELINE, check_delivered, cluster_manager, lines, router_arguments
from tests.support.server import BrokerProcess
from tests.support.skipping import skipped_on
from tests.support.waiting import WAIT_S, until

from logboom.pipeline.spark.jvm import pyspark_dir

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.clients, needs_java]

COUNT = 600


@pytest.fixture
def pods(tmp_path: Path) -> Path:
    """The directory with a directory for each pod."""
    return tmp_path / "pods"


@pytest.fixture
def master(tmp_path: Path, pods: Path) -> Iterator[str]:
    """What `--master` takes for a Kubernetes that runs."""
    with skipped_on(DriverMissingError):
        command = kubernetes()
    arguments = [*command, str(pods), str(pyspark_dir())]
    with cluster_manager(arguments, tmp_path / "kubernetes.log", "Kubernetes") as ready:
        yield "k8s://" + ready.split()[-1]


def _batch_is_done(checkpoint: Path, records_in: int, router: RouterProcess) -> bool:
    done = any((checkpoint / "ledger").glob("*.json")) and ledger(checkpoint)["total"]["records_in"]
    return done == {"web": records_in} or not router.alive()


def test_a_router_runs_in_pods_and_outlives_one(broker: BrokerProcess, tmp_path: Path, master: str, pods: Path) -> None:
    bootstrap, file, checkpoint = broker.kafka, tmp_path / "podded.yaml", tmp_path / "checkpoint"
    file.write_text(PIPELINE.format(name="podded"))
    for name in ("podded-web", "podded-out"):
        make_stream(bootstrap, name, 2)
    publish(bootstrap, "podded-web", lines(0, COUNT), 2)
    spark = {
        "spark.kubernetes.container.image": "spark:4.2.1",  # asked for, and not looked at by a node without containers
        "spark.kubernetes.allocation.batch.delay": "1s",
        "spark.kubernetes.driver.requestTimeout": str(int(WAIT_S * 1_000)),
        "spark.kubernetes.driver.connectionTimeout": str(int(WAIT_S * 1_000)),
    }
    with RouterProcess(file, bootstrap, *router_arguments(master, tmp_path, spark)) as router:
        until(partial(_batch_is_done, checkpoint, COUNT, router), "the first records are through", every_s=0.5)
        assert router.alive(), router.log_text()[-3_000:]
        (first,) = pods.iterdir()
        os.kill(int((first / "pid").read_text()), signal.SIGKILL)
        publish(bootstrap, "podded-web", lines(COUNT, COUNT), 2)
        until(partial(_batch_is_done, checkpoint, 2 * COUNT, router), "a pod took its place", every_s=0.5)
        assert router.sigterm() == 0, router.log_text()[-3_000:]
    assert len(list(pods.iterdir())) > 1
    check_delivered(bootstrap, "podded", 2 * COUNT, tmp_path / "archive")
